//! How the gateway and its Services are, in one line: what is worst comes first.

use ratatui::style::Style;
use ratatui::text::Line;

use super::app::{App, Silence};
use super::fit::Parts;
use super::look::{Look, bold};
use super::table::Severity;
use crate::views::escape::visible;
use crate::views::numbers::count;

/// Says whether the gateway answers and takes new connections, how many Services are in each state, and what else is wrong. Without color
/// the words are enough.
pub(super) fn line(app: &App, look: Look, width: u16) -> Line<'static> {
    let mut parts = Parts::new(width);
    if let Some(Silence { since, why }) = &app.silence {
        let text = format!("NOT ANSWERING since {since}: {why}; retrying");
        return parts.sentence(&text, look.of(Severity::Bad)).line();
    }
    if app.connecting {
        return Line::from("waiting for the gateway");
    }
    let model = app.model();
    let process = &model.process;
    match (process.draining, process.lame_duck) {
        (true, _) => parts.add("DRAINING", bold().patch(look.of(Severity::Bad))),
        (_, true) => parts.add("ABOUT TO DRAIN", bold().patch(look.of(Severity::Warning))),
        _ => &mut parts,
    };
    let states = model.states;
    let well = states.broken + states.degraded == 0 && process.problems == 0 && model.wrong.is_empty();
    let serving = if well && states.ok > 0 { look.well() } else { Style::new() };
    parts.add("Services:", Style::new());
    let mut separator = " ";
    for (number, name, style) in [
        (states.broken, "broken", look.of(Severity::Bad)),
        (states.degraded, "degraded", look.of(Severity::Warning)),
        (states.ok, "serving", serving),
    ] {
        if number > 0 || name == "serving" {
            parts.join(separator, format!("{} {name}", count(number as f64)), style);
            separator = ", ";
        }
    }
    for (number, one, many) in [
        (process.problems, "Problem", "Problems"),
        (process.unhealthy_endpoints, "unhealthy endpoint", "unhealthy endpoints"),
    ] {
        let name = if number == 1 { one } else { many };
        if number > 0 {
            parts.add(format!("{} {name}", count(number as f64)), look.of(Severity::Warning));
        }
    }
    // The first sentence is the word above.
    let said = usize::from(process.draining || process.lame_duck);
    if let Some(wrong) = model.wrong.get(said) {
        parts.sentence(&visible(wrong), look.of(Severity::Warning));
    }
    parts.line()
}
