//! The admin server that a command asks: at the URL that it is given, on this machine, or in the cluster through kubectl.

use std::net::TcpStream;
use std::time::Duration;

use super::port_forward::{PortForward, Remote};
use super::stdout::complain;
use crate::cli::RunningArgs;
use crate::config::Config;
use crate::exit::Exit;

/// Set in every Pod (kubelet, `getServiceEnvVarMap`).
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";
/// How long it may take to find that nothing listens here.
const LOOPBACK_PATIENCE: Duration = Duration::from_secs(1);

/// Where to ask, as long as this lasts.
#[derive(Debug)]
pub(crate) struct AdminServer {
    /// Its `host:port`.
    pub(crate) authority: String,
    /// Held for what dropping it does.
    forward: Option<PortForward>,
}

impl AdminServer {
    /// Of the gateway that is named, or else of the process that the configuration has. A plugin of kubectl asks about a cluster, so
    /// that it finds a gateway there if none is here.
    ///
    /// # Errors
    /// How to exit, if there is no way to it, which is reported.
    pub(crate) fn of_process(running: &RunningArgs, config: &Config) -> Result<Self, Exit> {
        let forwarded = match &running.gateway {
            Some(node) => Self::forwarded(&Remote::GatewayOn(node), config)
                .map_err(|error| format!("no way to the gateway on node {node}: {error}")),
            None => match Self::here(running, config) {
                Some(server) => Ok(server),
                // Whoever asks will be told that nothing answers there.
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

    /// The one that is named, or that listens on this machine; in a Pod, that of the Pod. None if a cluster is named.
    pub(super) fn here(running: &RunningArgs, config: &Config) -> Option<Self> {
        if running.names_cluster() {
            return None;
        }
        let listens = || TcpStream::connect_timeout(&config.admin_listen, LOOPBACK_PATIENCE).is_ok();
        (!may_be_elsewhere(running) || listens()).then(|| Self::near(running, config))
    }

    /// Whether kubectl leads there: to one Pod, for as long as that lives.
    pub(super) fn is_forwarded(&self) -> bool {
        self.forward.is_some()
    }

    /// Of a controller in the cluster.
    ///
    /// # Errors
    /// Why there is no way to one.
    pub(super) fn of_controller(config: &Config) -> Result<Self, String> {
        Self::forwarded(&Remote::Controller, config)
    }

    fn near(running: &RunningArgs, config: &Config) -> Self {
        let named = running.admin.as_ref().map(|admin| admin.authority.clone());
        let authority = named.unwrap_or_else(|| config.admin_listen.to_string());
        Self { authority, forward: None }
    }

    fn forwarded(remote: &Remote<'_>, config: &Config) -> Result<Self, String> {
        let forward = PortForward::open(remote, config)?;
        Ok(Self { authority: forward.authority.clone(), forward: Some(forward) })
    }
}

/// Why there is none: what has the port here instead, and why there is no way to the cluster.
pub(super) fn not_here(running: &RunningArgs, config: &Config, error: &str) -> String {
    if running.names_cluster() {
        return error.to_owned();
    }
    format!("nothing listens on http://{}, and {error}", config.admin_listen)
}

/// Whether the process may be looked for in the cluster: none is named, and this is no Pod.
pub(super) fn may_be_elsewhere(running: &RunningArgs) -> bool {
    running.admin.is_none() && std::env::var_os(IN_CLUSTER).is_none()
}
