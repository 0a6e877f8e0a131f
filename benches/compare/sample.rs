//! Figures of single runs, and their summary over several runs, without I/O.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Amount that a load has moved.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Bytes, requests, connections or datagrams.
    pub(crate) units: u64,
    pub(crate) took: Duration,
    /// Latency of each unit, if the load waits for answers.
    pub(crate) latencies: Vec<Duration>,
    /// Datagrams or connections without an answer, where some may be lost.
    pub(crate) lost: Option<u64>,
}

impl Moved {
    /// Sum of two threads that ran at the same time.
    pub(crate) fn beside(mut self, other: Self) -> Self {
        self.units += other.units;
        self.took = self.took.max(other.took);
        self.latencies.extend(other.latencies);
        self.lost = self.lost.zip(other.lost).map(|(ours, theirs)| ours + theirs);
        self
    }
}

/// Cost between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Processor time of the watched processes, in user and kernel mode.
    pub(crate) process: Duration,
    /// Processor time of the whole machine, including interrupts and kernel threads.
    pub(crate) machine: Duration,
    /// How often a thread of the watched processes, of the client or of the server got a core.
    pub(crate) switches: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Self) {
        self.process += more.process;
        self.machine += more.machine;
        self.switches += more.switches;
    }
}

/// Scale and name of a row's figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    /// Unit of the rate.
    pub(crate) rate: &'static str,
    /// Rate units in one unit moved.
    pub(crate) rate_scale: f64,
    /// Unit of processor time per unit moved.
    pub(crate) cost: &'static str,
    /// Cost units in one second of processor time per unit moved.
    pub(crate) cost_scale: f64,
    /// Units moved per unit of costs.
    pub(crate) counted: f64,
}

/// Metric of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Metric {
    /// Units per second.
    Rate,
    /// Processor time of the proxy per unit.
    ProcessCost,
    /// Processor time of the whole machine per unit, load and servers included.
    MachineCost,
    /// Context switches of client, proxy and server per unit.
    Switches,
    /// TCP segments that the client sends per unit.
    Segments,
    /// Median latency in microseconds.
    P50,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
    /// Median latency above that of the routed path.
    Added,
    /// Datagrams or connections without an answer.
    Lost,
    /// Peak resident memory of the proxy, in KiB.
    PeakKib,
    /// Memory of the proxy per idle connection, in KiB.
    IdleKib,
    /// Frontends that refused a connection.
    Refused,
    /// Tables put in force per second.
    Swaps,
    /// Local ports of the gateway that are in TIME_WAIT at the end, towards each endpoint.
    TimeWait,
    /// Median latency of requests to another Service at the same time, in microseconds.
    OtherP50,
    /// Median of the other Service, relative to its median without load.
    OtherSlowdown,
    /// The longest that a request waited while something was done, in milliseconds.
    Standstill,
    /// Longest wait in an equally long time before the deletion.
    StandstillBefore,
}

impl Metric {
    /// All, in the order of the report.
    pub(crate) const ALL: [Self; 19] = [
        Self::Rate,
        Self::ProcessCost,
        Self::MachineCost,
        Self::Switches,
        Self::Segments,
        Self::P50,
        Self::P99,
        Self::P999,
        Self::Added,
        Self::Lost,
        Self::PeakKib,
        Self::IdleKib,
        Self::Refused,
        Self::Swaps,
        Self::TimeWait,
        Self::OtherP50,
        Self::OtherSlowdown,
        Self::Standstill,
        Self::StandstillBefore,
    ];
}

/// Figures of one run.
pub(crate) type Sample = BTreeMap<Metric, f64>;

