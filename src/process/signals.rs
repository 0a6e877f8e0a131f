//! SIGTERM and SIGINT: the first asks for a drain, the second ends the process at once. SIGHUP, sent when the terminal closes, only
//! ever asks for a drain. Only SIGTERM leaves time for a lame duck: it is what kubelets and systemd send. `process::gateway` and `process::controller` wait for them; `gateway::event_loop` drains.

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

impl Termination {
    /// Takes the signals over from their default action.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub(crate) fn listen() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = if ignores_hangup(&status) { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup,
        })
    }

    /// Waits for the next of them. Cancel safe.
    pub(crate) async fn requested(&mut self) -> Requester {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let requester = tokio::select! {
            _ = self.terminate.recv() => Requester::Supervisor,
            _ = self.interrupt.recv() => Requester::Terminal,
            _ = hangup => Requester::Terminal,
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
