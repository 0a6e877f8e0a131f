//! Running a gateway as a process: admin server, signals, start and end. What it does in between is `app`'s.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use sheave_control::source::files::{self, FileWatch};
use sheave_dataplane::Drained;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::admin;
use crate::app::{self, App};
use crate::config::Config;
use crate::exit::Exit;
use crate::signal::Termination;

/// Questions from the admin server that may wait for the loop.
const QUESTIONS: usize = 16;

/// Runs a gateway on a folder of manifests until a signal, or for `duration`. `started` is told the admin address once
/// the first objects have been read.
pub(crate) async fn run(
    config: &Config,
    manifests: &Path,
    duration: Option<Duration>,
    started: impl FnOnce(SocketAddr),
) -> Exit {
    match start(config, manifests).await {
        Ok(parts) => parts.serve(duration, started).await,
        Err(why) => {
            eprintln!("sheave: {why}");
            Exit::Unavailable
        }
    }
}

/// Everything a gateway needs, ready to run.
struct Parts {
    app: App,
    source: FileWatch,
    admin: TcpListener,
    address: SocketAddr,
    healthz: Option<TcpListener>,
    termination: Termination,
}

async fn start(config: &Config, manifests: &Path) -> Result<Parts, String> {
    for setting in config.without_effect() {
        tracing::warn!(setting, "this setting has no effect in this version");
    }
    let admin = admin::bind("admin", config.admin_listen).await?;
    let address = admin.local_addr().map_err(|error| format!("admin address: {error}"))?;
    let healthz = match config.healthz_listen {
        Some(listen) => Some(admin::bind("healthz", listen).await?),
        None => None,
    };
    let termination = Termination::listen().map_err(|error| format!("no signal handlers: {error}"))?;
    let own_metrics = app::install_metrics().map_err(|error| format!("metrics: {error}"))?;
    let app =
        App::start(config, own_metrics).map_err(|error| format!("the workers cannot start: {error}"))?;
    Ok(Parts { app, source: files::watch(manifests), admin, address, healthz, termination })
}

impl Parts {
    async fn serve(self, duration: Option<Duration>, started: impl FnOnce(SocketAddr)) -> Exit {
        let Self { app, source, admin, address, healthz, mut termination } = self;
        let (questions, inbox) = mpsc::channel(QUESTIONS);
        let server = tokio::spawn(admin::serve(admin, questions));
        let _healthz = healthz.map(|listener| app.health().serve_pages(listener));
        let (stop, stopped) = oneshot::channel();
        let running = app.run(source, inbox, stopped, || started(address));
        let mut running = pin!(running);
        tokio::select! {
            _ = &mut running => return Exit::Software,
            () = termination.requested() => {}
            () = elapsed(duration) => {}
        }
        // The loop drains from here on; it holds the other end until it has ended.
        stop.send(()).ok();
        let drained = tokio::select! {
            drained = running => drained,
            () = termination.requested() => Drained::AtDeadline,
        };
        server.abort();
        match drained {
            Drained::Completely => tracing::info!("drained; bye"),
            Drained::AtDeadline => tracing::warn!("connections were still open and have been cut"),
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
