//! Runs of a row: the requested number of rounds, and more of the series whose verdict is undecided.

use crate::entrant::Entrant;
use crate::failure::Failure;
use crate::load::pace::Pace;
use crate::results::RowResult;
use crate::rows::{ArrivalRate, Row};
use crate::run::{Setting, once};
use crate::sample::{Metric, Sample};
use crate::subjects::Installed;
use crate::topology::Topology;
use crate::verdict::undecided;

/// Number of rounds in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// Rounds of every series.
    pub(crate) least: usize,
    /// Maximum for series whose interval contains a mark.
    pub(crate) most: usize,
}

/// Environment of all rows.
pub(crate) struct Bench<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) installed: &'a [Installed],
    pub(crate) setting: &'a Setting,
    pub(crate) rounds: Rounds,
    pub(crate) workers: &'a [usize],
    pub(crate) cores: usize,
}

impl Bench<'_> {
    /// Runs a row in rounds (A B C A B C), so that changes on the machine affect all series alike.
    pub(crate) fn run(&self, row: &'static Row) -> RowResult {
        let subjects: Vec<_> = self.installed.iter().map(|installed| installed.subject).collect();
        let entrants = row.entrants(&subjects, self.workers);
        let mut result = RowResult::new(row, &entrants);
        let pace = match self.pace(row, &entrants) {
            Ok(pace) => pace,
            Err(failure) => {
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

    fn pace(&self, row: &Row, entrants: &[Entrant]) -> Result<Pace, Failure> {
        Ok(match row.open_loop {
            None => Pace::Closed,
            Some(ArrivalRate::Fixed(rate)) => Pace::Open { rate },
            Some(ArrivalRate::Share(share)) => Pace::Open { rate: self.arrivals(row, entrants, share)? },
        })
    }

    /// Arrival rate, which is the same for all entrants so that their latencies are comparable: that of the slowest one in a closed loop,
    /// times `share`.
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
