//! Server-sent event as text.

use std::fmt::Write as _;

use serde::Serialize;

/// Formats an event of the HTML standard (9.2.6, "Interpreting an event stream"). JSON from serde contains no line
/// breaks.
pub(super) fn event(name: &str, id: Option<&str>, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    let mut text = String::with_capacity(data.len() + 64);
    if let Some(id) = id {
        // Writing to a String cannot fail.
        writeln!(text, "id: {id}").unwrap_or_default();
    }
    write!(text, "event: {name}\ndata: {data}\n\n").unwrap_or_default();
    text
}