/// Figures of a run from its amount and cost. `proxied` is false for the routed path.
pub(crate) fn of_run(moved: Moved, cost: Cost, units: Units, proxied: bool) -> Sample {
    let count = moved.units as f64;
    let cost_of = |time: Duration| time.as_secs_f64() / count * units.cost_scale;
    let mut sample = Sample::new();
    sample.insert(Metric::Rate, count / moved.took.as_secs_f64() * units.rate_scale);
    // Machine time is counted in ticks, which mean nothing for runs of a few milliseconds.
    if cost.machine >= cost.process {
        sample.insert(Metric::MachineCost, cost_of(cost.machine));
    }
    if proxied {
        sample.insert(Metric::ProcessCost, cost_of(cost.process));
    }
    sample.insert(Metric::Switches, cost.switches as f64 / count * units.counted);
    let mut latencies = moved.latencies;
    latencies.sort_unstable();
    for (metric, share) in [(Metric::P50, 0.5), (Metric::P99, 0.99), (Metric::P999, 0.999)] {
        if let Some(latency) = quantile(&latencies, share) {
            sample.insert(metric, latency.as_secs_f64() * 1e6);
        }
    }
    if let Some(lost) = moved.lost {
        sample.insert(Metric::Lost, lost as f64);
    }
    sample
}

/// The median latency in microseconds.
pub(crate) fn median(mut latencies: Vec<Duration>) -> Option<f64> {
    latencies.sort_unstable();
    quantile(&latencies, 0.5).map(|latency| latency.as_secs_f64() * 1e6)
}

/// Smallest value that at least `share` of the sorted values do not exceed.
fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Minimum confidence of the interval of a [`Summary`], if rounds are independent.
const CONFIDENCE: f64 = 0.9;

/// Number of rounds below which no interval has that confidence.
pub(crate) const ENOUGH_ROUNDS: usize = 5;

/// Several runs: their median, and its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    /// Lower end of the interval.
    pub(crate) low: f64,
    /// Upper end of the interval.
    pub(crate) high: f64,
    /// Number of runs.
    pub(crate) rounds: usize,
}

impl Summary {
    /// Summarizes values; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let rounds = values.len();
        let outside = outside(rounds);
        let (low, high) = (*values.get(outside)?, *values.get(rounds.checked_sub(outside + 1)?)?);
        let middle = rounds / 2;
        let median =
            if rounds % 2 == 1 { values[middle] } else { values[middle - 1].midpoint(values[middle]) };
        Some(Self { median, low, high, rounds })
    }

    /// Whether there were enough rounds for an interval.
    pub(crate) fn is_sure(&self) -> bool {
        self.rounds >= ENOUGH_ROUNDS
    }
}

/// Number of lowest and highest values that the interval leaves out. An interval that leaves out `k` at each end misses the median if at
/// most `k` values lie on one side of it. The probability of that is twice that of at most `k` heads in as many coin tosses, for values of
/// any distribution (order statistics).
fn outside(rounds: usize) -> usize {
    let mut exactly = 0.5_f64.powi(i32::try_from(rounds).unwrap_or(i32::MAX));
    let mut at_most = exactly;
    let mut outside = 0;
    while outside < rounds / 2 {
        exactly *= (rounds - outside) as f64 / (outside + 1) as f64;
        at_most += exactly;
        if 2.0 * at_most > 1.0 - CONFIDENCE {
            break;
        }
        outside += 1;
    }
    outside
}

/// Runs of one subject in one row. A failed run leaves a gap.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Series {
    /// Figures by round.
    pub(crate) samples: Vec<Option<Sample>>,
    /// Failures by round.
    pub(crate) failures: Vec<String>,
}

impl Series {
    pub(crate) fn summary(&self, metric: Metric) -> Option<Summary> {
        Summary::of(self.samples.iter().flatten().filter_map(|sample| sample.get(&metric).copied()))
    }

    /// Metric relative to `reference`. Runs of the same round are compared, since they had the same conditions, and the ratios are
    /// summarized.
    pub(crate) fn ratio(&self, reference: &Self, metric: Metric) -> Option<Summary> {
        let rounds = self.samples.iter().zip(&reference.samples);
        Summary::of(
            rounds.filter_map(|(ours, theirs)| {
                Some(ours.as_ref()?.get(&metric)? / theirs.as_ref()?.get(&metric)?)
            }),
        )
    }
}
