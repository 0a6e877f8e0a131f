//! Samples of one Service: an hour of short ones, and a day of long ones. Stretches without traffic take no memory.

use std::collections::VecDeque;

use sheave_dataplane::counters::CoarseHistogram;

use super::compact::Compact;

/// Seconds of a short sample, and how many of them are kept: an hour.
pub(super) const SHORT: Span = Span { seconds: 10, kept: 360 };
/// Seconds of a long sample, and how many of them are kept: a day.
pub(super) const LONG: Span = Span { seconds: 600, kept: 144 };

/// Length of samples, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) seconds: u32,
    pub(super) kept: u32,
}

/// Buckets of connect times: those of a frontend's histogram, and one beyond.
pub(super) const BUCKETS: usize = 7;

/// Upper bound of a bucket in seconds; -1 for the one beyond.
pub(super) fn bound(bucket: u8) -> f64 {
    let bounds = CoarseHistogram::default();
    let bounds = bounds.buckets().map(|(bound, _)| bound.as_secs_f64());
    bounds.into_iter().nth(bucket.into()).unwrap_or(-1.0)
}

/// Traffic of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) opened: u64,
    /// Open at the end of the sample.
    pub(super) open: u64,
    pub(super) client_bytes: u64,
    pub(super) endpoint_bytes: u64,
    pub(super) errors: u64,
    /// Connect times of endpoints by bucket.
    pub(super) connected: [u64; BUCKETS],
}

impl Sample {
    /// Adds a sample that follows.
    pub(super) fn append(&mut self, next: &Self) {
        self.opened += next.opened;
        self.open = next.open;
        self.client_bytes += next.client_bytes;
        self.endpoint_bytes += next.endpoint_bytes;
        self.errors += next.errors;
        self.connected.iter_mut().zip(next.connected).for_each(|(sum, more)| *sum += more);
    }

    /// Whether nothing happened, apart from connections that are open.
    fn is_quiet(&self) -> bool {
        Self { open: 0, ..*self } == Self::default()
    }

    /// The bucket in which this part of the connect times ends, from 0; `None` if nothing was connected.
    pub(super) fn quantile(&self, part: f64) -> Option<usize> {
        let all: u64 = self.connected.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "a quantile of buckets")]
        let wanted = (all as f64 * part).ceil().max(1.0);
        let mut sum = 0;
        let reached = |count: &u64| {
            sum += count;
            #[expect(clippy::cast_precision_loss, reason = "a quantile of buckets")]
            let sum = sum as f64;
            sum >= wanted
        };
        self.connected.iter().position(reached).filter(|_| all > 0)
    }
}

/// A stored sample.
#[derive(Clone, Copy, Debug)]
struct Stored {
    /// Number of the sample since the start.
    number: u32,
    counts: [Compact; 5],
    /// Buckets of the median and the 99th percentile of connect times; [`NO_TIME`] if nothing was connected.
    times: [u8; 2],
}

/// No connect time.
const NO_TIME: u8 = u8::MAX;

/// A sample as it is read: rounded, and with quantiles in place of connect times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) opened: u64,
    pub(super) open: u64,
    pub(super) client_bytes: u64,
    pub(super) endpoint_bytes: u64,
    pub(super) errors: u64,
    /// Buckets of the median and the 99th percentile of connect times.
    pub(super) times: [Option<u8>; 2],
}

impl Stored {
    fn new(number: u32, sample: &Sample) -> Self {
        let Sample { opened, open, client_bytes, endpoint_bytes, errors, .. } = *sample;
        let time = |part| sample.quantile(part).and_then(|it| u8::try_from(it).ok()).unwrap_or(NO_TIME);
        Self {
            number,
            counts: [opened, open, client_bytes, endpoint_bytes, errors].map(Compact::from),
            times: [0.5, 0.99].map(time),
        }
    }

    fn read(&self) -> Reading {
        let [opened, open, client_bytes, endpoint_bytes, errors] = self.counts.map(u64::from);
        let times = self.times.map(|bucket| Some(bucket).filter(|it| *it != NO_TIME));
        Reading { opened, open, client_bytes, endpoint_bytes, errors, times }
    }
}

/// Samples of one length, without the quiet ones.
#[derive(Clone, Debug, Default)]
struct Ring(VecDeque<Stored>);

impl Ring {
    /// Stores a sample, unless it says nothing new.
    fn push(&mut self, number: u32, sample: &Sample) {
        let open = self.0.back().map_or(0, |last| u64::from(last.counts[1]));
        if !sample.is_quiet() || u64::from(Compact::from(sample.open)) != open {
            self.0.push_back(Stored::new(number, sample));
        }
    }

