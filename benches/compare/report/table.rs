//! The table on the terminal.

use super::{Results, RowResult};
use crate::marks::Verdict;
use crate::sample::{Metric, Series, Summary};
use crate::subjects::Subject;

/// Says who does not take part.
pub(crate) fn print_absent(results: &Results) {
    for (subject, why) in &results.absent {
        println!("ABSENT: {} {why}", subject.name());
    }
}

/// Prints one row: a line for each subject, then what failed.
pub(crate) fn print_row(row: &RowResult) {
    println!("\n{}: {}", row.name, row.load.describe());
    let mut lines = vec![head(row)];
    lines.extend(row.series.iter().map(|(subject, series)| line(row, *subject, series)));
    print_aligned(&lines);
    for (subject, series) in &row.series {
        for failure in &series.failures {
            println!("FAILED: {}, {}", subject.name(), failure);
        }
    }
}

/// Prints the marks.
pub(crate) fn print_verdicts(verdicts: &[Verdict]) {
    if !verdicts.is_empty() {
        println!("\nmarks for sheave (median of the ratios of each round, lowest..highest)");
    }
    for Verdict { mark, verdict, .. } in verdicts {
        println!("{mark}: {verdict}");
    }
}

/// A column: its title and how it is filled.
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

/// The columns of a row; those for which no run has a figure are left out.
fn columns(row: &RowResult) -> Vec<Column> {
    let units = row.load.units();
    let to = row.reference.name();
    let column = |title: String, metric, kind| Column { title, metric, kind };
    let all = [
        column(units.rate.to_owned(), Metric::Rate, Kind::Median),
        column("lowest..highest".to_owned(), Metric::Rate, Kind::Spread),
        column(format!("rate/{to}"), Metric::Rate, Kind::Ratio),
        column(format!("proxy {}", units.cost), Metric::ProcessCost, Kind::Median),
        column("lowest..highest".to_owned(), Metric::ProcessCost, Kind::Spread),
        column(format!("CPU/{to}"), Metric::ProcessCost, Kind::Ratio),
        column(format!("machine {}", units.cost), Metric::MachineCost, Kind::Median),
        column("p50 us".to_owned(), Metric::P50, Kind::Median),
        column("p99 us".to_owned(), Metric::P99, Kind::Median),
        column(format!("p99/{to}"), Metric::P99, Kind::Ratio),
        column("lost".to_owned(), Metric::Lost, Kind::Median),
        column("KiB/conn".to_owned(), Metric::IdleKib, Kind::Median),
        column("lowest..highest".to_owned(), Metric::IdleKib, Kind::Spread),
        column(format!("KiB/{to}"), Metric::IdleKib, Kind::Ratio),
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

fn line(row: &RowResult, subject: Subject, series: &Series) -> Vec<String> {
    let cells = columns(row).into_iter().map(|column| cell(row, series, &column).unwrap_or("-".to_owned()));
    std::iter::once(subject.name().to_owned()).chain(cells).collect()
}

fn cell(row: &RowResult, series: &Series, column: &Column) -> Option<String> {
    let scale = if column.metric == Metric::PeakKib { 1.0 / 1024.0 } else { 1.0 };
    match column.kind {
        Kind::Median => series.summary(column.metric).map(|summary| short(summary.median * scale)),
        Kind::Spread => {
            let Summary { min, max, .. } = series.summary(column.metric)?;
            Some(format!("{}..{}", short(min * scale), short(max * scale)))
        }
        Kind::Ratio => {
            let reference = row.series.get(&row.reference)?;
            series.ratio(reference, column.metric).map(|ratio| format!("{:.2}x", ratio.median))
        }
    }
}

/// Three significant digits, which is more than the runs are worth.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Every column as wide as its widest cell; names to the left, figures to the right.
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
