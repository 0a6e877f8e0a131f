//! Deadlines of one worker: a queue for those that are due a fixed time after they were set, which most are, and a heap for the
//! rest.
//!
//! Deadlines are never cancelled: the caller checks whether one still matters when it is due. That makes setting one as cheap as
//! a push.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

/// Deadlines by key.
#[derive(Debug)]
pub(crate) struct Deadlines<K> {
    usual: Duration,
    /// Sorted by deadline, since all have the same delay and were pushed in order.
    queue: VecDeque<(Instant, K)>,
    others: BinaryHeap<Reverse<(Instant, K)>>,
}

impl<K: Copy + Ord> Deadlines<K> {
    /// Creates an empty set; `usual` is the delay of most deadlines.
    pub(crate) fn new(usual: Duration) -> Self {
        Self { usual, queue: VecDeque::new(), others: BinaryHeap::new() }
    }

    /// Changes the usual delay for deadlines pushed from now on.
    pub(crate) fn set_usual(&mut self, usual: Duration) {
        self.usual = usual;
    }

    /// Sets a deadline at `now + after`, and returns it.
    pub(crate) fn push(&mut self, now: Instant, after: Duration, key: K) -> Instant {
        let due = now + after;
        let in_order = self.queue.back().is_none_or(|(last, _)| *last <= due);
        if after == self.usual && in_order {
            self.queue.push_back((due, key));
        } else {
            self.others.push(Reverse((due, key)));
        }
        due
    }

    /// The earliest deadline that still matters. Removes those before it.
    pub(crate) fn next_that(&mut self, mut matters: impl FnMut(Instant, K) -> bool) -> Option<Instant> {
        while self.queue.pop_front_if(|(due, key)| !matters(*due, *key)).is_some() {}
        while let Some(Reverse((due, key))) = self.others.peek()
            && !matters(*due, *key)
        {
            self.others.pop();
        }
        self.next()
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        let queued = self.queue.front().map(|(due, _)| *due);
        let other = self.others.peek().map(|Reverse((due, _))| *due);
        queued.into_iter().chain(other).min()
    }

    /// Removes and returns the earliest deadline if it is due by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, K)> {
        let due = self.next().filter(|due| *due <= now)?;
        if self.queue.front().is_some_and(|(first, _)| *first == due) {
            return self.queue.pop_front();
        }
        self.others.pop().map(|Reverse(first)| first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_in_the_order_of_their_moments_and_not_before() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut deadlines = Deadlines::new(second);
        for (key, after) in [(0, 1), (1, 3), (2, 1), (3, 2)] {
            deadlines.push(start + key * second, after * second, key);
        }
        let due = |deadlines: &mut Deadlines<u32>, seconds: u32| {
            let now = start + seconds * second;
            std::iter::from_fn(|| deadlines.pop(now).map(|(_, key)| key)).collect::<Vec<_>>()
        };
        assert_eq!(deadlines.next(), Some(start + second));
        assert_eq!(deadlines.next_that(|_, key| key != 0), Some(start + 3 * second));
        deadlines.push(start, second, 0);
        assert!(due(&mut deadlines, 0).is_empty());
        assert_eq!(due(&mut deadlines, 3), [0, 2]);
        assert_eq!(due(&mut deadlines, 9), [1, 3]);
        assert_eq!(deadlines.next(), None);
    }

    #[test]
    fn they_come_in_order_though_another_time_becomes_the_usual_one() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut deadlines = Deadlines::new(3 * second);
        for (key, after) in [(0, 3), (1, 1), (2, 1), (3, 5)] {
            deadlines.push(start, after * second, key);
            deadlines.set_usual(if key == 2 { 5 * second } else { second });
        }
        let order: Vec<u32> = std::iter::from_fn(|| Some(deadlines.pop(start + 9 * second)?.1)).collect();
        assert_eq!(order, [1, 2, 0, 3]);
    }
}
