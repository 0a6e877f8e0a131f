//! A controller process: start, admin server and end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::controller::ownership::Ownership;
use sheave_control::controller::{Controller, ControllerOptions, election};
use sheave_control::projection::{self, Role};
use sheave_control::sources::connection::Connection;
use sheave_model::FrontendKind;
use tokio::sync::watch;

use super::{connect, connect_karmada};
use crate::config::Config;
use crate::exit::Exit;
use crate::gateway::options::projection_options;
use crate::gateway::startup_log::{self, StartupInfo};
use crate::http::admin as admin_server;
use crate::http::controller_pages::ControllerPages;
use crate::http::metrics::recorder;
use crate::http::server::{Connections, Server};
use crate::process::signals::Termination;

/// Set in the Pods of `deploy`: the name by which people know a candidate.
const POD_NAME: &str = "POD_NAME";

/// Options of a controller. `own_gateway` is the report of a gateway in this process, `karmada` how the
/// Karmada control plane is reached.
pub(crate) fn options(
    config: &Config,
    own_gateway: Option<watch::Receiver<GatewayReport>>,
    karmada: Option<Connection>,
) -> ControllerOptions {
    let host = std::env::var(POD_NAME).unwrap_or_else(|_| config.node.clone());
    let own_node = own_gateway.as_ref().map(|_| Arc::from(config.node.as_str()));
    let role = Role::Controller { gateways: config.gateways.clone(), own_gateway: own_node };
    ControllerOptions {
        projection: projection::Options {
            // The others have no address that a controller could give.
            frontends: BTreeSet::from([FrontendKind::LoadBalancer]),
            ..projection_options(config, role)
        },
        karmada,
        gateways: config.gateways.clone(),
        gateway_token: config.gateway_token.clone(),
        own_gateway,
        lease: config.lease.clone(),
        timing: config.timing.clone(),
        identity: election::identity(&host),
        ownership: Ownership::new(&config.load_balancer_class, config.shared_finalizer),
        mass_deletion_hold: config.mass_deletion_hold,
    }
}

/// Runs a controller until a signal.
pub(crate) async fn run(config: &Config) -> Exit {
    match start(config).await {
        Ok(parts) => parts.serve().await,
        Err(why) => {
            eprintln!("sheave: {why}");
            Exit::Unavailable
        }
    }
}

/// Everything a controller needs, running.
struct ControllerProcess {
    controller: Controller,
    /// Answers until dropped.
    admin: Server,
    metrics: Option<Server>,
    termination: Termination,
}

async fn start(config: &Config) -> Result<ControllerProcess, String> {
    let listener = admin_server::bind("admin", config.admin_listen).await?;
    let metrics = admin_server::bind_metrics(&config.metrics).await?;
    let termination = Termination::listen().map_err(|error| format!("no signal handlers: {error}"))?;
    let own_metrics = recorder::install().map_err(|error| format!("metrics: {error}"))?;
    let connection = connect(config, "controller").await?;
    let karmada = connect_karmada(config, "controller").await?;
    let metrics = admin_server::guard_metrics(metrics, &config.metrics, Some(&connection))?;
    let server = connection.server().as_ref().to_owned();
    let karmada_server = karmada.as_ref().map(|karmada| karmada.server().as_ref().to_owned());
    let admin = listener.local_addr().map_err(|error| format!("admin address: {error}"))?;
    let options = options(config, None, karmada);
    let process =
        StartupInfo { role: "controller", admin, source: server.clone(), karmada: karmada_server.clone() };
    startup_log::controller(&process, &options.identity, config);
    let controller = Controller::start(connection, options);
    let page = ControllerPages {
        started: Instant::now(),
        node: config.node.clone(),
        server,
        karmada: karmada_server,
        status: controller.status(),
        own_metrics,
    };
    let metrics =
        metrics.map(|listener| listener.serve(page.clone().metrics_router(), Connections::of_metrics()));
    let admin = Server::start(listener, page.router(), Connections::default());
    Ok(ControllerProcess { controller, admin, metrics, termination })
}

impl ControllerProcess {
    async fn serve(self) -> Exit {
        let Self { controller, admin, metrics: _metrics, mut termination } = self;
        let mut status = controller.status();
        tokio::select! {
            // The other end is dropped when the controller ends, which it never does by itself.
            _ = status.wait_for(|_| false) => return Exit::Software,
            _ = termination.requested() => {}
        }
        tracing::info!("stopping: releasing the Lease so that another controller can lead at once");
        tokio::select! {
            () = controller.stop() => {}
            _ = termination.requested() => {}
        }
        drop(admin);
        Exit::Ok
    }
}
