//! Gateway process: startup, servers, drain and termination.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sheave_console::exit::Exit;
use sheave_console::http::admin::{self, LookingPages};
use sheave_console::http::metrics::recorder;
use sheave_console::http::metrics::scrape::ScrapeQueue;
use sheave_console::http::query::{Query, QuerySender};
use sheave_console::http::report;
use sheave_control::controller::Controller;
use sheave_control::sources::connection::Connection;
use sheave_dataplane::Drained;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::{connect, connect_karmada, controller};
use crate::config::changes::ProcessParts;
use crate::config::{Config, ConfigOrigin};
use crate::gateway::capacity::Capacity;
use crate::gateway::event_loop::{Ended, EventLoop, Inbox, NewConfig, Servers};
use crate::gateway::options::announce_options;
use crate::gateway::sources::{self, Origin};
use crate::gateway::startup_log::{self, StartupInfo};
use crate::process::reload::Reloads;
use crate::process::service_manager;
use crate::process::signals::{Hangup, Requester, Termination};
use crate::takeover::predecessor::Predecessor;
use crate::takeover::successor::Successor;
use crate::takeover::{self, ServingPlace};

/// Extra time before this process counts its successor's end as unexpected, since both may be told to stop at once.
const OWN_END: Duration = Duration::from_secs(1);
/// Queries of the admin server that may wait for the loop.
const QUEUED_QUERIES: usize = 16;

/// Source of a gateway's objects.
pub(crate) enum ObjectSource<'a> {
    /// A folder of manifests or a single file, without a controller.
    Manifests(&'a Path),
    /// The API server, with the controller in another process.
    Api,
    /// The API server, with a controller in this process.
    ApiWithController,
}

impl<'a> ObjectSource<'a> {
    /// Role of the process, as in the status and the log, and its parts.
    fn role(&self) -> (&'static str, ProcessParts) {
        match self {
            Self::ApiWithController => ("run", ProcessParts::Both),
            Self::Manifests(_) | Self::Api => ("gateway", ProcessParts::Gateway),
        }
    }

    fn manifests(&self) -> Option<&'a Path> {
        match self {
            Self::Manifests(path) => Some(path),
            Self::Api | Self::ApiWithController => None,
        }
    }
}

/// Runs a gateway until a signal, or for a limited time. Follows the Karmada control plane of `karmada_manifests`, or else of
/// the configuration. `started` gets the admin address once the first objects have been read.
pub(crate) async fn run(
    config: &Config,
    source: ObjectSource<'_>,
    karmada_manifests: Option<&Path>,
    lifetime: Lifetime,
    started: impl FnOnce(SocketAddr),
) -> Exit {
    match start(config, source, karmada_manifests, lifetime).await {
        Ok(parts) => Box::pin(parts.serve(started)).await,
        Err(why) => {
            eprintln!("sheave: {why}");
            Exit::Unavailable
        }
    }
}

/// Parts of a gateway, ready to run.
struct GatewayProcess {
    app: Box<EventLoop>,
    controller: Option<Controller>,
    /// Address of the admin server.
    admin: SocketAddr,
    /// Starts the servers beside traffic, once this process serves.
    serve: Box<dyn FnOnce(&EventLoop) -> Servers>,
    queries: mpsc::Receiver<Query>,
    termination: Termination,
    reloads: Reloads,
    takeover: Takeover,
    duration: Option<Duration>,
}

/// Takeover between processes of the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    /// Takes no part in takeovers.
    Never,
    /// Another process may take over from this one.
    Allowed,
    /// Like `Allowed`, and this process first takes over from one that serves.
    Requested,
}

/// Lifetime of a gateway process.
#[derive(Debug)]
pub(crate) struct Lifetime {
    /// Takeovers that are allowed.
    pub(crate) takeover: Takeover,
    /// Time after which the process ends on its own, if any.
    pub(crate) duration: Option<Duration>,
    /// Configuration that SIGHUP reloads. Without it, SIGHUP ends the process.
    pub(crate) origin: Option<ConfigOrigin>,
}

