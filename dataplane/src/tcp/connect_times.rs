//! How long endpoints took to answer connects: a histogram that one worker writes and anybody reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets: from neighbours in the same rack to beyond a SYN that was lost and sent again.
const BOUNDS: [Duration; 13] = [
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
];

/// The times of one worker.
#[derive(Debug, Default)]
pub struct ConnectTimes {
    /// By bound.
    within: [AtomicU64; BOUNDS.len()],
    beyond: AtomicU64,
    nanoseconds: AtomicU64,
}

impl ConnectTimes {
    /// How many took as long as each bound at most, and longer than the one before.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        BOUNDS.into_iter().zip(self.within.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// How many took longer than the last bound.
    pub fn beyond(&self) -> u64 {
        self.beyond.load(Ordering::Relaxed)
    }

    /// How long all together took.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    pub(super) fn record(&self, took: Duration) {
        let bucket = BOUNDS.iter().zip(&self.within).find(|(bound, _)| took <= **bound);
        increase(bucket.map_or(&self.beyond, |(_, count)| count), 1);
        increase(&self.nanoseconds, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// A plain load and store: there is a single writer, so the locked instruction of `fetch_add` buys nothing.
pub(super) fn increase(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_first_bucket_that_holds_it() {
        let times = ConnectTimes::default();
        for millis in [0, 1, 2, 2_500, 2_501] {
            times.record(Duration::from_millis(millis));
        }
        let filled: Vec<_> = times.buckets().filter(|(_, count)| *count > 0).collect();
        let millis = Duration::from_millis;
        let expected = [
            (Duration::from_micros(100), 1),
            (millis(1), 1),
            (Duration::from_micros(2_500), 1),
            (millis(2_500), 1),
        ];
        assert_eq!(filled, expected);
        assert_eq!((times.beyond(), times.sum()), (1, millis(5_004)));
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS.is_sorted_by(|one, next| one < next));
    }
}
