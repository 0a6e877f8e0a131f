//! Results by row and series, without I/O.

use std::collections::BTreeMap;

use crate::entrant::{Entrant, Subject};
use crate::rows::Row;
use crate::sample::{Metric, Series};

/// Row with its runs.
#[derive(Debug)]
pub(crate) struct RowResult {
    pub(crate) row: &'static Row,
    /// Runs by entrant.
    pub(crate) series: BTreeMap<Entrant, Series>,
    /// Units that arrive per second, in an open loop.
    pub(crate) arrivals: Option<f64>,
}

impl RowResult {
    /// Row without runs.
    pub(crate) fn new(row: &'static Row, entrants: &[Entrant]) -> Self {
        let series = entrants.iter().map(|entrant| (*entrant, Series::default())).collect();
        Self { row, series, arrivals: None }
    }

    /// Whether any run failed.
    pub(crate) fn failed(&self) -> bool {
        self.series.values().any(|series| !series.failures.is_empty())
    }

    /// Describes the load, with its rate in an open loop.
    pub(crate) fn describe(&self) -> String {
        let units = self.row.load.units();
        let arrivals = self.arrivals.map(|arrivals| {
            let rate = arrivals * units.rate_scale;
            format!(
                "; {rate:.1} {}, whatever is answered; latency from the time at which each was due",
                units.rate
            )
        });
        format!("{}{}", self.row.load.describe(), arrivals.unwrap_or_default())
    }

    /// Derives what a proxy adds to the median latency of the routed path in the same round, for rows in which one
    /// connection measures it.
    pub(crate) fn derive_added_latency(&mut self) {
        if !self.row.load.is_one_at_a_time() {
            return;
        }
        let direct = |entrant: &&Entrant| entrant.subject == Subject::Direct;
        let Some(direct) = self.series.keys().find(direct).and_then(|direct| self.series.get(direct)) else {
            return;
        };
        let routed: Vec<Option<f64>> = direct
            .samples
            .iter()
            .map(|sample| sample.as_ref().and_then(|sample| sample.get(&Metric::P50).copied()))
            .collect();
        for (_, series) in self.series.iter_mut().filter(|(entrant, _)| entrant.subject != Subject::Direct) {
            for (sample, routed) in series.samples.iter_mut().zip(&routed) {
                let Some((sample, routed)) = sample.as_mut().zip(*routed) else { continue };
                let Some(median) = sample.get(&Metric::P50).copied() else { continue };
                sample.insert(Metric::Added, median - routed);
            }
        }
    }
}

/// All results.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Rows in the order of the runs.
    pub(crate) rows: Vec<RowResult>,
    /// Sentences about what could not be run or had to be reduced, and why.
    pub(crate) obstacles: Vec<String>,
    /// Requested numbers of workers, in ascending order.
    pub(crate) workers: Vec<usize>,
    /// Cores that the bench may use.
    pub(crate) cores: usize,
}
