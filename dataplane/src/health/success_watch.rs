//! State that workers and the health task share about a suspect: whether its next success must be reported, and whether there was a
//! success between two moments.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bit that is set while the next success must be reported.
const ARMED: u64 = 1;
/// Increment per reported success.
const SUCCESS: u64 = 2;
/// Position of the watch's number, above the count of successes, which no suspect exceeds.
const NUMBER_SHIFT: u32 = 32;

/// Watch of one suspect. A single atomic, so that all threads see arming and successes in the same order.
#[derive(Debug)]
pub(super) struct SuccessWatch(AtomicU64);

/// State of a watch at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchState(u64);

impl SuccessWatch {
    /// Creates an armed watch. The number must be unique, so that a later suspect's watch is not mistaken for this one.
    pub(super) fn armed(number: u32) -> Self {
        Self(AtomicU64::new(u64::from(number) << NUMBER_SHIFT | ARMED))
    }

    /// Requests a report of the next success.
    pub(super) fn arm(&self) {
        self.0.fetch_or(ARMED, Ordering::Relaxed);
    }

    /// Whether the next success must be reported.
    pub(super) fn is_armed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & ARMED != 0
    }

    /// Records a success; returns whether to report it. Only the first one after arming is reported.
    pub(super) fn succeeded(&self) -> bool {
        let disarmed = |state| (state & ARMED != 0).then_some((state & !ARMED) + SUCCESS);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, disarmed).is_ok()
    }

    pub(super) fn state(&self) -> WatchState {
        WatchState(self.0.load(Ordering::Relaxed))
    }
}

impl WatchState {
    /// Whether there was certainly no success between this moment and the other one.
    pub(super) fn is_unbroken_until(self, other: Self) -> bool {
        self.0 & ARMED != 0 && self.0 | ARMED == other.0 | ARMED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_between_two_moments_is_seen_though_the_watch_is_armed_again() {
        let watch = SuccessWatch::armed(1);
        let before = watch.state();
        assert!(before.is_unbroken_until(watch.state()));
        assert_eq!([watch.succeeded(), watch.succeeded()], [true, false], "the first is reported");
        assert!(!before.is_unbroken_until(watch.state()));
        watch.arm();
        assert!(watch.is_armed() && !before.is_unbroken_until(watch.state()));
        assert!(watch.state().is_unbroken_until(watch.state()));
    }

    #[test]
    fn nothing_is_known_from_a_moment_on_in_which_nobody_watched() {
        let watch = SuccessWatch::armed(1);
        assert!(watch.succeeded());
        let unarmed = watch.state();
        assert!(!unarmed.is_unbroken_until(unarmed));
        watch.arm();
        assert!(!unarmed.is_unbroken_until(watch.state()));
        assert!(!SuccessWatch::armed(1).state().is_unbroken_until(SuccessWatch::armed(2).state()));
    }
}
