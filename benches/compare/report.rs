//! What is told at the end: the figures, on the terminal and as JSON.

mod json;
mod table;

use std::collections::BTreeMap;

use crate::rows::Load;
use crate::sample::Series;
use crate::subjects::Subject;

pub(crate) use json::write as write_json;
pub(crate) use table::{print_absent, print_row, print_verdicts};

/// A row with the runs of all subjects.
#[derive(Debug)]
pub(crate) struct RowResult {
    /// The row's name.
    pub(crate) name: &'static str,
    /// What was done.
    pub(crate) load: Load,
    /// Whom ratios refer to.
    pub(crate) reference: Subject,
    /// The runs.
    pub(crate) series: BTreeMap<Subject, Series>,
}

impl RowResult {
    /// Whether any run failed.
    pub(crate) fn failed(&self) -> bool {
        self.series.values().any(|series| !series.failures.is_empty())
    }
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// In the order of the runs.
    pub(crate) rows: Vec<RowResult>,
    /// Who could not take part, and why.
    pub(crate) absent: Vec<(Subject, &'static str)>,
}