async fn start(
    config: &Config,
    source: ObjectSource<'_>,
    karmada_manifests: Option<&Path>,
    lifetime: Lifetime,
) -> Result<GatewayProcess, String> {
    let Lifetime { takeover, duration, origin } = lifetime;
    if let Some(announce) = announce_options(config) {
        // Check this before the predecessor releases anything.
        announce.check()?;
    }
    let (role, parts) = source.role();
    // Install the handlers first, so that signals during startup are not lost.
    let hangup = Hangup::of_process(origin.is_some());
    let no_handlers = |error| format!("no signal handlers: {error}");
    let termination = Termination::listen(hangup).map_err(no_handlers)?;
    let reloads = Reloads::listen(origin, parts, config, hangup).map_err(no_handlers)?;
    let mut predecessor = match takeover {
        Takeover::Requested => find_predecessor(config).await?,
        Takeover::Allowed | Takeover::Never => None,
    };
    // Each frontend has sockets and flows for each worker of the predecessor, so use the same number.
    let workers = predecessor.as_ref().map_or(config.workers, Predecessor::workers);
    let config = &Config { workers, ..config.clone() };
    let own_metrics = recorder::install().map_err(|error| format!("metrics: {error}"))?;
    let (connection, fleet) = connections(config, &source, karmada_manifests).await?;
    // A process that takes no part in takeovers leaves nothing behind.
    let memory = (takeover != Takeover::Never).then(|| config.state_dir.clone());
    let (admin, listeners) = listen(config, &mut predecessor, connection.as_ref(), memory).await?;
    let local = Origin::of(source.manifests(), connection.as_ref()).ok_or("no API server")?;
    let karmada = Origin::of(karmada_manifests, fleet.as_ref());
    let sources = sources::start(local, karmada, config);
    let shares = Capacity::of_process(config);
    let process = StartupInfo {
        role,
        admin,
        source: local.to_string(),
        karmada: karmada.map(|origin| origin.to_string()),
    };
    startup_log::gateway(&process, &shares, config);
    let former_pod = predecessor.as_ref().and_then(Predecessor::pod).map(str::to_owned);
    // A process without takeovers may share the local ports with any other, since its endpoints are its own.
    if takeover != Takeover::Never {
        sheave_dataplane::claim_local_ports(&config.state_dir);
    }
    let mut app = EventLoop::start(config, &shares, sources, predecessor)
        .map_err(|error| format!("the workers cannot start: {error}"))?;
    let controller =
        connection.filter(|_| matches!(source, ObjectSource::ApiWithController)).map(|connection| {
            let own_gateway = Some((app.report(), app.kind_hints()));
            Controller::start(connection, controller::options(config, own_gateway, fleet))
        });
    if let Some(controller) = &controller {
        app.run_beside(controller.status());
    }
    let (asking, queries) = mpsc::channel(QUEUED_QUERIES);
    let (scrapes, config) = (ScrapeQueue::new(app.observer(), own_metrics), config.clone());
    let serve = Box::new(move |app: &EventLoop| {
        let servers = listeners(app, &shares, &asking, scrapes);
        match takeover {
            Takeover::Never => servers,
            Takeover::Allowed | Takeover::Requested => {
                servers.with_successors(&config, shares.workers, former_pod, app)
            }
        }
    });
    Ok(GatewayProcess { app, controller, admin, serve, queries, termination, reloads, takeover, duration })
}

/// Opens the connections to the API server and the Karmada control plane, unless these are folders.
async fn connections(
    config: &Config,
    source: &ObjectSource<'_>,
    karmada_manifests: Option<&Path>,
) -> Result<(Option<Connection>, Option<Connection>), String> {
    if source.manifests().is_some() {
        return Ok((None, None));
    }
    let (role, _) = source.role();
    let local = connect(config, role).await?;
    let karmada = match karmada_manifests {
        Some(_) => None,
        None => connect_karmada(config, role).await?,
    };
    Ok((Some(local), karmada))
}

