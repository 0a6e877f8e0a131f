//! How long to wait before writing again what others undid.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// What was not undone for so long is over.
const PEACE: Duration = Duration::from_secs(600);

/// How often others undid what we wrote. One undoing costs nothing: it may be a mistake. Two that go on wait longer and
/// longer, since each of our writes provokes the next of theirs.
#[derive(Debug, Default)]
pub(super) struct Contest {
    rounds: Backoff,
    last: Option<Instant>,
    /// This round is counted: our write is not through yet.
    open: bool,
}

impl Contest {
    /// Ours was undone, or is refused because somebody else's stands. How long to wait before the next write.
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

    /// Our write is through. Whether it ends a round.
    pub(super) fn written(&mut self) -> bool {
        std::mem::take(&mut self.open)
    }

    /// Nothing that could matter is remembered.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        !self.open && self.last.is_none_or(|last| now.saturating_duration_since(last) > PEACE)
    }

    /// More than a single undoing.
    pub(super) fn goes_on(&self) -> bool {
        self.rounds.failures() > 0
    }
}
