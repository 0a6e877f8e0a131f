//! SIGTERM and SIGINT: the first asks for a drain, the second ends the process at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals that ask a process to end.
#[derive(Debug)]
pub(crate) struct Termination {
    terminate: Signal,
    interrupt: Signal,
}

impl Termination {
    /// Takes the signals over from their default action.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next of them. Cancel safe.
    pub(crate) async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
