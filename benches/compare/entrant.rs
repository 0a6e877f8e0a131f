//! Entrant of a row: a way from client to server, with a number of workers, in a scene. Only names; programs and
//! addresses are in `subjects`.

/// One of the compared ways from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Subject {
    /// Routed by the gateway's kernel: the limit of this machine.
    Direct,
    /// Connection tracking in addition, which every way that translates addresses needs.
    Tracked,
    /// nftables rules as kube-proxy writes them, on the gateway.
    KubeProxy,
    /// The kernel's virtual server, as kube-proxy uses it in mode `ipvs`.
    Ipvs,
    /// The release binary of this project.
    Sheave,
    /// Same binary, whose Services the kernel carries.
    SheaveKernel,
    /// HAProxy in TCP mode, with splicing where that is its best.
    Haproxy,
    /// nginx with its stream module.
    Nginx,
    /// Envoy with its TCP and UDP proxies.
    Envoy,
}

impl Subject {
    /// All subjects, in the order of the runs.
    pub(crate) const ALL: [Self; 9] = [
        Self::Direct,
        Self::Tracked,
        Self::KubeProxy,
        Self::Ipvs,
        Self::Sheave,
        Self::SheaveKernel,
        Self::Haproxy,
        Self::Nginx,
        Self::Envoy,
    ];

    /// Name in the table and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Tracked => "tracked",
            Self::KubeProxy => "kube-proxy",
            Self::Ipvs => "ipvs",
            Self::Sheave => "sheave",
            Self::SheaveKernel => "sheave-kernel",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
        }
    }

    /// Whether a process forwards, and not just the kernel.
    pub(crate) fn is_proxy(self) -> bool {
        matches!(self, Self::Sheave | Self::Haproxy | Self::Nginx | Self::Envoy)
    }

    /// Whether it is this project's program.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Sheave | Self::SheaveKernel)
    }
}

/// Special condition of a row, or of a series in a row that compares Sheave with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scene {
    /// No special condition.
    Usual,
    /// The server sees the client's own address, as under `externalTrafficPolicy: Local`.
    Local,
    /// The table has this many additional Services.
    Services(u32),
    /// A Service with ClientIP affinity has seen this many clients.
    Records(u32),
    /// A manifest is edited all the time, which swaps the table.
    Swapping,
    /// A table of some size with this many open status pages, and with a Prometheus unless zero.
    Watched(u32),
    /// A Service has so many UDP flows, and is deleted.
    Flows(u16),
    /// The gateway has the kernel's default settings for local ports.
    DefaultPorts,
    /// Default sysctls, except that a port in TIME_WAIT can be reused after a second.
    ReusedPorts,
}

/// One series of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entrant {
    pub(crate) subject: Subject,
    /// Threads or processes that forward. Kernel paths ignore it.
    pub(crate) workers: usize,
    pub(crate) scene: Scene,
}

impl Entrant {
    /// Label in the table, which is also a valid folder name.
    pub(crate) fn label(self) -> String {
        let name = self.subject.name();
        let workers = if self.workers > 1 { format!("-{}w", self.workers) } else { String::new() };
        match self.scene {
            Scene::Usual => format!("{name}{workers}"),
            Scene::Local => format!("{name}{workers}-local"),
            Scene::Services(count) => format!("{name}{workers}-{count}-services"),
            Scene::Records(count) => format!("{name}{workers}-{count}-records"),
            Scene::Swapping => format!("{name}{workers}-swapping"),
            Scene::Watched(pages) => format!("{name}{workers}-{pages}-pages"),
            Scene::Flows(count) => format!("{name}{workers}-{count}-flows"),
            Scene::DefaultPorts => format!("{name}{workers}-default-sysctls"),
            Scene::ReusedPorts => format!("{name}{workers}-tcp_tw_reuse-1"),
        }
    }
}
