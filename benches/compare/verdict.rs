//! Verdicts on the marks of the rows that were run, alone and compared with an earlier run, without I/O.

use serde::{Deserialize, Serialize};

use crate::entrant::Entrant;
use crate::marks::{Mark, Outcome};
use crate::results::{Results, RowResult};
use crate::sample::Summary;

/// Mark with its outcome.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// Name of the figure, without the limit, which identifies it in the baseline.
    pub(crate) figure: String,
    /// Mark in words.
    pub(crate) mark: String,
    /// Figure, if there is one.
    pub(crate) value: Option<Summary>,
    /// Outcome of the mark.
    pub(crate) outcome: Outcome,
    /// Figure and outcome, in words.
    pub(crate) verdict: String,
    #[serde(skip)]
    judged: Mark,
}

/// Judges all marks of the rows that were run.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    results.rows.iter().flat_map(|row| judge_row(row, results.cores)).collect()
}

/// Entrants that must run again for a verdict on the row: those whose interval contains a mark.
pub(crate) fn undecided(row: &RowResult, cores: usize) -> Vec<Entrant> {
    let open = judge_row(row, cores).into_iter().filter(|verdict| verdict.outcome == Outcome::WithinNoise);
    let mut entrants: Vec<_> = open
        .flat_map(|verdict| {
            let (ours, rival) = verdict.judged.pair(row.row.scenes);
            [Some(ours), rival]
        })
        .flatten()
        .collect();
    entrants.sort_unstable();
    entrants.dedup();
    entrants
}

/// A verdict for each mark whose series of Sheave was run.
fn judge_row(row: &RowResult, cores: usize) -> Vec<Verdict> {
    let marks = row.row.marks.iter().filter(|mark| mark.can_be_judged_on(cores));
    marks.filter_map(|mark| judge_mark(*mark, row)).collect()
}

fn judge_mark(mark: Mark, row: &RowResult) -> Option<Verdict> {
    let (ours, rival) = mark.pair(row.row.scenes);
    let value = mark.value(row.series.get(&ours)?, rival.and_then(|rival| row.series.get(&rival)));
    let outcome = value.map_or(Outcome::NotMeasured, |value| mark.outcome(&value));
    let verdict = value.map_or("not measured".to_owned(), |value| mark.verdict(&value, outcome));
    let (figure, words) = mark.words(row.row.name, rival);
    Some(Verdict { figure, mark: words, value, outcome, verdict, judged: mark })
}

/// Figures of an earlier run, as written by `--json`; other fields are ignored.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Baseline {
    marks: Vec<Figure>,
}

#[derive(Clone, Debug, Deserialize)]
struct Figure {
    figure: String,
    value: Option<Summary>,
}

/// Comparison of this run's figures with those of an earlier run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Sentences about figures that are worse by more than both intervals.
    pub(crate) regressions: Vec<String>,
    /// Number of figures with an interval in both runs.
    pub(crate) compared: usize,
    /// Number of this run's figures without an interval in one of the runs.
    pub(crate) left_out: usize,
}

impl Baseline {
    /// Compares each figure with the one of the same name.
    pub(crate) fn compare(&self, verdicts: &[Verdict]) -> Comparison {
        let mut comparison = Comparison::default();
        for verdict in verdicts {
            let before = self.marks.iter().find(|before| before.figure == verdict.figure);
            let before = before.and_then(|before| before.value).filter(Summary::is_sure);
            let Some((before, now)) = before.zip(verdict.value.filter(Summary::is_sure)) else {
                comparison.left_out += 1;
                continue;
            };
            comparison.compared += 1;
            if verdict.judged.is_worse(&before, &now) {
                comparison.regressions.push(format!(
                    "{} is {:.2} ({:.2}..{:.2}), was {:.2} ({:.2}..{:.2})",
                    verdict.figure, now.median, now.low, now.high, before.median, before.low, before.high
                ));
            }
        }
        comparison
    }
}
