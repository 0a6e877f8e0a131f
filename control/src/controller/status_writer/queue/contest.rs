//! Delays before writing again what others undid.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// How long a write has to stay before a contest is over.
const PEACE: Duration = Duration::from_secs(600);

/// Count of how often others undid our writes. The first time causes no delay, because it may be a mistake. After that the delays
/// grow, because each write of ours provokes another of theirs.
#[derive(Debug, Default)]
pub(super) struct WriteContest {
    rounds: Backoff,
    last: Option<Instant>,
    /// Whether the current round is counted and our write has not succeeded yet.
    open: bool,
}

impl WriteContest {
    /// Records that our write was undone, or rejected because of another manager's. Returns the delay before the next write.
    pub(super) fn undone(&mut self, now: Instant) -> Duration {
        if self.open {
            return Duration::ZERO;
        }
        let first = self.last.is_none_or(|last| now.saturating_duration_since(last) > PEACE);
        self.last = Some(now);
        self.open = true;
        if first {
            self.rounds.reset();
            return Duration::ZERO;
        }
        self.rounds.pause(None)
    }

    /// Records that our write succeeded. Returns whether that ends a round.
    pub(super) fn written(&mut self) -> bool {
        std::mem::take(&mut self.open)
    }

    /// Whether there is nothing left to remember.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        !self.open && self.last.is_none_or(|last| now.saturating_duration_since(last) > PEACE)
    }

    /// Whether it was undone more than once.
    pub(super) fn goes_on(&self) -> bool {
        self.rounds.failures() > 0
    }
}
