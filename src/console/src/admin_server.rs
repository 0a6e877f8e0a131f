//! Admin server that a command queries: at the given URL, on this machine, or in the cluster through a port-forward.

use std::net::TcpStream;
use std::time::Duration;

use crate::arguments::RunningArgs;
use crate::exit::Exit;
use crate::options::Options;
use crate::port_forward::{PortForward, Remote};
use crate::stdout::complain;

/// Environment variable that the kubelet sets in every Pod (`getServiceEnvVarMap`).
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";
/// How long the check for a local listener may take.
const LOOPBACK_PATIENCE: Duration = Duration::from_secs(1);

/// Address of an admin server. It stays reachable while this value lives.
#[derive(Debug)]
pub struct AdminServer {
    /// `host:port` of the server.
    pub(crate) authority: String,
    /// Held for its `Drop`, which ends the port-forward.
    forward: Option<PortForward>,
}

impl AdminServer {
    /// Finds the gateway that is named, or else the process at the configured address. A kubectl plugin is about a cluster, so it
    /// looks for a gateway there if none listens here.
    ///
    /// # Errors
    /// The exit code, after the reason is reported, if no server can be reached.
    pub fn of_process(running: &RunningArgs, config: &Options) -> Result<Self, Exit> {
        let forwarded = match &running.gateway {
            Some(node) => Self::forwarded(&Remote::GatewayOn(node), config)
                .map_err(|error| format!("no way to the gateway on node {node}: {error}")),
            None => match Self::here(running, config) {
                Some(server) => Ok(server),
                // The query itself will report that nothing answers there.
                None if !running.plugin && !running.names_cluster() => Ok(Self::near(running, config)),
                None => Self::forwarded(&Remote::AnyGateway, config)
                    .map_err(|error| not_here(running, config, &error)),
            },
        };
        forwarded.map_err(|error| {
            complain(&error);
            Exit::Unavailable
        })
    }

    /// The server at the given URL, or one that listens on this machine (in a Pod: of the same Pod). `None` if a cluster is named.
    pub(crate) fn here(running: &RunningArgs, config: &Options) -> Option<Self> {
        if running.names_cluster() {
            return None;
        }
        let listens = || TcpStream::connect_timeout(&config.admin_listen, LOOPBACK_PATIENCE).is_ok();
        (!may_be_elsewhere(running) || listens()).then(|| Self::near(running, config))
    }

    /// Whether a port-forward leads to one Pod, so that the address ends with that Pod.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.forward.is_some()
    }

    /// Opens a port-forward to a controller in the cluster.
    ///
    /// # Errors
    /// If the port-forward fails, with the reason as text.
    pub(crate) fn of_controller(config: &Options) -> Result<Self, String> {
        Self::forwarded(&Remote::Controller, config)
    }

    fn near(running: &RunningArgs, config: &Options) -> Self {
        let named = running.admin.as_ref().map(|admin| admin.authority.clone());
        let authority = named.unwrap_or_else(|| config.admin_listen.to_string());
        Self { authority, forward: None }
    }

    fn forwarded(remote: &Remote<'_>, config: &Options) -> Result<Self, String> {
        let forward = PortForward::open(remote, config)?;
        Ok(Self { authority: forward.authority.clone(), forward: Some(forward) })
    }
}

/// Message for a missing server: what has the port on this machine instead, and why the cluster cannot be reached.
pub(crate) fn not_here(running: &RunningArgs, config: &Options, error: &str) -> String {
    if running.names_cluster() {
        return error.to_owned();
    }
    format!("nothing listens on http://{}, and {error}", config.admin_listen)
}

/// Whether the process may be in a cluster: no URL is given, and this process runs outside of Pods.
pub(crate) fn may_be_elsewhere(running: &RunningArgs) -> bool {
    running.admin.is_none() && std::env::var_os(IN_CLUSTER).is_none()
}
