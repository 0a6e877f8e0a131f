//! Counters that one thread writes and any thread reads, and enums that are the values of a metric's label.

use std::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering};

/// A number that only one thread writes, so a plain load and store suffices instead of the locked instruction of `fetch_add`.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, amount: u64) {
        self.add(amount.wrapping_neg());
    }
}

/// Upper bounds of the finest histogram's buckets: from neighbours in the same rack to beyond a retransmitted SYN.
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

/// Histogram of durations with `N` buckets and one beyond them. With fewer buckets than bounds, each covers several of the
/// finest.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    within: [Counter; N],
    beyond: Counter,
    nanoseconds: Counter,
}

/// Histogram with every bound.
pub type FineHistogram = Histogram<{ BOUNDS.len() }>;
/// Histogram for each frontend and worker, of 64 bytes: six buckets up to a second, the delay of a lost SYN, and one beyond.
pub type CoarseHistogram = Histogram<6>;

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        let within = std::array::from_fn(|_| Counter::default());
        Self { within, beyond: Counter::default(), nanoseconds: Counter::default() }
    }
}

impl<const N: usize> Histogram<N> {
    /// Number of the finest buckets per bucket.
    const WIDTH: usize = BOUNDS.len() / N;

    /// Upper bound of each bucket, with the number of durations in it (not cumulative).
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let bounds = BOUNDS.into_iter().skip(Self::WIDTH - 1).step_by(Self::WIDTH);
        bounds.zip(self.within.iter().map(Counter::get))
    }

    /// Number of durations above the last bound.
    pub fn beyond(&self) -> u64 {
        self.beyond.get()
    }

    /// Sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.get())
    }

    pub(crate) fn record(&self, took: Duration) {
        let bucket = BOUNDS.iter().position(|bound| took <= *bound);
        bucket.and_then(|index| self.within.get(index / Self::WIDTH)).unwrap_or(&self.beyond).add(1);
        self.nanoseconds.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Declares an enum whose variants are the values of a metric's label, with `ALL` in the order of the discriminants and
/// `label`.
macro_rules! labelled {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $label:literal,)+ }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[must_use]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the discriminants.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$variant),+];

            /// The value as a metric's label.
            pub fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }
        }
    };
}
pub(super) use labelled;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_first_bucket_that_holds_it() {
        let times = FineHistogram::default();
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
    fn a_coarse_bucket_is_two_fine_ones() {
        let times = CoarseHistogram::default();
        for micros in [0, 500, 501, 2_500, 1_000_000, 1_000_001, 2_500_000, 2_500_001] {
            times.record(Duration::from_micros(micros));
        }
        let micros: Vec<_> = times.buckets().map(|(bound, count)| (bound.as_micros(), count)).collect();
        let expected = [(500, 2), (2_500, 2), (10_000, 0), (50_000, 0), (250_000, 0), (1_000_000, 1)];
        assert_eq!((&*micros, times.beyond()), (&expected[..], 3));
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_counter_goes_up_and_down() {
        let counter = Counter::default();
        counter.add(3);
        counter.subtract(1);
        assert_eq!(counter.get(), 2);
    }
}
