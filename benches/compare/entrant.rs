//! Who takes part in a row: a way from client to server, with how many workers, in which scene. Names only: programs and
//! addresses are in `subjects`.

/// One of the compared ways from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Subject {
    /// Routed by the gateway's kernel: the limit of this machine.
    Direct,
    /// nftables rules as kube-proxy writes them, on the gateway.
    KubeProxy,
    /// The kernel's virtual server, as kube-proxy uses it in mode `ipvs`.
    Ipvs,
    /// The release binary of this project.
    Sheave,
    /// HAProxy in TCP mode, with splicing where that is its best.
    Haproxy,
    /// nginx with its stream module.
    Nginx,
    /// Envoy with its TCP and UDP proxies.
    Envoy,
}

impl Subject {
    /// Everybody, in the order of the runs.
    pub(crate) const ALL: [Self; 7] =
        [Self::Direct, Self::KubeProxy, Self::Ipvs, Self::Sheave, Self::Haproxy, Self::Nginx, Self::Envoy];

    /// As it is written in the table and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::KubeProxy => "kube-proxy",
            Self::Ipvs => "ipvs",
            Self::Sheave => "sheave",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
        }
    }

    /// Whether a process forwards, rather than the kernel alone.
    pub(crate) fn is_proxy(self) -> bool {
        !matches!(self, Self::Direct | Self::KubeProxy | Self::Ipvs)
    }
}

/// What is special about a row, or about a series of a row that compares Sheave with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scene {
    /// Nothing.
    Usual,
    /// The server sees the client's own address, as under `externalTrafficPolicy: Local`.
    Local,
    /// The table has so many Services more.
    Services(u32),
    /// A Service with ClientIP affinity has seen so many clients.
    Records(u32),
    /// An edited manifest swaps the table all the time.
    Swapping,
    /// A table of some size, so many open status pages, and if there are any, a Prometheus.
    Watched(u32),
}

/// One series of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entrant {
    /// Who.
    pub(crate) subject: Subject,
    /// Threads or processes that forward; nothing to the kernel's own paths.
    pub(crate) workers: usize,
    /// In which state.
    pub(crate) scene: Scene,
}

impl Entrant {
    /// As it is written in the table; also fit to name a folder.
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
        }
    }
}
