//! Final report: on the terminal, as JSON and as Markdown.

mod circumstances;
mod json;
mod markdown;
mod terminal;

use std::fs;
use std::path::Path;

use crate::failure::{During, Failure};
use crate::sample::Summary;

pub(crate) use circumstances::Circumstances;
pub(crate) use json::document as json;
pub(crate) use markdown::text as markdown;
pub(crate) use terminal::{print_comparison, print_row, print_verdicts};

/// Writes `text` to `file`; `-` is stdout.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    if file == Path::new("-") {
        print!("\n{text}");
        return Ok(());
    }
    fs::write(file, text).during(format!("write {}", file.display()))
}

/// Formats three significant digits, which is more than the precision of the runs.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats a ratio with its interval.
fn ratio(ratio: Summary) -> String {
    format!("{:.2}x ({:.2}..{:.2})", ratio.median, ratio.low, ratio.high)
}
