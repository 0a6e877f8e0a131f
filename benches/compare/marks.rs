//! The marks that Sheave is to reach, and whether it did. Pure.

use serde::Serialize;

use crate::entrant::{Entrant, Subject};
use crate::results::{Results, RowResult};
use crate::rows::ROWS;
use crate::sample::{Metric, Series, Summary};

/// With fewer cores than this, clients and servers take the second worker's core from it.
const CORES_FOR_TWO_WORKERS: usize = 4;

/// Rows on which a second worker is to show.
const SCALING: [&str; 4] = ["bulk-4", "request-1k", "connect", "udp-1200"];

/// What the marks leave to another bench.
pub(crate) const ELSEWHERE: &str =
    "pick and lookup in the table (<= 200 ns, moonshot 60 ns): cargo bench --bench pick";

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    AtLeast,
    AtMost,
}

/// With whom Sheave is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rival {
    Subject(Subject),
    /// Itself in the row's first scene.
    FirstScene,
    /// Itself with one worker.
    OneWorker,
    /// Nobody: the figure as it is.
    Nobody,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    row: &'static str,
    what: &'static str,
    metric: Metric,
    /// Units per cost, rather than cost per unit.
    inverse: bool,
    rival: Rival,
    way: Way,
    must: f64,
    moonshot: f64,
}

/// What became of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    /// The moonshot is met.
    Moonshot,
    /// The must is met.
    Met,
    /// The must is missed.
    Missed,
    /// There is no figure.
    NotMeasured,
    /// This machine can give a figure, but no verdict.
    Information,
}

/// A mark and what became of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// The mark in words.
    pub(crate) mark: String,
    /// The figure, when there is one.
    pub(crate) value: Option<Summary>,
    /// What became of it.
    pub(crate) outcome: Outcome,
    /// The figure and what became of it, in words.
    pub(crate) verdict: String,
}

/// Compares the results with all marks whose row was run.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    let mut verdicts: Vec<_> = marks().iter().filter_map(|mark| mark.judge(results)).collect();
    let scaling = SCALING.iter().filter_map(|row| results.row(row));
    verdicts.extend(scaling.filter_map(|row| judge_scaling(row, results)));
    verdicts
}

fn marks() -> Vec<Mark> {
    use Metric::{Added, IdleKib, P50, P99, P999, ProcessCost, Rate, Refused};
    use Subject::{Direct, Haproxy, Nginx};
    let mut marks = Vec::new();
    for row in ["bulk-1", "bulk-4"] {
        marks.push(Mark::at_least(row, "rate", Rate, Rival::Subject(Haproxy), 1.10, 1.25));
        marks.push(Mark::at_most(row, "CPU per GiB", ProcessCost, Rival::Subject(Haproxy), 0.80, 0.60));
        marks.push(Mark::at_least(row, "rate", Rate, Rival::Subject(Direct), 0.72, 0.85));
    }
    let haproxy = Rival::Subject(Haproxy);
    marks.extend([
        Mark::at_most("request-1k", "CPU per request", ProcessCost, haproxy, 0.80, 0.65),
        Mark::at_most("request-1k", "p99", P99, haproxy, 1.0, 0.80),
        Mark::at_most("latency", "added latency", Added, haproxy, 0.75, 0.50),
        Mark::at_most("connect", "CPU per connection", ProcessCost, haproxy, 0.90, 0.75),
        Mark::at_least("connect", "rate", Rate, haproxy, 1.0, 1.25),
    ]);
    let nginx = Rival::Subject(Nginx);
    for row in ROWS.iter().filter(|row| row.load.is_tcp() && !row.is_of_scenes()) {
        if row.name == "idle" {
            marks.push(Mark::at_most(row.name, "KiB per connection", IdleKib, nginx, 1.0, 0.5));
            continue;
        }
        marks.push(Mark::at_least(row.name, "rate", Rate, nginx, 1.0, 2.0));
        marks.push(Mark::at_most(row.name, "CPU per unit", ProcessCost, nginx, 1.0, 0.5));
    }
    for (row, must, moonshot) in [("udp-64", 1.6, 3.0), ("udp-1200", 1.6, 3.0), ("udp-gso-1200", 10.0, 20.0)]
    {
        let mark = Mark::at_least(row, "datagrams per CPU second", ProcessCost, nginx, must, moonshot);
        marks.push(Mark { inverse: true, ..mark });
    }
    let first = Rival::FirstScene;
    marks.extend([
        Mark::at_most("idle", "KiB per connection", IdleKib, haproxy, 0.50, 0.25),
        Mark::at_most("frontends", "refused connections", Refused, Rival::Nobody, 0.0, 0.0),
        Mark::at_most("frontends", "median of first connections", P50, first, 1.10, 1.0),
        Mark::at_most("affinity", "median of connections", P50, first, 1.10, 1.0),
        Mark::at_most("swap", "p99", P99, first, 1.10, 1.0),
        Mark::at_most("swap", "p99.9", P999, first, 1.10, 1.0),
    ]);
    marks
}

