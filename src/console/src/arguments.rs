//! Arguments of the console's commands. Several commands share those of this file.

mod commands;
mod diff;
mod object;
mod question;
mod replay;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

pub use self::commands::{Events, Explain, Gateways, Routes, Status, Top, Trace, Validate, Watch};
pub use self::diff::Diff;
pub use self::question::QuestionArgs;
pub use self::replay::Replay;

/// `--manifests` and `--karmada-manifests`.
#[derive(Debug, PartialEq, Args)]
pub struct ManifestArgs {
    /// Folder or file of Kubernetes manifests to read instead of the API server
    #[arg(id = "manifests", long = "manifests", value_name = "DIR")]
    pub local: Option<PathBuf>,
    /// Folder or file of a Karmada control plane's manifests to read instead of its API server
    #[arg(id = "karmada_manifests", long = "karmada-manifests", value_name = "DIR")]
    pub karmada: Option<PathBuf>,
}

/// Sources of `routes` and `explain`: manifests, or a running gateway.
#[derive(Debug, PartialEq, Args)]
#[command(mut_args(|arg| match arg.get_id().as_str() {
    "admin" | "gateway" => arg.conflicts_with_all(["manifests", "karmada_manifests", "node"]),
    _ => arg,
}))]
pub struct SourceArgs {
    /// Manifests to read.
    #[command(flatten)]
    pub manifests: ManifestArgs,
    /// Node to read them for.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Running process to query.
    #[command(flatten)]
    pub running: RunningArgs,
}

/// Arguments that select the running process to query.
#[derive(Debug, Default, PartialEq, Args)]
pub struct RunningArgs {
    /// Admin server to query [default: http:// and `admin.listen`]
    #[arg(long, value_name = "URL", value_parser = admin_url, conflicts_with = "gateway")]
    pub admin: Option<AdminUrl>,
    /// Query the gateway on this Node of the cluster, through a port-forward
    ///
    /// The default, if --kubeconfig or --context selects the cluster, is a ready gateway of that cluster; `kubectl sheave` uses it also
    /// where nothing listens on `admin.listen`.
    #[arg(long, alias = "from", value_name = "NODE")]
    pub gateway: Option<String>,
    /// API server of the cluster.
    #[command(flatten)]
    pub api: ApiServerArgs,
    /// Whether the program was called as a kubectl plugin.
    #[arg(skip)]
    pub plugin: bool,
}

impl RunningArgs {
    /// Whether the flags name a cluster, so that no process on this machine is meant.
    pub fn names_cluster(&self) -> bool {
        self.admin.is_none() && (self.api.kubeconfig.is_some() || self.api.context.is_some())
    }
}

/// `--kubeconfig` and `--context`.
#[derive(Debug, Default, PartialEq, Args)]
pub struct ApiServerArgs {
    /// Kubeconfig file [default: `kubeconfig` of the configuration, in-cluster, $KUBECONFIG, ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// `--node`.
#[derive(Debug, PartialEq, Args)]
pub struct NodeArgs {
    /// Name of the Node that this process runs on [default: `node` of the configuration, $NODE_NAME, the host name]
    #[arg(long = "node", id = "node", value_name = "NAME")]
    pub name: Option<String>,
}

/// Output of commands that show tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Aligned columns
    Table,
    /// Aligned columns with more detail
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Output of commands that show text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// Text for people
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Output of commands that print a line for each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// Text for people
    Text,
    /// One JSON object on each line
    Json,
}

/// Rows of `sheave top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopRows {
    /// Services
    Services,
    /// Endpoints of each Service
    Endpoints,
    /// Clusters
    Clusters,
    /// Networks of clients: IPv4 /24, IPv6 /56
    Clients,
}

/// Address of an admin server: the `host:port` of its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminUrl {
    /// Host and port as in the URL; the host may be a name, and an IPv6 address is in brackets.
    pub authority: String,
}

/// Folders of manifests, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folders<'a> {
    /// Manifests of the cluster that the gateways run in.
    pub local: Option<&'a Path>,
    /// Manifests of a Karmada control plane.
    pub karmada: Option<&'a Path>,
}

impl<'a> Folders<'a> {
    /// `None` if both folders are missing.
    pub fn of(local: Option<&'a Path>, karmada: Option<&'a Path>) -> Option<Self> {
        (local.is_some() || karmada.is_some()).then_some(Self { local, karmada })
    }
}

impl ManifestArgs {
    /// The folders that the flags name; `None` if they name none.
    pub fn folders(&self) -> Option<Folders<'_>> {
        Folders::of(self.local.as_deref(), self.karmada.as_deref())
    }
}

/// Parses the URL of an admin server.
pub fn admin_url(text: &str) -> Result<AdminUrl, String> {
    let authority = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let port = authority.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    let well_formed =
        !authority.contains(['/', '@', ' ']) && port.is_some_and(|port| port.parse::<u16>().is_ok());
    if well_formed {
        Ok(AdminUrl { authority: authority.to_owned() })
    } else {
        Err("write it as http://127.0.0.1:9841".to_owned())
    }
}
