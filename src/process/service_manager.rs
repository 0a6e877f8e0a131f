//! Notifications to a service manager (sd_notify(3)), and its request for an upgrade: SIGUSR2 starts another process that takes
//! over, with the binary and configuration that are installed then.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// State of this process: one of these constants, or the ID of the successor that it has started.
static PHASE: AtomicI32 = AtomicI32::new(NOT_READY);
const NOT_READY: i32 = 0;
const READY: i32 = -1;
/// Another process has taken over.
const HANDED_OVER: i32 = -2;

fn enter(phase: i32) {
    if PHASE.load(Ordering::Relaxed) != HANDED_OVER {
        PHASE.store(phase, Ordering::Relaxed);
    }
}

/// Reports that this process is ready.
pub(crate) fn ready() {
    enter(READY);
    notify("READY=1");
}

/// Reports that the configuration is being reloaded. Passes the signal on to a successor that is starting, which may have read the
/// configuration before.
pub(crate) fn reloading() {
    match PHASE.load(Ordering::Relaxed) {
        READY => notify_reloading(),
        NOT_READY | HANDED_OVER => {}
        successor => {
            let sent = Pid::from_raw(successor).map(|successor| kill_process(successor, Signal::HUP));
            if let Some(Err(error)) = sent {
                tracing::debug!(%error, successor, "the process that is to take over has ended");
            }
        }
    }
}

/// Reports that the configuration has been reloaded.
pub(crate) fn reloaded() {
    if PHASE.load(Ordering::Relaxed) == READY {
        notify("READY=1");
    }
}

/// Reports that another process is now the main process. This one may continue for a while.
pub(crate) fn handed_over_to(process: i32) {
    enter(HANDED_OVER);
    notify(&format!("MAINPID={process}\nREADY=1"));
}

/// Starts a successor whenever SIGUSR2 arrives.
pub(crate) fn upgrade_on_request() {
    let mut requests = match signal(SignalKind::user_defined2()) {
        Ok(requests) => requests,
        Err(error) => {
            tracing::warn!(%error, "SIGUSR2 cannot ask for an upgrade");
            return;
        }
    };
    tokio::spawn(async move {
        let mut asked = requests.recv().await.is_some();
        while asked {
            notify_reloading();
            asked = tokio::select! {
                error = failed_successor() => {
                    if PHASE.load(Ordering::Relaxed) == HANDED_OVER {
                        // The successor has served, and handed over itself.
                        return;
                    }
                    tracing::error!(error, "no other process has taken over: this one goes on");
                    ready();
                    requests.recv().await.is_some()
                }
                again = requests.recv() => {
                    // The earlier successor is not killed, since it may just be taking over.
                    tracing::warn!("the other process has not taken over yet: starting another one");
                    again.is_some()
                }
            };
        }
    });
}

/// Runs the command line of this process again. Returns why the successor did not take over, once it has ended.
async fn failed_successor() -> String {
    match start_successor() {
        Ok(mut successor) => {
            let process = successor.id().and_then(|process| i32::try_from(process).ok());
            enter(process.unwrap_or(NOT_READY));
            match successor.wait().await {
                Ok(status) => format!("it has ended: {status}"),
                Err(error) => error.to_string(),
            }
        }
        Err(error) => format!("it cannot be started: {error}"),
    }
}

fn start_successor() -> io::Result<Child> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().ok_or(io::ErrorKind::NotFound)?;
    let takeover = OsString::from("--takeover");
    let arguments: Vec<OsString> = arguments.filter(|it| *it != takeover).collect();
    let successor = Command::new(program).args(arguments).arg(takeover).spawn()?;
    tracing::info!(process = successor.id(), "started another process, which is to take over");
    Ok(successor)
}

fn notify_reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
}

/// Sends a state to the service manager, if there is one. It may not listen.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return };
    let addr = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = addr.and_then(|addr| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &addr));
    if let Err(error) = sent {
        tracing::debug!(%error, state, "the service manager cannot be told");
    }
}