async fn find_predecessor(config: &Config) -> Result<Option<Predecessor>, String> {
    let place = ServingPlace::of_process(&config.node, &config.load_balancer_class);
    let found = Predecessor::find(&config.state_dir, place).await;
    let predecessor = found
        .map_err(|error| format!("cannot take over (stateDir {}): {error}", config.state_dir.display()))?;
    match &predecessor {
        Some(predecessor) if config.workers != 0 && config.workers != predecessor.workers() => {
            tracing::warn!(
                configured = config.workers,
                workers = predecessor.workers(),
                "the number of workers stays what it is until a start without another process to take over from"
            );
        }
        Some(_) => {}
        None => tracing::info!("there is no process to take over from"),
    }
    Ok(predecessor)
}

/// Opens the listeners beside those of traffic. `memory` is the folder in which events are kept. Returns the address of the admin server, and what starts the servers.
async fn listen(
    config: &Config,
    predecessor: &mut Option<Predecessor>,
    connection: Option<&Connection>,
    memory: Option<PathBuf>,
) -> Result<
    (SocketAddr, impl FnOnce(&EventLoop, &Capacity, &QuerySender, ScrapeQueue) -> Servers + use<>),
    String,
> {
    let (admin_listen, healthz_listen, report_listen) =
        (config.admin_listen, config.healthz_listen, config.report_listen);
    let metrics_listen = config.metrics.addr()?;
    let admin = open("admin", admin_listen, predecessor).await?;
    let address = admin.local_addr().map_err(|error| format!("admin address: {error}"))?;
    let healthz = open_optional("healthz", healthz_listen, predecessor).await?;
    let report = open_optional("report", report_listen, predecessor).await?;
    let metrics = open_optional("metrics", metrics_listen, predecessor).await?;
    let report = report::guard(report, &config.report_authorization, connection)?;
    let metrics = admin::guard_metrics(metrics, config.metrics.guard(), connection)?;
    let node = config.node.clone();
    let serve = move |app: &EventLoop, shares: &Capacity, queries: &QuerySender, scrapes: ScrapeQueue| {
        let metrics = metrics.map(|listener| {
            admin::serve_metrics(listener, queries.clone(), scrapes.clone(), &node, shares.metrics.clone())
        });
        let healthz = healthz.map(|listener| app.health().serve_pages(listener));
        let pages = LookingPages::start(&app.observer(), queries, memory.as_deref(), &node);
        let report = report.map(|listener| {
            report::serve(
                listener,
                (app.report(), app.kind_hints()),
                queries.clone(),
                &pages,
                shares.pages.clone(),
            )
        });
        let admin = admin::serve(admin, queries.clone(), scrapes, pages, &node, shares.admin.clone());
        let optional = [healthz_listen.zip(healthz), report_listen.zip(report), metrics_listen.zip(metrics)];
        Servers::new(optional.into_iter().flatten().chain([(admin_listen, admin)]).collect())
    };
    Ok((address, serve))
}

/// Takes the socket of the predecessor, or binds a new one.
async fn open(
    section: &str,
    listen: SocketAddr,
    predecessor: &mut Option<Predecessor>,
) -> Result<TcpListener, String> {
    match predecessor.as_mut().and_then(|it| it.server(listen)) {
        Some(socket) => TcpListener::from_std(socket).map_err(|error| format!("{section} address: {error}")),
        None => admin::bind(section, listen).await,
    }
}

async fn open_optional(
    section: &str,
    listen: Option<SocketAddr>,
    predecessor: &mut Option<Predecessor>,
) -> Result<Option<TcpListener>, String> {
    match listen {
        Some(listen) => open(section, listen, predecessor).await.map(Some),
        None => Ok(None),
    }
}

