//! Settings that the commands need, from the configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use sheave_control::projection;

/// How a command finds a process to query, and how it projects manifests.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the admin server on this machine.
    pub admin_listen: SocketAddr,
    /// Kubeconfig of the cluster to query, if one is configured.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None` = its current context.
    pub context: Option<String>,
    /// Namespace of the gateways and controllers in a cluster.
    pub namespace: String,
    /// Projection of manifests.
    pub projection: projection::Options,
}

impl Options {
    /// Options for tests, with the default projection for a node.
    #[cfg(test)]
    pub(crate) fn of_node(node: &str) -> Self {
        Self {
            admin_listen: ([127, 0, 0, 1], 0).into(),
            kubeconfig: None,
            context: None,
            namespace: String::new(),
            projection: projection::Options { node: node.to_owned(), ..projection::Options::default() },
        }
    }
}
