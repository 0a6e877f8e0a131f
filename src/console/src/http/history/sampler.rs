//! Samples of all Services, from the counters of their frontends, in a fixed amount of memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Weak;

use sheave_dataplane::Observer;
use sheave_dataplane::counters::FrontendCounters;
use sheave_model::FrontendAddr;

use super::series::{BUCKETS, Reading, SAMPLE_BYTES, Sample, Series};
use crate::views::traffic::{TrafficCounts, TrafficKey};

/// Memory for stored samples, in bytes. Beyond it, all Services are remembered for half as long.
const MEMORY: usize = 16 << 20;
/// How often both spans are halved at most: some minutes and some hours are kept.
const MOST_HALVED: u32 = 4;

/// Counters of a frontend at the last sample.
#[derive(Debug)]
struct LastCounts {
    /// Identifies the counters, since a frontend that was gone counts from zero.
    counters: Weak<[FrontendCounters]>,
    counts: TrafficCounts,
    connected: [u64; BUCKETS],
}

/// Samples of all Services and of all traffic.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    last: HashMap<FrontendAddr, LastCounts>,
    series: BTreeMap<TrafficKey, Series>,
    total: Series,
    /// Number of short samples since the start.
    taken: u32,
    /// How often both spans are halved.
    halved: u32,
}

impl Sampler {
    /// Adds a sample of each Service.
    pub(super) fn sample(&mut self, observer: &Observer) {
        let mut samples = BTreeMap::<TrafficKey, Sample>::new();
        let active = observer.table();
        let mut last = HashMap::with_capacity(self.last.len());
        for frontend in active.table().frontends() {
            let Some(counters) = observer.counters(frontend.addr) else { continue };
            let Some(now) = read(&counters) else { continue };
            let before = self.last.remove(&frontend.addr).filter(|it| it.counters.ptr_eq(&counters));
            let sample = difference(before.as_ref(), &now);
            if sample != Sample::default() || before.is_none() {
                samples.entry(TrafficKey::from(&frontend.service)).or_default().add(&sample);
            }
            let (counts, connected) = now;
            last.insert(frontend.addr, LastCounts { counters, counts, connected });
        }
        self.last = last;
        self.store(&samples);
    }

    fn store(&mut self, samples: &BTreeMap<TrafficKey, Sample>) {
        let mut total = Sample::default();
        samples.values().for_each(|sample| total.add(sample));
        self.total.push(self.taken, &total);
        for (key, sample) in samples {
            if !self.series.contains_key(key) && *sample != Sample::default() {
                self.series.insert(key.clone(), Series::default());
            }
        }
        let quiet = Sample::default();
        for (key, series) in &mut self.series {
            series.push(self.taken, samples.get(key).unwrap_or(&quiet));
        }
        self.taken += 1;
        self.forget();
    }

    /// Keeps the samples within the memory that they may take.
    fn forget(&mut self) {
        let mut stored = self.forget_old();
        while stored * SAMPLE_BYTES > MEMORY && self.halved < MOST_HALVED {
            self.halved += 1;
            stored = self.forget_old();
        }
        if stored * SAMPLE_BYTES < MEMORY / 3 {
            self.halved = self.halved.saturating_sub(1);
        }
    }

    /// Forgets what is beyond the spans that are kept; returns the number of samples for which there is room.
    fn forget_old(&mut self) -> usize {
        self.total.forget(self.taken, 1);
        let (taken, parts) = (self.taken, self.parts());
        self.series.retain(|_, series| {
            series.forget(taken, parts);
            !series.is_empty()
        });
        self.series.values().map(Series::room).sum()
    }

    /// Divisor of the part of both spans that is kept.
    fn parts(&self) -> u32 {
        1 << self.halved
    }

    /// Short and long samples of a Service, or of all traffic. A Service without any traffic has samples of zero.
    pub(super) fn read(&self, key: Option<&TrafficKey>) -> [Vec<Reading>; 2] {
        match key {
            None => self.total.read(self.taken, 1),
            Some(key) => match self.series.get(key) {
                Some(series) => series.read(self.taken, self.parts()),
                None => Series::default().read(self.taken, self.parts()),
            },
        }
    }
}

impl Sample {
    /// Adds a sample of the same time.
    fn add(&mut self, other: &Self) {
        let open = self.open + other.open;
        self.append(other);
        self.open = open;
    }
}

type FrontendReading = (TrafficCounts, [u64; BUCKETS]);

/// Reads the counters of a frontend; `None` if it has just left.
fn read(counters: &Weak<[FrontendCounters]>) -> Option<FrontendReading> {
    let workers = counters.upgrade()?;
    let (mut counts, mut connected) = (TrafficCounts::default(), [0; BUCKETS]);
    counts.add_frontend(&workers);
    for tcp in workers.iter().filter_map(FrontendCounters::as_tcp) {
        let beyond = tcp.connect_times.beyond();
        let within = tcp.connect_times.buckets().map(|(_, count)| count);
        connected.iter_mut().zip(within.chain([beyond])).for_each(|(sum, count)| *sum += count);
    }
    Some((counts, connected))
}

fn difference(before: Option<&LastCounts>, (now, connected): &FrontendReading) -> Sample {
    let none = (TrafficCounts::default(), [0; BUCKETS]);
    let (was, times) = before.map_or((&none.0, &none.1), |it| (&it.counts, &it.connected));
    Sample {
        opened: now.opened.saturating_sub(was.opened),
        open: now.open,
        client_bytes: now.client_bytes.saturating_sub(was.client_bytes),
        endpoint_bytes: now.endpoint_bytes.saturating_sub(was.endpoint_bytes),
        errors: now.errors.saturating_sub(was.errors),
        connected: std::array::from_fn(|bucket| connected[bucket].saturating_sub(times[bucket])),
    }
}

#[cfg(test)]
mod tests {
    use sheave_control::api::store::ServiceKey;

    use super::*;

    fn key(number: usize) -> TrafficKey {
        TrafficKey { object: ServiceKey::new("shop", &format!("web-{number}")), listener: None }
    }

    fn busy() -> Sample {
        Sample { opened: 1, ..Sample::default() }
    }

    #[test]
    fn ten_thousand_busy_services_are_remembered_for_less_long_in_the_same_memory() {
        let mut sampler = Sampler::default();
        let all: BTreeMap<TrafficKey, Sample> = (0..10_000).map(|number| (key(number), busy())).collect();
        for _ in 0..200 {
            sampler.store(&all);
        }
        let stored: usize = sampler.series.values().map(Series::room).sum();
        assert!(stored * SAMPLE_BYTES <= MEMORY, "{stored} samples of {SAMPLE_BYTES} bytes");
        let [short, _] = sampler.read(Some(&key(3)));
        assert!((45..360).contains(&short.len()) && short.iter().all(|it| it.opened == 1), "{}", short.len());
        assert_eq!(sampler.read(None)[0].len(), 200);
    }

    #[test]
    fn a_service_that_has_been_quiet_for_a_day_is_forgotten() {
        let mut sampler = Sampler::default();
        sampler.store(&BTreeMap::from([(key(1), busy())]));
        assert_eq!(sampler.series.len(), 1);
        for _ in 0..8_700 {
            sampler.store(&BTreeMap::new());
        }
        assert_eq!(sampler.series.len(), 0);
        assert_eq!(sampler.read(Some(&key(1)))[0], vec![Reading::default(); 360]);
    }
}
