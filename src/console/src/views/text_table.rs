//! Text tables with aligned columns.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::views::escape::visible;

/// Formats rows, with each column as wide as its widest cell, and control characters made visible.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect();
    let mut widths = Vec::new();
    for row in &rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            // Writing to a String cannot fail.
            write!(line, "  {cell:<width$}").unwrap_or_default();
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Text of a cell, or a dash if it is empty.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}