    /// Drops samples before this number. The last one of them stays while connections that it counts are open.
    fn drop_before(&mut self, first: u32) {
        while let Some(oldest) = self.0.front()
            && oldest.number < first
        {
            let next = self.0.get(1).map_or(u32::MAX, |next| next.number);
            if next > first && u64::from(oldest.counts[1]) > 0 {
                return;
            }
            self.0.pop_front();
        }
        if self.0.len() * 2 < self.0.capacity() {
            self.0.shrink_to_fit();
        }
    }

    /// The samples from number `first` to `end`, exclusive, with the quiet ones.
    fn read(&self, first: u32, end: u32) -> Vec<Reading> {
        let mut stored = self.0.iter().peekable();
        let mut open = 0;
        while let Some(earlier) = stored.next_if(|it| it.number < first) {
            open = earlier.counts[1].into();
        }
        let mut reading = |number| {
            let here = stored.next_if(|it| it.number == number);
            let reading = here.map_or(Reading { open, ..Reading::default() }, Stored::read);
            open = reading.open;
            reading
        };
        (first..end).map(&mut reading).collect()
    }
}

/// Samples of one Service.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    short: Ring,
    long: Ring,
    /// Sum of the short samples that the next long one covers.
    sum: Sample,
}

/// Samples per long one.
const SHORT_IN_LONG: u32 = LONG.seconds / SHORT.seconds;

impl Series {
    /// Adds the short sample of this number, counted from 0.
    pub(super) fn push(&mut self, number: u32, sample: &Sample) {
        self.short.push(number, sample);
        self.sum.append(sample);
        if (number + 1).is_multiple_of(SHORT_IN_LONG) {
            let sum = std::mem::take(&mut self.sum);
            self.long.push(number / SHORT_IN_LONG, &sum);
        }
    }

    /// Forgets what is older than the parts of both spans that are kept.
    pub(super) fn forget(&mut self, end: u32, parts: u32) {
        self.short.drop_before(end.saturating_sub(SHORT.kept / parts));
        self.long.drop_before((end / SHORT_IN_LONG).saturating_sub(LONG.kept / parts));
    }

    /// Number of samples for which there is room.
    pub(super) fn room(&self) -> usize {
        self.short.0.capacity() + self.long.0.capacity()
    }

    /// Whether there is nothing to remember.
    pub(super) fn is_empty(&self) -> bool {
        self.short.0.is_empty() && self.long.0.is_empty() && self.sum == Sample::default()
    }

    /// Short and long samples, of which there were `end` short ones since the start.
    pub(super) fn read(&self, end: u32, parts: u32) -> [Vec<Reading>; 2] {
        let long_end = end / SHORT_IN_LONG;
        [
            self.short.read(end.saturating_sub(SHORT.kept / parts), end),
            self.long.read(long_end.saturating_sub(LONG.kept / parts), long_end),
        ]
    }
}

/// Bytes that a stored sample takes.
pub(super) const SAMPLE_BYTES: usize = size_of::<Stored>();

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(opened: u64, open: u64) -> Sample {
        Sample { opened, open, ..Sample::default() }
    }

    #[test]
    fn quiet_samples_take_no_room_and_are_read_nevertheless() {
        let mut series = Series::default();
        for number in 0..100 {
            series.push(number, &if number == 7 { busy(3, 2) } else { busy(0, u64::from(number > 7) * 2) });
        }
        assert_eq!(series.short.0.len(), 1);
        let [short, long] = series.read(100, 1);
        assert_eq!((short.len(), long.len()), (100, 1));
        assert_eq!((short[6], short[7].opened, short[8].opened), (Reading::default(), 3, 0));
        assert_eq!((short[99].open, long[0].opened, long[0].open), (2, 3, 2));
    }

    #[test]
    fn an_hour_and_a_day_are_kept_and_open_connections_outlive_them() {
        let mut series = Series::default();
        for number in 0..20_000 {
            series.push(number, &if number == 0 { busy(1, 1) } else { busy(0, 1) });
            series.forget(number + 1, 1);
        }
        let [short, long] = series.read(20_000, 1);
        assert_eq!((short.len(), long.len()), (360, 144));
        assert!(short.iter().chain(&long).all(|reading| (reading.opened, reading.open) == (0, 1)));
        assert_eq!((series.short.0.len(), series.long.0.len()), (1, 1));
        for number in 20_000..40_000 {
            series.push(number, &busy(0, 0));
            series.forget(number + 1, 1);
        }
        assert!(series.is_empty());
    }

    #[test]
    fn quantiles_are_the_buckets_in_which_they_fall() {
        let mut sample = Sample { connected: [98, 1, 0, 0, 0, 0, 1], ..Sample::default() };
        assert_eq!([0.5, 0.98, 0.99, 1.0].map(|part| sample.quantile(part)), [0, 0, 1, 6].map(Some));
        sample.connected = [0; BUCKETS];
        assert_eq!(sample.quantile(0.5), None);
    }
}
