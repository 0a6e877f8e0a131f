//! Figures on the terminal.

use super::markdown::{cell, ratios};
use super::short;
use crate::results::RowResult;
use crate::sample::{Metric, Series};
use crate::verdict::{Comparison, Verdict};

/// Prints one row: figures of each series and their ratios to the reference, followed by failures.
pub(crate) fn print_row(row: &RowResult) {
    println!("\n{}: {}", row.row.name, row.describe());
    for (entrant, series) in &row.series {
        println!("  {}: {}{}", entrant.label(), cell(row, series), rest(row, series));
        let reference = row.row.reference(*entrant);
        if reference != *entrant && row.series.contains_key(&reference) {
            println!("    to {}: {}", reference.label(), ratios(row, *entrant, reference));
        }
    }
    for (entrant, series) in &row.series {
        for failure in &series.failures {
            println!("FAILED: {}, {}", entrant.label(), failure);
        }
    }
}

/// Prints the marks.
pub(crate) fn print_verdicts(verdicts: &[Verdict]) {
    if !verdicts.is_empty() {
        println!("\nmarks for sheave (median of the ratios of each round, and its interval)");
    }
    for Verdict { mark, verdict, .. } in verdicts {
        println!("{mark}: {verdict}");
    }
}

/// Prints regressions since the baseline.
pub(crate) fn print_comparison(comparison: &Comparison) {
    let Comparison { regressions, compared, left_out } = comparison;
    println!("\n{compared} figures compared with the baseline, {left_out} without an interval in both runs");
    regressions.iter().for_each(|regression| println!("REGRESSION: {regression}"));
}

/// Figures that only the terminal shows: the whole machine's CPU, context switches, segments, memory.
fn rest(row: &RowResult, series: &Series) -> String {
    let named = [
        (Metric::MachineCost, "machine", row.row.load.units().cost, 1.0),
        (Metric::Switches, "switches", "", 1.0),
        (Metric::Segments, "segments", "", 1.0),
        (Metric::PeakKib, "peak", "MiB", 1.0 / 1024.0),
    ];
    let parts = named.iter().filter_map(|(metric, name, unit, scale)| {
        let figure = short(series.summary(*metric)?.median * scale);
        Some(format!(", {name} {figure} {unit}").trim_end().to_owned())
    });
    parts.collect()
}
