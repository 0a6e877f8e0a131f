//! Waiting longer each time. It must not know what is waited for.

use std::time::{Duration, Instant};

/// The first wait.
pub(super) const FIRST: Duration = Duration::from_secs(1);
/// The longest, beside jitter.
pub(super) const LONGEST: Duration = Duration::from_secs(300);

/// How often something went wrong in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// One failure more: how long to wait, up to a quarter more than `longest`, so that many who failed together do not come
    /// back together.
    pub(super) fn next(&mut self, longest: Duration) -> Duration {
        let wait = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        wait.mul_f64(1.0 + fastrand::f64() / 4.0)
    }

    pub(super) fn failures(self) -> u32 {
        self.failures
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// How often others undid what we wrote. One undoing costs nothing: it may be a mistake. Two that go on wait longer and
/// longer, since each of our writes provokes the next of theirs.
#[derive(Clone, Copy, Debug, Default)]
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
        let first = self.last.is_none_or(|last| now.saturating_duration_since(last) > 2 * LONGEST);
        self.last = Some(now);
        self.open = true;
        if first {
            self.rounds.reset();
            return Duration::ZERO;
        }
        self.rounds.next(LONGEST)
    }

    /// Our write is through. Whether it ends a round.
    pub(super) fn written(&mut self) -> bool {
        std::mem::take(&mut self.open)
    }

    /// Nothing that could matter is remembered.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        !self.open && self.last.is_none_or(|last| now.saturating_duration_since(last) > 2 * LONGEST)
    }

    /// More than a single undoing.
    pub(super) fn goes_on(&self) -> bool {
        self.rounds.failures() > 0
    }
}
