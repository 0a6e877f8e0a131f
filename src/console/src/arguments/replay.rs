//! Arguments of `sheave replay`: the log, the new manifests, and what is taken out of them.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{Folders, NodeArgs, TextFormat};

/// `sheave replay`.
#[derive(Debug, PartialEq, Args)]
#[command(group(ArgGroup::new("new").args(["manifests", "karmada_manifests"]).required(true).multiple(true)))]
pub struct Replay {
    /// Connection log of a gateway, as JSON lines or as CSV with a header; - reads standard input. Several are merged by time
    #[arg(long = "log", value_name = "FILE", required = true)]
    pub logs: Vec<PathBuf>,
    /// Folder or file of the new Kubernetes manifests
    #[arg(id = "manifests", long = "manifests", value_name = "NEW")]
    local: Option<PathBuf>,
    /// Folder or file of the new manifests of a Karmada control plane
    #[arg(id = "karmada_manifests", long = "karmada-manifests", value_name = "DIR")]
    karmada: Option<PathBuf>,
    /// Node whose gateway the traffic is replayed for.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Take out the endpoints on this node, as if they were not ready; CLUSTER/NODE means one cluster's
    #[arg(long, value_name = "NODE")]
    pub without_node: Vec<String>,
    /// Take out the endpoints in this zone, as if they were not ready; CLUSTER/ZONE means one cluster's
    #[arg(long, value_name = "ZONE")]
    pub without_zone: Vec<String>,
    /// Take out the endpoints in this cluster, as if they were not ready
    #[arg(long, value_name = "CLUSTER")]
    pub without_cluster: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub output: TextFormat,
}

impl Replay {
    /// The new manifests; clap requires at least one folder.
    pub(crate) fn folders(&self) -> Option<Folders<'_>> {
        Folders::of(self.local.as_deref(), self.karmada.as_deref())
    }

    /// Refuses to read standard input twice.
    pub fn check(&self) -> Result<(), String> {
        match self.logs.iter().filter(|log| log.as_os_str() == "-").count() {
            0 | 1 => Ok(()),
            _ => Err("standard input (-) can be read only once".to_owned()),
        }
    }
}
