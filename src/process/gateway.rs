//! A gateway process: start, servers, drain and end.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use sheave_control::api::store::ControlPlane;
use sheave_control::controller::Controller;
use sheave_control::sources::connection::Connection;
use sheave_control::sources::manifests;
use sheave_dataplane::Drained;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::{connect, connect_karmada, controller};
use crate::config::Config;
use crate::exit::Exit;
use crate::gateway::capacity::Capacity;
use crate::gateway::event_loop::EventLoop;
use crate::gateway::sources::{ApiSource, SourceAdapter, Sources};
use crate::gateway::startup_log::{self, StartupInfo};
use crate::http::admin;
use crate::http::metrics::recorder;
use crate::http::metrics::scrape::ScrapeQueue;
use crate::http::report;
use crate::http::server::Server;
use crate::http::server::guarded::GuardedListener;
use crate::process::signals::{Requester, Termination};

/// Queries from the admin server that may wait for the loop.
const QUEUED_QUERIES: usize = 16;

/// Where a gateway's objects come from.
pub(crate) enum ObjectSource<'a> {
    /// A folder of manifests, or a single file; there is no controller.
    Manifests(&'a Path),
    /// The API server; the controller is another process.
    Api,
    /// The API server, with a controller in this process.
    ApiWithController,
}

impl<'a> ObjectSource<'a> {
    /// What the process does, as the status and the log name it.
    fn role(&self) -> &'static str {
        match self {
            Self::ApiWithController => "run",
            Self::Manifests(_) | Self::Api => "gateway",
        }
    }

    fn manifests(&self) -> Option<&'a Path> {
        match self {
            Self::Manifests(path) => Some(path),
            Self::Api | Self::ApiWithController => None,
        }
    }
}

/// Runs a gateway until a signal, or for `duration`. A Karmada control plane is followed by `karmada_manifests`, or else by the
/// configuration. `started` gets the admin address once
/// the first objects have been read.
pub(crate) async fn run(
    config: &Config,
    source: ObjectSource<'_>,
    karmada_manifests: Option<&Path>,
    duration: Option<Duration>,
    started: impl FnOnce(SocketAddr),
) -> Exit {
    match start(config, source, karmada_manifests).await {
        Ok(parts) => parts.serve(config, duration, started).await,
        Err(why) => {
            eprintln!("sheave: {why}");
            Exit::Unavailable
        }
    }
}

/// Everything a gateway needs, ready to run.
struct GatewayProcess {
    app: EventLoop,
    controller: Option<Controller>,
    admin: TcpListener,
    address: SocketAddr,
    healthz: Option<TcpListener>,
    /// Answers the controller until dropped.
    report: Option<Server>,
    metrics: Option<GuardedListener>,
    scrapes: ScrapeQueue,
    shares: Capacity,
    termination: Termination,
}

