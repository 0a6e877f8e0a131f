//! Long-running processes: startup, termination and connections to API servers.

pub(crate) mod controller;
pub(crate) mod gateway;
mod reload;
pub(crate) mod service_manager;
mod signals;

use std::time::Duration;

use sheave_console::exit::Exit;
use sheave_control::sources::connection::Connection;
use sheave_dataplane::give_up_privileges;

use crate::config::Config;
use crate::logging;

/// How long the process may wait at its end for work that cannot be cancelled, such as a scan of a hung file
/// system.
const LAST_WORK: Duration = Duration::from_secs(1);

/// Runs the control side on this thread; workers have their own threads.
pub(crate) fn serve(config: &Config, process: impl Future<Output = Exit>) -> Exit {
    // Before any other thread starts, since each thread inherits privileges of its own.
    let confined = give_up_privileges();
    let logs = logging::init(&config.logging);
    if let Err(error) = confined {
        tracing::warn!(%error, "privileges that Sheave does not need cannot be given up");
    }
    let exit = complete(process);
    drop(logs);
    exit
}

fn complete(process: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(process);
            runtime.shutdown_timeout(LAST_WORK);
            exit
        }
        Err(error) => {
            eprintln!("sheave: cannot start the runtime of the control loop: {error}");
            Exit::Software
        }
    }
}

/// Opens a connection to the configured API server, for a process with this `role`.
///
/// # Errors
/// If the connection is misconfigured. An unreachable server is not an error.
pub(crate) async fn connect(config: &Config, role: &str) -> Result<Connection, String> {
    Connection::open_as(config.kubeconfig.as_deref(), config.context.as_deref(), role)
        .await
        .map_err(|error| error.to_string())
}

/// Opens a connection to the Karmada control plane, if one is configured.
///
/// # Errors
/// Like [`connect`].
pub(crate) async fn connect_karmada(config: &Config, role: &str) -> Result<Option<Connection>, String> {
    let Some(kubeconfig) = &config.karmada.kubeconfig else { return Ok(None) };
    let connection = Connection::open_as(Some(kubeconfig), None, role).await;
    connection.map(Some).map_err(|error| format!("karmada: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_that_hangs_does_not_keep_the_process_from_ending() {
        let (release, released) = mpsc::channel::<()>();
        let (started, has_started) = tokio::sync::oneshot::channel();
        let process = async {
            let hanging = tokio::task::spawn_blocking(move || {
                started.send(()).unwrap();
                released.recv().unwrap_err();
            });
            has_started.await.unwrap();
            drop(hanging);
            Exit::Ok
        };
        assert_eq!(complete(process), Exit::Ok);
        drop(release);
    }
}