impl GatewayProcess {
    async fn serve(self, started: impl FnOnce(SocketAddr)) -> Exit {
        let Self { app, controller, admin, serve, queries, takeover, .. } = self;
        let (mut termination, mut reloads) = (self.termination, self.reloads);
        if takeover != Takeover::Never {
            service_manager::upgrade_on_request();
        }
        let (stop, stopped) = oneshot::channel();
        let (configs, new_configs) = mpsc::channel(1);
        let inbox = Inbox { queries, configs: new_configs, stop: stopped };
        let (left, mut has_left) = oneshot::channel();
        let started = || {
            service_manager::ready();
            started(admin);
        };
        // Boxed, since the large future would otherwise bring the stack close to its guard page.
        let mut running = Box::pin(app.run(inbox, serve, started, left));
        let apply = async |config: Arc<Config>| {
            if let Some(controller) = &controller {
                controller::reconfigure(controller, &config);
            }
            let (applied, is_applied) = oneshot::channel();
            configs.send(NewConfig { config, applied }).await.is_ok() && is_applied.await.is_ok()
        };
        // Whether a signal has requested the end; the next one does not wait.
        let (mut ended, mut asked, mut successor) = (None, false, None);
        let lame_duck = tokio::select! {
            biased;
            Ok(left_to) = &mut has_left => {
                service_manager::handed_over_to(left_to.process_id());
                successor = Some(left_to);
                Duration::ZERO
            }
            // The loop only ends on its own if it cannot continue or never began to serve.
            of_loop = &mut running => {
                ended = Some(of_loop);
                Duration::ZERO
            }
            requester = termination.requested() => {
                asked = true;
                match requester {
                    Requester::Supervisor => reloads.in_force().lame_duck,
                    Requester::Terminal => Duration::ZERO,
                }
            }
            () = elapsed(self.duration) => Duration::ZERO,
            never = reloads.follow(apply) => match never {},
        };
        // The loop ends from here on. It holds the receiver until then.
        stop.send(lame_duck).ok();
        let running = async {
            match ended {
                Some(ended) => ended,
                None => running.await,
            }
        };
        let ending = async {
            match controller {
                Some(controller) => tokio::join!(running, controller.stop()).0,
                None => running.await,
            }
        };
        finish(ending, asked, successor, termination, reloads).await
    }
}

/// Waits for the end of the loop, and then for that of the successor if this process takes over from it again. Unless a signal has `asked` for
/// the end, the first one does, and the next does not wait.
async fn finish(
    ending: impl Future<Output = Ended>,
    mut asked: bool,
    successor: Option<Arc<Successor>>,
    mut termination: Termination,
    mut reloads: Reloads,
) -> Exit {
    let (mut ending, mut deserted) = (pin!(ending), pin!(deserted(successor)));
    let ended = loop {
        tokio::select! {
            ended = &mut ending => break ended,
            () = &mut deserted, if !asked => return Exit::Unavailable,
            Requester::Supervisor | Requester::Terminal = termination.requested() => {
                if std::mem::replace(&mut asked, true) {
                    break Ended::Stopped(Drained::AtDeadline);
                }
            }
            never = reloads.refuse() => match never {},
        }
    };
    let drained = match ended {
        Ended::Stopped(drained) | Ended::HandedOver(drained) => drained,
        Ended::Failed => return Exit::Software,
        Ended::NotTakenOver => return Exit::Unavailable,
    };
    match drained {
        Drained::Completely => tracing::info!("drained"),
        Drained::AtDeadline => tracing::warn!("the drain deadline passed: open connections were closed"),
    }
    if matches!(ended, Ended::HandedOver(_)) && takeover::is_started_again() && !asked {
        // A restarted container would take over from the process that has just taken over.
        tokio::select! {
            Requester::Supervisor | Requester::Terminal = termination.requested() => {}
            () = &mut deserted => return Exit::Unavailable,
        }
    }
    Exit::Ok
}

/// Waits until the successor ends or is told to, if this process can take over from it again.
async fn deserted(successor: Option<Arc<Successor>>) {
    let Some(successor) = successor.filter(|_| takeover::is_started_again()) else {
        return std::future::pending().await;
    };
    successor.gone().await;
    // Both processes may be told to stop at once, as when the node shuts down.
    tokio::time::sleep(OWN_END).await;
    tracing::warn!(
        "the process that took over ends before this one: exiting to be started again, and to take over from it"
    );
}

async fn elapsed(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
