//! When something is due: a queue for what is due a fixed time after it was noted, which most of it is, and a heap for the rest.
//!
//! Nothing is ever taken back: whoever is told looks whether it still matters. That makes noting a deadline as cheap as a push.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

/// Deadlines of things with keys.
#[derive(Debug)]
pub(crate) struct Deadlines<K> {
    usual: Duration,
    /// In the order of their deadlines, since that is the order in which they were noted.
    queue: VecDeque<(Instant, K)>,
    others: BinaryHeap<Reverse<(Instant, K)>>,
}

impl<K: Copy + Ord> Deadlines<K> {
    /// Most things are due so long after they were noted.
    pub(crate) fn new(usual: Duration) -> Self {
        Self { usual, queue: VecDeque::new(), others: BinaryHeap::new() }
    }

    /// Most things are due so long after they are noted, from now on.
    pub(crate) fn set_usual(&mut self, usual: Duration) {
        self.usual = usual;
    }

    /// Notes that something is due so long after `now`; gives that moment.
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

    /// When the first is due that still matters. Those before it are forgotten.
    pub(crate) fn next_that(&mut self, mut matters: impl FnMut(Instant, K) -> bool) -> Option<Instant> {
        while self.queue.pop_front_if(|(due, key)| !matters(*due, *key)).is_some() {}
        while let Some(Reverse((due, key))) = self.others.peek()
            && !matters(*due, *key)
        {
            self.others.pop();
        }
        self.next()
    }

    /// When the first is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let queued = self.queue.front().map(|(due, _)| *due);
        let other = self.others.peek().map(|Reverse((due, _))| *due);
        queued.into_iter().chain(other).min()
    }

    /// Takes the first that is due by `now`, with its moment.
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
