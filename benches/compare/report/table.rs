//! Table on the terminal.

use super::{ratio, short};
use crate::entrant::Entrant;

use crate::results::RowResult;
use crate::sample::{Metric, Series, Summary};
use crate::verdict::{Comparison, Verdict};

/// Prints one row: a line for each subject, followed by failures.
pub(crate) fn print_row(row: &RowResult) {
    println!("\n{}: {}", row.row.name, row.describe());
    let mut lines = vec![head(row)];
    lines.extend(row.series.iter().map(|(entrant, series)| line(row, *entrant, series)));
    print_aligned(&lines);
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

/// Column with its title and metric.
struct Column {
    title: String,
    metric: Metric,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Median,
    Spread,
    Ratio,
}

/// Columns of a row, without those that have no figures.
fn columns(row: &RowResult) -> Vec<Column> {
    let units = row.row.load.units();
    let to = if row.row.is_of_scenes() { "first".to_owned() } else { row.row.reference_name() };
    let column = |title: String, metric, kind| Column { title, metric, kind };
    let all = [
        column(units.rate.to_owned(), Metric::Rate, Kind::Median),
        column("interval".to_owned(), Metric::Rate, Kind::Spread),
        column(format!("rate/{to}"), Metric::Rate, Kind::Ratio),
        column(format!("proxy {}", units.cost), Metric::ProcessCost, Kind::Median),
        column("interval".to_owned(), Metric::ProcessCost, Kind::Spread),
        column(format!("CPU/{to}"), Metric::ProcessCost, Kind::Ratio),
        column(format!("machine {}", units.cost), Metric::MachineCost, Kind::Median),
        column("switches".to_owned(), Metric::Switches, Kind::Median),
        column("segments".to_owned(), Metric::Segments, Kind::Median),
        column("p50 us".to_owned(), Metric::P50, Kind::Median),
        column(format!("p50/{to}"), Metric::P50, Kind::Ratio),
        column("p99 us".to_owned(), Metric::P99, Kind::Median),
        column(format!("p99/{to}"), Metric::P99, Kind::Ratio),
        column("p99.9 us".to_owned(), Metric::P999, Kind::Median),
        column("added us".to_owned(), Metric::Added, Kind::Median),
        column(format!("added/{to}"), Metric::Added, Kind::Ratio),
        column("lost".to_owned(), Metric::Lost, Kind::Median),
        column("KiB/conn".to_owned(), Metric::IdleKib, Kind::Median),
        column("interval".to_owned(), Metric::IdleKib, Kind::Spread),
        column(format!("KiB/{to}"), Metric::IdleKib, Kind::Ratio),
        column("refused".to_owned(), Metric::Refused, Kind::Median),
        column("tables/s".to_owned(), Metric::Swaps, Kind::Median),
        column("TIME_WAIT/endpoint".to_owned(), Metric::TimeWait, Kind::Median),
        column("longest ms".to_owned(), Metric::Standstill, Kind::Median),
        column("interval".to_owned(), Metric::Standstill, Kind::Spread),
        column("before ms".to_owned(), Metric::StandstillBefore, Kind::Median),
        column("other p50 us".to_owned(), Metric::OtherP50, Kind::Median),
        column("to quiet".to_owned(), Metric::OtherSlowdown, Kind::Median),
        column("interval".to_owned(), Metric::OtherSlowdown, Kind::Spread),
        column("peak MiB".to_owned(), Metric::PeakKib, Kind::Median),
    ];
    let measured =
        |column: &Column| row.series.values().any(|series| series.summary(column.metric).is_some());
    all.into_iter().filter(measured).collect()
}

fn head(row: &RowResult) -> Vec<String> {
    let titles = columns(row).into_iter().map(|column| column.title);
    std::iter::once(String::new()).chain(titles).collect()
}

fn line(row: &RowResult, entrant: Entrant, series: &Series) -> Vec<String> {
    let cell = |column| cell(row, entrant, series, &column).unwrap_or("-".to_owned());
    std::iter::once(entrant.label()).chain(columns(row).into_iter().map(cell)).collect()
}

fn cell(row: &RowResult, entrant: Entrant, series: &Series, column: &Column) -> Option<String> {
    let scale = if column.metric == Metric::PeakKib { 1.0 / 1024.0 } else { 1.0 };
    match column.kind {
        Kind::Median => series.summary(column.metric).map(|summary| short(summary.median * scale)),
        Kind::Spread => {
            let Summary { low, high, .. } = series.summary(column.metric)?;
            Some(format!("{}..{}", short(low * scale), short(high * scale)))
        }
        Kind::Ratio => row.ratio(entrant, column.metric).map(ratio),
    }
}

/// Prints columns as wide as their widest cell; names are left-aligned, figures right-aligned.
fn print_aligned(lines: &[Vec<String>]) {
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or_default()
    };
    for line in lines {
        let cells = line.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("  {cell:<width$}", width = width(column)),
            _ => format!("{cell:>width$}", width = width(column)),
        });
        println!("{}", cells.collect::<Vec<_>>().join("  "));
    }
}
