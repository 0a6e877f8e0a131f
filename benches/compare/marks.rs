//! The marks that Sheave is to reach, and whether it did. Pure.

use serde::Serialize;

use crate::report::Results;
use crate::sample::Metric;
use crate::subjects::Subject;

/// Which way is better.
#[derive(Clone, Copy, Debug)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// What the limit is compared with.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// Sheave's figure as it is, in this unit.
    Own(&'static str),
    /// Sheave's figure divided by that of the row's reference.
    Ratio,
}

struct Mark {
    row: &'static str,
    what: &'static str,
    metric: Metric,
    figure: Figure,
    limit: Limit,
}

const MARKS: [Mark; 7] = [
    Mark::ratio("bulk-1", "rate", Metric::Rate, Limit::AtLeast(1.0)),
    Mark::ratio("bulk-1", "CPU per GiB", Metric::ProcessCost, Limit::AtMost(1.0)),
    Mark::ratio("bulk-4", "rate", Metric::Rate, Limit::AtLeast(1.0)),
    Mark::ratio("bulk-4", "CPU per GiB", Metric::ProcessCost, Limit::AtMost(1.0)),
    Mark::ratio("request-1k", "CPU per request", Metric::ProcessCost, Limit::AtMost(0.95)),
    Mark::ratio("connect", "CPU per connection", Metric::ProcessCost, Limit::AtMost(1.05)),
    Mark {
        row: "idle",
        what: "memory per connection",
        metric: Metric::IdleKib,
        figure: Figure::Own("KiB"),
        limit: Limit::AtMost(4.0),
    },
];

impl Mark {
    const fn ratio(row: &'static str, what: &'static str, metric: Metric, limit: Limit) -> Self {
        Self { row, what, metric, figure: Figure::Ratio, limit }
    }
}

/// A mark and what became of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// The mark in words.
    pub(crate) mark: String,
    /// The figure, when there is one.
    pub(crate) value: Option<f64>,
    /// `met`, `not met` or `not measured`, after the figure in words.
    pub(crate) verdict: String,
}

/// Compares the results with all marks whose row was run.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    MARKS.iter().filter_map(|mark| mark.judge(results)).collect()
}

impl Mark {
    fn judge(&self, results: &Results) -> Option<Verdict> {
        let row = results.rows.iter().find(|row| row.name == self.row)?;
        let series = row.series.get(&Subject::Sheave);
        let (value, suffix, whose) = match self.figure {
            Figure::Own(unit) => {
                let summary = series.and_then(|series| series.summary(self.metric));
                (summary, format!(" {unit}"), String::new())
            }
            Figure::Ratio => {
                let peer = row.series.get(&row.reference);
                let ratio = series.zip(peer).and_then(|(ours, theirs)| ours.ratio(theirs, self.metric));
                (ratio, "x".to_owned(), format!(" {}", row.reference.name()))
            }
        };
        let (sign, bound) = match self.limit {
            Limit::AtLeast(bound) => (">=", bound),
            Limit::AtMost(bound) => ("<=", bound),
        };
        let verdict = match value {
            None => "not measured".to_owned(),
            Some(value) => {
                let met = match self.limit {
                    Limit::AtLeast(bound) => value.median >= bound,
                    Limit::AtMost(bound) => value.median <= bound,
                };
                let verdict = if met { "met" } else { "not met" };
                format!("{:.2}{suffix} ({:.2}..{:.2}) {verdict}", value.median, value.min, value.max)
            }
        };
        let mark = format!("{} {} {sign} {bound:.2}{suffix}{whose}", self.row, self.what);
        Some(Verdict { mark, value: value.map(|value| value.median), verdict })
    }
}
