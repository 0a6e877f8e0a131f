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
pub(super) struct AdminServer {
    /// Its `host:port`.
    pub(super) authority: String,
    /// Held for what dropping it does.
    _forward: Option<PortForward>,
}

impl AdminServer {
    /// Of the gateway that is named, or else of the process that the configuration has. A plugin of kubectl asks about a cluster, so
    /// that it finds a gateway there if none is here.
    ///
    /// # Errors
    /// How to exit, if there is no way to it, which is reported.
    pub(super) fn of_process(running: &RunningArgs, config: &Config) -> Result<Self, Exit> {
        let forwarded = match &running.gateway {
            Some(node) => Self::forwarded(&Remote::GatewayOn(node), config)
                .map_err(|error| format!("no way to the gateway on node {node}: {error}")),
            None if running.plugin && is_elsewhere(running, config) => {
                Self::forwarded(&Remote::AnyGateway, config).map_err(|error| not_here(config, &error))
            }
            None => Ok(Self::near(running, config)),
        };
        forwarded.map_err(|error| {
            complain(&error);
            Exit::Unavailable
        })
    }

    /// Of a controller, which is looked for in the cluster if none is here.
    ///
    /// # Errors
    /// Why there is no way to one.
    pub(super) fn of_controller(running: &RunningArgs, config: &Config) -> Result<Self, String> {
        if !is_elsewhere(running, config) {
            return Ok(Self::near(running, config));
        }
        Self::forwarded(&Remote::Controller, config).map_err(|error| not_here(config, &error))
    }

    fn near(running: &RunningArgs, config: &Config) -> Self {
        let named = running.admin.as_ref().map(|admin| admin.authority.clone());
        let authority = named.unwrap_or_else(|| config.admin_listen.to_string());
        Self { authority, _forward: None }
    }

    fn forwarded(remote: &Remote<'_>, config: &Config) -> Result<Self, String> {
        let forward = PortForward::open(remote, config)?;
        Ok(Self { authority: forward.authority.clone(), _forward: Some(forward) })
    }
}

fn not_here(config: &Config, error: &str) -> String {
    format!("nothing listens on http://{}, and {error}", config.admin_listen)
}

/// Whether the process is to be looked for in the cluster: none is named, none is here, and this is no Pod.
fn is_elsewhere(running: &RunningArgs, config: &Config) -> bool {
    let is_here = || TcpStream::connect_timeout(&config.admin_listen, LOOPBACK_PATIENCE).is_ok();
    running.admin.is_none() && std::env::var_os(IN_CLUSTER).is_none() && !is_here()
}
