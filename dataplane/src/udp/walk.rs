//! A walk over all flows of a worker, some at a time. A flow finds out by itself what has become of its frontend, but only when its
//! client sends: one that only its endpoint talks through does not, nor one that is to end sooner than was planned.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Flows that are looked at in a turn: some tenths of a millisecond.
const LOOKED_AT: usize = 1024;

/// Time from the beginning of one walk to the next, however often the table changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// How far the walk has come, and when the next one begins.
#[derive(Debug)]
pub(super) struct FlowWalk {
    /// Where it goes on; `None` between two walks.
    next: Option<usize>,
    /// The table that the last one began with.
    table: u64,
    requested: bool,
    earliest: Instant,
}

impl FlowWalk {
    /// There is nothing to look at yet.
    pub(super) fn new(now: Instant, table: u64) -> Self {
        Self { next: None, table, requested: false, earliest: now }
    }

    /// Has another walk begin as soon as none is under way.
    pub(super) fn request(&mut self, now: Instant) {
        (self.requested, self.earliest) = (true, now);
    }

    /// The places to look at in this turn.
    pub(super) fn places(&mut self, now: Instant, table: u64) -> Option<Range<usize>> {
        if self.due(table).is_some_and(|due| due <= now) {
            *self = Self { next: Some(0), table, requested: false, earliest: now + INTERVAL };
        }
        self.next.map(|first| first..first + LOOKED_AT)
    }

    /// Goes on behind these places if there are `more`.
    pub(super) fn passed(&mut self, places: &Range<usize>, more: bool) {
        self.next = more.then_some(places.end);
    }

    /// When the next walk begins; `None` if one is under way or none is needed.
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
        // What changes on the way is looked at in the next one.
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