async fn start(
    config: &Config,
    source: ObjectSource<'_>,
    karmada_manifests: Option<&Path>,
) -> Result<GatewayProcess, String> {
    let admin = admin::bind("admin", config.admin_listen).await?;
    let address = admin.local_addr().map_err(|error| format!("admin address: {error}"))?;
    let healthz = bind_optional("healthz", config.healthz_listen).await?;
    let report = bind_optional("report", config.report_listen).await?;
    let metrics = admin::bind_metrics(&config.metrics).await?;
    let termination = Termination::listen().map_err(|error| format!("no signal handlers: {error}"))?;
    let own_metrics = recorder::install().map_err(|error| format!("metrics: {error}"))?;
    let (connection, fleet) = connections(config, &source, karmada_manifests).await?;
    let report = report::guard(report, config, connection.as_ref())?;
    let metrics = admin::guard_metrics(metrics, &config.metrics, connection.as_ref())?;
    let local = match (&source, &connection) {
        (ObjectSource::Manifests(manifests), _) => SourceAdapter::files(manifests::watch(manifests)),
        (_, Some(connection)) => SourceAdapter::Api(Box::new(ApiSource::start(connection, config))),
        (_, None) => return Err("no API server".to_owned()),
    };
    let karmada = match (karmada_manifests, &fleet) {
        (Some(manifests), _) => {
            Some(SourceAdapter::files(manifests::watch_of(ControlPlane::Karmada, manifests)))
        }
        (None, Some(fleet)) => Some(SourceAdapter::Api(Box::new(ApiSource::karmada(fleet, config)))),
        (None, None) => None,
    };
    let sources = Sources::new(local, karmada);
    let shares = Capacity::of_process(config);
    let description = |manifests: Option<&Path>, connection: &Option<Connection>| {
        let server = || Some(connection.as_ref()?.server().as_ref().to_owned());
        manifests.map(|path| path.display().to_string()).or_else(server)
    };
    let process = StartupInfo {
        role: source.role(),
        admin: address,
        source: description(source.manifests(), &connection).unwrap_or_default(),
        karmada: description(karmada_manifests, &fleet),
    };
    startup_log::gateway(&process, &shares, config);
    let mut app = EventLoop::start(config, &shares, sources)
        .map_err(|error| format!("the workers cannot start: {error}"))?;
    let controller =
        connection.filter(|_| matches!(source, ObjectSource::ApiWithController)).map(|connection| {
            Controller::start(connection, controller::options(config, Some(app.report()), fleet))
        });
    if let Some(controller) = &controller {
        app.run_beside(controller.status());
    }
    let report = report.map(|listener| report::serve(listener, app.report(), shares.pages()));
    let scrapes = ScrapeQueue::new(app.observer(), own_metrics, config.metrics.limits);
    Ok(GatewayProcess {
        app,
        controller,
        admin,
        address,
        healthz,
        report,
        metrics,
        scrapes,
        shares,
        termination,
    })
}

/// To the API server, and to the Karmada control plane, where these are not folders.
async fn connections(
    config: &Config,
    source: &ObjectSource<'_>,
    karmada_manifests: Option<&Path>,
) -> Result<(Option<Connection>, Option<Connection>), String> {
    if source.manifests().is_some() {
        return Ok((None, None));
    }
    let local = connect(config, source.role()).await?;
    let karmada = match karmada_manifests {
        Some(_) => None,
        None => connect_karmada(config, source.role()).await?,
    };
    Ok((Some(local), karmada))
}

async fn bind_optional(section: &str, listen: Option<SocketAddr>) -> Result<Option<TcpListener>, String> {
    match listen {
        Some(listen) => admin::bind(section, listen).await.map(Some),
        None => Ok(None),
    }
}

impl GatewayProcess {
    async fn serve(
        self,
        config: &Config,
        duration: Option<Duration>,
        started: impl FnOnce(SocketAddr),
    ) -> Exit {
        let Self {
            app,
            controller,
            admin,
            address,
            healthz,
            report: _report,
            metrics,
            scrapes,
            shares,
            mut termination,
        } = self;
        let (queries, inbox) = mpsc::channel(QUEUED_QUERIES);
        let _metrics = metrics.map(|listener| {
            admin::serve_metrics(listener, queries.clone(), scrapes.clone(), shares.metrics())
        });
        let server = admin::serve(admin, queries, scrapes, shares.admin());
        let _healthz = healthz.map(|listener| app.health().serve_pages(listener));
        let (stop, stopped) = oneshot::channel();
        let running = app.run(inbox, stopped, || started(address));
        let mut running = pin!(running);
        let lame_duck = tokio::select! {
            // By itself it ends only when it cannot go on, and has drained.
            _ = &mut running => {
                if let Some(controller) = controller {
                    controller.stop().await;
                }
                return Exit::Software;
            }
            requester = termination.requested() => match requester {
                Requester::Supervisor => config.timeouts.lame_duck,
                Requester::Terminal => Duration::ZERO,
            },
            () = elapsed(duration) => Duration::ZERO,
        };
        // The loop ends from here on; it holds the other end until it has.
        stop.send(lame_duck).ok();
        let ending = async {
            match controller {
                Some(controller) => tokio::join!(running, controller.stop()).0,
                None => running.await,
            }
        };
        let drained = tokio::select! {
            drained = ending => drained,
            _ = termination.requested() => Drained::AtDeadline,
        };
        drop(server);
        match drained {
            Drained::Completely => tracing::info!("drained"),
            Drained::AtDeadline => tracing::warn!("the drain deadline passed: open connections were closed"),
        }
        Exit::Ok
    }
}

async fn elapsed(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
