//! SIGTERM and SIGINT: the first requests a drain, the second ends the process at once. SIGHUP requests a drain if the terminal of the
//! process was closed. Otherwise it makes `reload` read the configuration again, or ends a process without one. Only SIGTERM, which
//! kubelets and systemd send, allows time for a lame duck. `process::gateway` and `process::controller` wait for the signals;
//! `gateway::event_loop` drains.

use std::fs::File;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that request the end of the process.
#[derive(Debug)]
pub(crate) struct Termination {
    terminate: Signal,
    interrupt: Signal,
    /// `None` after the first request, or under nohup(1). A closed terminal can send SIGHUP twice, from the kernel and the shell, which
    /// must not count as a second request.
    hangup: Option<Signal>,
    meaning: Hangup,
}

/// Origin of a request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Requester {
    /// SIGTERM: load balancers need time to notice.
    Supervisor,
    /// SIGINT or SIGHUP: a user waits at a terminal, or has left.
    Terminal,
}

/// Meaning of SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// Ignored, as requested by nohup(1).
    Ignored,
    /// Ends the process.
    Ends,
    /// Reloads the configuration, or ends the process if its terminal is gone.
    ReadsAgain { at_terminal: bool },
}

impl Hangup {
    /// Meaning for this process; `reads_again` is whether it can reload its configuration.
    pub(crate) fn of_process(reads_again: bool) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        match reads_again {
            _ if ignores_hangup(&status) => Self::Ignored,
            true => Self::ReadsAgain { at_terminal: has_terminal() },
            false => Self::Ends,
        }
    }

    /// Whether a SIGHUP requests the end. When a terminal is closed, the kernel detaches it from all processes of its session before it
    /// sends the signal (__tty_hangup() in drivers/tty/tty_io.c); so it does when the session's shell ends.
    pub(crate) fn asks_for_the_end(self) -> bool {
        match self {
            Self::Ignored => false,
            Self::Ends => true,
            Self::ReadsAgain { at_terminal } => at_terminal && !has_terminal(),
        }
    }
}

/// Whether the process has a controlling terminal (tty(4)).
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

impl Termination {
    /// Replaces the default actions of the signals.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub(crate) fn listen(meaning: Hangup) -> io::Result<Self> {
        let hangup = if meaning == Hangup::Ignored { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup,
            meaning,
        })
    }

    /// Waits for the next request. Cancel safe.
    pub(crate) async fn requested(&mut self) -> Requester {
        let hangup = async {
            while let Some(hangup) = &mut self.hangup
                && hangup.recv().await.is_some()
            {
                if self.meaning.asks_for_the_end() {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        let requester = tokio::select! {
            _ = self.terminate.recv() => Requester::Supervisor,
            _ = self.interrupt.recv() => Requester::Terminal,
            () = hangup => Requester::Terminal,
        };
        // The handler stays installed, so further signals are ignored.
        self.hangup = None;
        requester
    }
}

/// Whether the process was started with SIGHUP ignored, according to its `/proc/self/status` (proc(5): a hexadecimal mask whose lowest
/// bit is signal 1).
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_read_from_the_status() {
        assert!(ignores_hangup("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!ignores_hangup(""));
    }
}
