//! What became of the marks of the rows that were run, alone and next to an earlier run. Pure.

use serde::{Deserialize, Serialize};

use crate::entrant::Entrant;
use crate::marks::{Mark, Outcome};
use crate::results::{Results, RowResult};
use crate::sample::Summary;

/// A mark and what became of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// What was measured, without the limit: it names the figure in the baseline.
    pub(crate) figure: String,
    /// The mark in words.
    pub(crate) mark: String,
    /// The figure, when there is one.
    pub(crate) value: Option<Summary>,
    /// What became of it.
    pub(crate) outcome: Outcome,
    /// The figure and what became of it, in words.
    pub(crate) verdict: String,
    #[serde(skip)]
    judged: Mark,
}

/// Compares the results with all marks of the rows that were run.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    results.rows.iter().flat_map(|row| judge_row(row, results.cores)).collect()
}

/// Who must run again for a verdict on the row: those whose interval holds a mark.
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

/// One verdict for each mark whose series of Sheave was run.
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

/// The figures of an earlier run, as `--json` wrote them; it writes more, which does not matter here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Baseline {
    marks: Vec<Figure>,
}

#[derive(Clone, Debug, Deserialize)]
struct Figure {
    figure: String,
    value: Option<Summary>,
}

/// How the figures of this run relate to those of an earlier one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Figures that are worse by more than both intervals, a sentence each.
    pub(crate) regressions: Vec<String>,
    /// Figures of both runs with enough rounds for an interval.
    pub(crate) compared: usize,
    /// Figures of this run for which one of the runs has no interval.
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
