//! SIGTERM and SIGINT: the first asks for a drain, the second ends the process at once. SIGHUP asks for a drain if it says that the
//! terminal of the process was closed; else it asks `reload` to read the configuration again, and ends only what has none. Only SIGTERM
//! leaves time for a lame duck: it is what kubelets and systemd send. `process::gateway` and `process::controller` wait for them;
//! `gateway::event_loop` drains.

use std::fs::File;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a process to end.
#[derive(Debug)]
pub(crate) struct Termination {
    terminate: Signal,
    interrupt: Signal,
    /// None once something was asked for, or under nohup(1). A closed terminal can send it twice, from the kernel and
    /// from the shell, without anybody being in a hurry.
    hangup: Option<Signal>,
    meaning: Hangup,
}

/// Who asks for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Requester {
    /// SIGTERM: whoever routes to this process has to notice that it ends.
    Supervisor,
    /// SIGINT or SIGHUP: somebody waits at a terminal, or is gone.
    Terminal,
}

/// What SIGHUP means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// Nothing: nohup(1) asked for that.
    Ignored,
    /// The end.
    Ends,
    /// The configuration is to be read again, unless the terminal is gone that the process was started at.
    ReadsAgain { at_terminal: bool },
}

impl Hangup {
    /// For a process that can read its configuration again, or not.
    pub(crate) fn of_process(reads_again: bool) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        match reads_again {
            _ if ignores_hangup(&status) => Self::Ignored,
            true => Self::ReadsAgain { at_terminal: has_terminal() },
            false => Self::Ends,
        }
    }

    /// Whether one that has come asks for the end. Before the kernel says by a signal that a terminal is closed, it takes it from all
    /// processes of its session (__tty_hangup() in drivers/tty/tty_io.c); so does the end of the shell that leads the session.
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
    /// Takes the signals over from their default action.
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

    /// Waits for the next of them. Cancel safe.
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
        // The handler stays, so further ones do nothing.
        self.hangup = None;
        requester
    }
}

/// Whether the process was started with SIGHUP ignored, by its `/proc/self/status` (proc(5): a mask in hexadecimal,
/// in which the lowest bit is signal 1).
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
