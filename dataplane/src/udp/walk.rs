//! Walk over all flows of a worker, some at a time. A flow notices a change of its frontend only when its client sends. The walk
//! finds flows in which only the endpoint sends, and flows that must end sooner than was scheduled.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Number of slots visited per turn: some tenths of a millisecond.
const LOOKED_AT: usize = 1024;

/// Minimum time between the starts of two walks, regardless of how often the table changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Position of the walk, and start of the next one.
#[derive(Debug)]
pub(super) struct FlowWalk {
    /// Slot at which the walk continues; `None` between two walks.
    next: Option<usize>,
    /// Number of the table with which the last walk began.
    table: u64,
    requested: bool,
    earliest: Instant,
}

impl FlowWalk {
    /// Creates the state for a worker without flows.
    pub(super) fn new(now: Instant, table: u64) -> Self {
        Self { next: None, table, requested: false, earliest: now }
    }

    /// Requests another walk, to begin as soon as none is in progress.
    pub(super) fn request(&mut self, now: Instant) {
        (self.requested, self.earliest) = (true, now);
    }

    /// The slots to visit in this turn.
    pub(super) fn places(&mut self, now: Instant, table: u64) -> Option<Range<usize>> {
        if self.due(table).is_some_and(|due| due <= now) {
            *self = Self { next: Some(0), table, requested: false, earliest: now + INTERVAL };
        }
        self.next.map(|first| first..first + LOOKED_AT)
    }

    /// Continues after these slots if there are `more`.
    pub(super) fn passed(&mut self, places: &Range<usize>, more: bool) {
        self.next = more.then_some(places.end);
    }

    /// When the next walk begins; `None` if one is in progress or none is needed.
    pub(super) fn due(&self, table: u64) -> Option<Instant> {
        let wanted = self.requested || self.table != table;
        (wanted && self.next.is_none()).then_some(self.earliest)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.next.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_followed_by_a_whole_walk_and_there_is_one_in_a_second() {
        let start = Instant::now();
        let mut walk = FlowWalk::new(start, 1);
        assert_eq!((walk.places(start, 1), walk.due(1)), (None, None), "nothing has changed");
        let first = walk.places(start, 2).unwrap();
        assert_eq!(first, 0..LOOKED_AT);
        walk.passed(&first, true);
        // A change during a walk is covered by the next one.
        let second = walk.places(start, 3).unwrap();
        assert_eq!(second.start, first.end);
        walk.passed(&second, false);
        assert_eq!((walk.is_under_way(), walk.places(start, 3)), (false, None));
        assert_eq!(walk.due(3), Some(start + INTERVAL));
        assert_eq!(walk.places(start + INTERVAL, 3), Some(first));
    }

    #[test]
    fn one_that_was_asked_for_does_not_wait() {
        let start = Instant::now();
        let mut walk = FlowWalk::new(start, 1);
        let places = walk.places(start, 2).unwrap();
        walk.request(start);
        walk.passed(&places, false);
        assert_eq!(walk.due(2), Some(start));
    }
}
