//! All runs of a row: as many rounds as were asked for, and more of those series that a verdict waits for.

use crate::entrant::Entrant;
use crate::failure::Failure;
use crate::load::pace::Pace;
use crate::results::RowResult;
use crate::rows::Row;
use crate::run::{Setting, once};
use crate::sample::{Metric, Sample};
use crate::subjects::Installed;
use crate::topology::Topology;
use crate::verdict::undecided;

/// How many rounds a row has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// Every series has these.
    pub(crate) least: usize,
    /// Series whose interval holds a mark have so many at most.
    pub(crate) most: usize,
}

/// What all rows run on.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) installed: &'a [Installed],
    pub(crate) setting: &'a Setting,
    pub(crate) rounds: Rounds,
    pub(crate) workers: &'a [usize],
    pub(crate) cores: usize,
}

impl Bench<'_> {
    /// A B C A B C: what changes on the machine in the course of the bench meets all series alike.
    pub(crate) fn run(&self, row: &'static Row) -> RowResult {
        let subjects: Vec<_> = self.installed.iter().map(|installed| installed.subject).collect();
        let entrants = row.entrants(&subjects, self.workers);
        let mut result = RowResult::new(row, &entrants);
        let pace = match row.open_loop.map(|share| self.arrivals(row, &entrants, share)) {
            None => Pace::Closed,
            Some(Ok(rate)) => Pace::Open { rate },
            Some(Err(failure)) => {
                let failures = result.series.values_mut().map(|series| &mut series.failures);
                failures.for_each(|failures| failures.push(format!("no arrival rate: {failure}")));
                return result;
            }
        };
        result.arrivals = pace.rate();
        let mut running = entrants;
        for round in 1..=self.rounds.most {
            for entrant in &running {
                let outcome = self.once(row, *entrant, pace);
                let Some(series) = result.series.get_mut(entrant) else { continue };
                match outcome {
                    Ok(sample) => {
                        let refused = sample.get(&Metric::Refused).copied().filter(|refused| *refused > 0.0);
                        let words = refused.map(|n| format!("round {round}: {n} frontends refused"));
                        series.failures.extend(words);
                        series.samples.push(Some(sample));
                    }
                    Err(failure) => {
                        series.samples.push(None);
                        series.failures.push(format!("round {round}: {failure}"));
                    }
                }
            }
            if round >= self.rounds.least {
                let undecided = undecided(&result, self.cores);
                running.retain(|entrant| undecided.contains(entrant));
            }
        }
        result.derive_added_latency();
        result
    }

    fn once(&self, row: &Row, entrant: Entrant, pace: Pace) -> Result<Sample, Failure> {
        let program = self.installed.iter().find(|installed| installed.subject == entrant.subject);
        let program = program.ok_or_else(|| Failure::program(entrant.subject.name(), "is not there"))?;
        once(self.topology, entrant, program, row.load, pace, &self.setting.times(row.length))
    }

    /// The same for all entrants, so that their latencies can be compared: what the slowest of them does in a closed loop, times `share`.
    fn arrivals(&self, row: &Row, entrants: &[Entrant], share: f64) -> Result<f64, Failure> {
        let closed = Row { load: row.load.closed(), ..*row };
        let mut slowest = f64::INFINITY;
        for entrant in entrants {
            let sample = self.once(&closed, *entrant, Pace::Closed)?;
            slowest = sample.get(&Metric::Rate).copied().unwrap_or_default().min(slowest);
        }
        Ok(share * slowest / row.load.units().rate_scale)
    }
}
