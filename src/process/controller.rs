//! Controller process: startup, admin server and termination.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sheave_console::exit::Exit;
use sheave_console::http::admin as admin_server;
use sheave_console::http::all_gateways::AllGateways;
use sheave_console::http::controller_pages::ControllerPages;
use sheave_console::http::server::{Connections, Server};
use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::controller::ownership::Ownership;
use sheave_control::controller::{Controller, ControllerOptions, election};
use sheave_control::projection::{self, Role};
use sheave_control::sources::api_server::KindHints;
use sheave_control::sources::connection::Connection;
use sheave_model::{FrontendKind, PathChoice};
use tokio::sync::watch;

use super::{connect, connect_karmada};
use crate::config::changes::ProcessParts;
use crate::config::{Config, ConfigOrigin};
use crate::gateway::options::projection_options;
use crate::gateway::startup_log::{self, StartupInfo};
use crate::logging;
use crate::process::reload::Reloads;
use crate::process::signals::{Hangup, Termination};

/// Variable in the Pods of `deploy` with the Pod name, by which a candidate is known.
const POD_NAME: &str = "POD_NAME";

/// Limit of connections to the admin server.
const CONNECTIONS: usize = 1024;

/// Options of a controller. `own_gateway` is the report of a gateway in this process and where it takes hints, `karmada` the
/// connection to the Karmada control plane.
pub(crate) fn options(
    config: &Config,
    own_gateway: Option<(watch::Receiver<GatewayReport>, Option<KindHints>)>,
    karmada: Option<Connection>,
) -> ControllerOptions {
    let host = std::env::var(POD_NAME).unwrap_or_else(|_| config.node.clone());
    let own_node = own_gateway.as_ref().map(|_| Arc::from(config.node.as_str()));
    let (own_gateway, own_hints) = own_gateway.unzip();
    let role = Role::Controller { gateways: config.gateways.clone(), own_gateway: own_node };
    let projection = projection_options(config, role);
    ControllerOptions {
        projection: projection::Options {
            // Only these frontends have addresses that a controller allocates.
            frontends: BTreeSet::from([FrontendKind::LoadBalancer]),
            // A controller forwards nothing.
            path: PathChoice::default(),
            ..projection
        },
        karmada,
        gateways: config.gateways.clone(),
        gateway_token: config.gateway_token.clone(),
        own_gateway,
        own_hints: own_hints.flatten(),
        lease: config.lease.clone(),
        timing: config.timing.clone(),
        identity: election::identity(&host),
        ownership: Ownership::new(&config.load_balancer_class, config.shared_finalizer),
        gateway_api: config.gateway_api.mode,
        mass_deletion_hold: config.mass_deletion_hold,
    }
}

/// Applies another configuration to a running controller, if it matters to it.
pub(crate) fn reconfigure(controller: &Controller, config: &Config) {
    controller.reconfigure(|options| {
        let own_gateway = options.own_gateway.clone().map(|report| (report, options.own_hints.clone()));
        let new = self::options(config, own_gateway, options.karmada.clone());
        let differs = live_options(&new) != live_options(options);
        *options = ControllerOptions { identity: options.identity.clone(), ..new };
        differs
    });
}

/// Options that a running controller can change.
fn live_options(options: &ControllerOptions) -> impl PartialEq + use<'_> {
    let ControllerOptions { projection, gateways, gateway_token, ownership, mass_deletion_hold, .. } =
        options;
    (projection, gateways, gateway_token, ownership, mass_deletion_hold)
}

/// Runs a controller until a signal. SIGHUP reloads `origin`.
pub(crate) async fn run(config: &Config, origin: ConfigOrigin) -> Exit {
    match start(config, origin).await {
        Ok(parts) => parts.serve().await,
        Err(why) => {
            eprintln!("sheave: {why}");
            Exit::Unavailable
        }
    }
}

/// Running parts of a controller.
struct ControllerProcess {
    controller: Controller,
    /// Serves until dropped.
    admin: Server,
    metrics: Option<Server>,
    termination: Termination,
    reloads: Reloads,
}

async fn start(config: &Config, origin: ConfigOrigin) -> Result<ControllerProcess, String> {
    // Install the handler first, so that a reload during startup is not lost.
    let hangup = Hangup::of_process(true);
    let no_handlers = |error| format!("no signal handlers: {error}");
    let termination = Termination::listen(hangup).map_err(no_handlers)?;
    let reloads =
        Reloads::listen(Some(origin), ProcessParts::Controller, config, hangup).map_err(no_handlers)?;
    let listener = admin_server::bind("admin", config.admin_listen).await?;
    let metrics = match config.metrics.addr()? {
        Some(listen) => Some(admin_server::bind("metrics", listen).await?),
        None => None,
    };
    let connection = connect(config, "controller").await?;
    let karmada = connect_karmada(config, "controller").await?;
    let metrics = admin_server::guard_metrics(metrics, config.metrics.guard(), Some(&connection))?;
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
        dropped_log_lines: logging::dropped_lines,
        gateways: AllGateways::new(config.node.clone(), controller.gateway_client(), controller.status()),
    };
    let metrics = metrics.map(|listener| {
        let router = admin_server::for_scrapers(page.clone().metrics_router(), &listener, &config.node);
        listener.serve(router, Connections::of_metrics(Connections::METRICS))
    });
    let admin = Server::start(listener, page.router(), Connections::of_admin(CONNECTIONS));
    Ok(ControllerProcess { controller, admin, metrics, termination, reloads })
}

impl ControllerProcess {
    async fn serve(self) -> Exit {
        let Self { controller, admin, metrics: _metrics, mut termination, mut reloads } = self;
        let mut status = controller.status();
        let apply = async |config: Arc<Config>| {
            reconfigure(&controller, &config);
            true
        };
        tokio::select! {
            // The sender is dropped when the controller ends, which it never does on its own.
            _ = status.wait_for(|_| false) => return Exit::Software,
            _ = termination.requested() => {}
            never = reloads.follow(apply) => match never {},
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::changes::TakesEffect;
    use crate::config::changes::tests::{config, each_changed};

    #[test]
    fn what_changes_live_reaches_the_controller_and_nothing_unused_does() {
        let base = options(&config(""), None, None);
        for (key, changed, effect) in each_changed(ProcessParts::Controller) {
            if effect <= TakesEffect::Live {
                let reaches = effect == TakesEffect::Live && key != "logging.level";
                let changed = options(&changed, None, None);
                assert_eq!(live_options(&changed) != live_options(&base), reaches, "{key}");
            }
        }
    }
}