impl Mark {
    const fn at_least(
        row: &'static str,
        what: &'static str,
        metric: Metric,
        rival: Rival,
        must: f64,
        moonshot: f64,
    ) -> Self {
        Self { row, what, metric, inverse: false, rival, way: Way::AtLeast, must, moonshot }
    }

    const fn at_most(
        row: &'static str,
        what: &'static str,
        metric: Metric,
        rival: Rival,
        must: f64,
        moonshot: f64,
    ) -> Self {
        Self { row, what, metric, inverse: false, rival, way: Way::AtMost, must, moonshot }
    }

    fn judge(&self, results: &Results) -> Option<Verdict> {
        let row = results.row(self.row)?;
        let (ours, rival) = self.pair(row, results);
        let series = |entrant: Option<Entrant>| entrant.and_then(|entrant| row.series.get(&entrant));
        let value = match self.rival {
            Rival::Nobody => series(Some(ours)).and_then(|series| series.summary(self.metric)),
            _ => series(Some(ours)).zip(series(rival)).and_then(|(ours, theirs)| self.ratio(ours, theirs)),
        };
        let suffix = if self.rival == Rival::Nobody { "" } else { "x" };
        let sign = if self.way == Way::AtLeast { ">=" } else { "<=" };
        let whose = rival.map_or(String::new(), |rival| format!(" {}", rival.label()));
        let mark = format!("{} {} {sign} {}{suffix}{whose}", row.row.name, self.what, bound(self.must));
        let outcome = value.map_or(Outcome::NotMeasured, |value| self.outcome(value.median));
        let verdict = value.map_or("not measured".to_owned(), |value| self.words(value, suffix, outcome));
        Some(Verdict { mark, value, outcome, verdict })
    }

    /// Whose figure is compared, and with whose.
    fn pair(&self, row: &RowResult, results: &Results) -> (Entrant, Option<Entrant>) {
        let usual = results.usual(Subject::Sheave);
        let last = Entrant { scene: row.row.last_scene(), ..usual };
        match self.rival {
            Rival::Subject(subject) => (usual, Some(results.usual(subject))),
            Rival::FirstScene => (last, Some(row.row.reference(last))),
            Rival::OneWorker => (usual, Some(Entrant { workers: 1, ..usual })),
            Rival::Nobody => (last, None),
        }
    }

    fn ratio(&self, ours: &Series, theirs: &Series) -> Option<Summary> {
        if self.inverse { theirs.ratio(ours, self.metric) } else { ours.ratio(theirs, self.metric) }
    }

    fn holds(&self, value: f64, limit: f64) -> bool {
        match self.way {
            Way::AtLeast => value >= limit,
            Way::AtMost => value <= limit,
        }
    }

    fn outcome(&self, value: f64) -> Outcome {
        if !self.holds(value, self.must) {
            return Outcome::Missed;
        }
        if self.holds(value, self.moonshot) { Outcome::Moonshot } else { Outcome::Met }
    }

    fn words(&self, value: Summary, suffix: &str, outcome: Outcome) -> String {
        let Summary { median, min, max } = value;
        let figure = format!("{median:.2}{suffix} ({min:.2}..{max:.2})");
        match outcome {
            Outcome::Missed if self.must > 0.0 => {
                let percent = (median - self.must).abs() / self.must * 100.0;
                // Missed is missed, by however little.
                let digits = usize::from(percent < 1.0);
                format!("{figure} not met, by {percent:.digits$} %")
            }
            Outcome::Missed => format!("{figure} not met"),
            Outcome::Moonshot => format!("{figure} moonshot met"),
            _ => format!("{figure} met (moonshot {}{suffix})", bound(self.moonshot)),
        }
    }
}

/// The gain of the second worker, where clients and servers leave it a core.
fn judge_scaling(row: &RowResult, results: &Results) -> Option<Verdict> {
    let entrant = |workers| Entrant { workers, ..results.usual(Subject::Sheave) };
    let (two, one) = (row.series.get(&entrant(2))?, row.series.get(&entrant(1))?);
    let mark = Mark::at_least(row.row.name, "rate", Metric::Rate, Rival::OneWorker, 1.7, 1.9);
    let words = format!("{} rate, 2 workers >= 1.70x 1 worker", row.row.name);
    if results.cores >= CORES_FOR_TWO_WORKERS {
        let value = two.ratio(one, Metric::Rate);
        let outcome = value.map_or(Outcome::NotMeasured, |value| mark.outcome(value.median));
        let verdict = value.map_or("not measured".to_owned(), |value| mark.words(value, "x", outcome));
        return Some(Verdict { mark: words, value, outcome, verdict });
    }
    let value = two.ratio(one, Metric::ProcessCost);
    let cost = value.map_or("not measured".to_owned(), |value| {
        format!("CPU per unit {:.2}x ({:.2}..{:.2})", value.median, value.min, value.max)
    });
    let verdict = format!("no verdict on {} cores, the load leaves no room; {cost}", results.cores);
    Some(Verdict { mark: words, value, outcome: Outcome::Information, verdict })
}

/// A limit as it is written: two places, and no more of nought than it takes.
fn bound(limit: f64) -> String {
    if limit == 0.0 { "0".to_owned() } else { format!("{limit:.2}") }
}
