//! When a connection counts as idle. No byte that passes touches a clock: a sweep compares byte counts.

use std::time::{Duration, Instant};

/// The unit of idle time: fine against any timeout, and four bytes hold years of it.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// A connection is checked so many times per idle timeout: it is closed after one timeout at the earliest and three eighths more
/// at the latest, and no byte that passes has to touch a timer.
pub(super) const CHECKS: u32 = 8;

/// A moment, in ticks since the table was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u32);

impl Tick {
    /// Later than anything.
    pub(super) const NEVER: Self = Self(u32::MAX);

    /// The one of `now`, counted from `epoch`.
    pub(super) fn at(now: Instant, epoch: Instant) -> Self {
        Self(ticks(now.saturating_duration_since(epoch)))
    }

    /// How many ticks ago that was.
    pub(super) fn elapsed(self, now: Self) -> u32 {
        now.0.saturating_sub(self.0)
    }

    /// When it begins, if it counts from `epoch`.
    pub(super) fn moment(self, epoch: Instant) -> Instant {
        epoch + TICK * self.0
    }
}

/// Whole ticks in a time.
pub(super) fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / TICK.as_nanos()).unwrap_or(u32::MAX)
}

/// Since when nothing has happened on a connection, as far as its last checks know.
#[derive(Debug)]
pub(super) struct IdleClock {
    timeout: u32,
    since: Tick,
    checked: Tick,
    moved: u64,
    /// What the peers had taken from their kernels and ours.
    taken: u64,
}

impl IdleClock {
    /// A connection that begins now, and may be idle for so long.
    pub(super) fn new(now: Tick, timeout: Duration) -> Self {
        // One more, since both ends of an interval are cut to whole ticks.
        Self { timeout: ticks(timeout).saturating_add(1), since: now, checked: now, moved: 0, taken: 0 }
    }

    /// How long it may be idle, in ticks.
    pub(super) fn timeout(&self) -> u32 {
        self.timeout
    }

    /// Whether nothing has happened for longer than it may. `moved` is all that was relayed, and `taken` grows when a peer has
    /// taken something; it is asked for only if nothing was relayed since the last check.
    pub(super) fn is_over(&mut self, now: Tick, moved: u64, taken: impl FnOnce() -> u64) -> bool {
        // Others may have to be checked far more often.
        if now.0.saturating_sub(self.checked.0) < self.timeout / CHECKS / 2 {
            return false;
        }
        self.checked = now;
        if moved != self.moved {
            (self.moved, self.since) = (moved, now);
            return false;
        }
        let taken = taken();
        if taken != self.taken {
            (self.taken, self.since) = (taken, now);
            return false;
        }
        now.0.saturating_sub(self.since.0) >= self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(number: u32) -> Tick {
        Tick(number)
    }

    #[test]
    fn it_is_over_after_the_timeout_and_not_before() {
        let mut idle = IdleClock::new(tick(7), 10 * TICK);
        assert!(!idle.is_over(tick(17), 0, || 0));
        assert!(idle.is_over(tick(18), 0, || 0));
    }

    #[test]
    fn bytes_and_what_peers_take_start_it_anew() {
        let mut idle = IdleClock::new(tick(0), 10 * TICK);
        assert!(!idle.is_over(tick(11), 1, || unreachable!()));
        assert!(!idle.is_over(tick(21), 1, || 5));
        assert!(!idle.is_over(tick(31), 1, || 5));
        assert!(idle.is_over(tick(32), 1, || 5));
    }

    #[test]
    fn it_is_not_checked_more_often_than_its_timeout_needs() {
        let mut idle = IdleClock::new(tick(0), 800 * TICK);
        assert!(!idle.is_over(tick(49), 0, || unreachable!()));
        assert!(!idle.is_over(tick(50), 0, || 0));
        assert!(!idle.is_over(tick(99), 0, || unreachable!()));
        assert!(!idle.is_over(tick(100), 0, || 0));
    }

    #[test]
    fn the_longest_timeout_does_not_overflow() {
        let mut idle = IdleClock::new(tick(u32::MAX - 1), Duration::MAX);
        assert!(!idle.is_over(tick(u32::MAX), 0, || 0));
    }
}
