//! Screen of `sheave top`: designed for 80 columns and 24 lines. A wider one has more columns, and a lower one fewer lines.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::app::{ALL_ROWS, App};
use super::fit::{self, Parts, shortened};
use super::layout::{SizedColumn, fitting};
use super::look::{Look, bold};
use super::pane::Pane;
use super::state_line;
use super::table::{Cell, Item, STATE, Severity, columns};
use crate::arguments::TopRows;
use crate::views::escape::visible;
use crate::views::numbers::{bytes, count, rate, short_count};

/// Parts of the screen, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Title,
    State,
    Totals,
    Tabs,
    Header,
    /// Takes the lines that are left.
    Rows,
    Note,
    Keys,
}

/// The parts, each with the height of a screen that has room for it.
const TABLE: [(Part, u16); 8] = [
    (Part::Title, 7),
    (Part::State, 1),
    (Part::Totals, 10),
    (Part::Tabs, 8),
    (Part::Header, 3),
    (Part::Rows, 2),
    (Part::Note, 6),
    (Part::Keys, 4),
];

/// The same for a text in place of the rows.
const PANE: [(Part, u16); 4] = [(Part::Title, 2), (Part::State, 7), (Part::Rows, 1), (Part::Keys, 3)];

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, look: Look) {
    let area = frame.area();
    if app.pane.is_some() {
        return draw_pane(frame, app, look);
    }
    let places = places(&TABLE, area);
    let rows = places.iter().find(|(part, _)| *part == Part::Rows);
    app.fit(rows.map_or(0, |(_, place)| place.height).into());
    let shown = fitting(app, area.width);
    for (part, place) in places {
        let line = match part {
            Part::Title => title(app, look, area.width),
            Part::State => state_line::line(app, look, area.width),
            Part::Totals => totals(app, area.width),
            Part::Tabs => tabs(app, area.width),
            Part::Header => header(app, &shown),
            Part::Rows => {
                frame.render_widget(Paragraph::new(body(app, &shown, look)), place);
                continue;
            }
            Part::Note => note(app, look, area.width),
            Part::Keys => keys(app, area.width),
        };
        frame.render_widget(line, place);
    }
}

/// Draws a text over the rows. How the gateway is stays in sight.
fn draw_pane(frame: &mut Frame<'_>, app: &mut App, look: Look) {
    let area = frame.area();
    for (part, place) in places(&PANE, area) {
        let state = (part == Part::State).then(|| state_line::line(app, look, area.width));
        let Some(pane) = &mut app.pane else { return };
        let line = match (part, state) {
            (_, Some(state)) => state,
            (Part::Rows, _) => {
                let lines = pane.in_sight(place.width, place.height);
                let lines: Vec<Line<'static>> = lines.iter().map(|line| Line::from(line.clone())).collect();
                frame.render_widget(Paragraph::new(lines), place);
                continue;
            }
            (Part::Keys, _) => pane_keys(pane, area.width),
            _ => pane_title(pane, look, area.width),
        };
        frame.render_widget(line, place);
    }
}

fn pane_title(pane: &Pane, look: Look, width: u16) -> Line<'static> {
    let (title, failure) = pane.title();
    let mut parts = Parts::new(width);
    parts.sentence(&title, bold());
    if let Some(why) = failure {
        parts.sentence(&visible(&why), look.of(Severity::Bad));
    }
    parts.line()
}

fn pane_keys(pane: &Pane, width: u16) -> Line<'static> {
    let mut parts = Parts::new(width);
    parts.add("q back", Style::new());
    if let Some((first, last, all)) = pane.place() {
        parts.add(format!("j k scroll, {first}-{last} of {all}"), Style::new());
    }
    if pane.request().is_some() {
        for key in ["r ask again", "Enter explain", "t trace"] {
            parts.add(key, Style::new());
        }
    }
    parts.line()
}

/// Places of the parts for which there is room.
fn places(parts: &[(Part, u16)], area: Rect) -> Vec<(Part, Rect)> {
    let parts: Vec<Part> =
        parts.iter().filter(|(_, height)| *height <= area.height).map(|(part, _)| *part).collect();
    let rows = area.height.saturating_sub(parts.len().saturating_sub(1) as u16);
    let mut y = area.y;
    let place = |part: Part| {
        let height = if part == Part::Rows { rows } else { 1 };
        let place = Rect { y, height, ..area };
        y += height;
        (part, place)
    };
    parts.into_iter().map(place).collect()
}

fn title(app: &App, look: Look, width: u16) -> Line<'static> {
    let node = fit::without_middle(&visible(&app.model().process.node), 40);
    let mut parts = Parts::new(width);
    parts.add("sheave top", bold()).add(node, Style::new());
    match (&app.silence, app.connecting, app.is_frozen()) {
        (Some(_), ..) => parts.add("not live", look.of(Severity::Bad)),
        (None, true, _) => parts.add("connecting", Style::new()),
        (None, false, true) => parts.add("FROZEN", bold()),
        (None, false, false) => parts.add("live", Style::new()),
    };
    let (found, all) = (count(app.items.len() as f64), count(app.all as f64));
    match app.filter.is_empty() {
        true => parts.add(format!("{all} rows"), Style::new()),
        false => parts
            .add(format!("{found} of {all} rows match"), Style::new())
            .sentence(&visible(&app.filter), Style::new()),
    };
    parts.line()
}

fn totals(app: &App, width: u16) -> Line<'static> {
    let total = app.model().total.traffic;
    let mut parts = Parts::new(width);
    for text in [
        format!("open {}", short_count(total.open)),
        format!("new {}/s", rate(total.opened_per_second)),
        format!("in {}/s", bytes(total.client_bytes_per_second)),
        format!("out {}/s", bytes(total.endpoint_bytes_per_second)),
        format!("datagrams {}/s", rate(total.datagrams_per_second)),
        format!("errors {}/s", rate(total.errors_per_second)),
    ] {
        parts.add(text, Style::new());
    }
    parts.line()
}

fn tabs(app: &App, width: u16) -> Line<'static> {
    let mut parts = Parts::new(width);
    for rows in ALL_ROWS {
        let name = match rows {
            TopRows::Services => "Services",
            TopRows::Endpoints => "Endpoints",
            TopRows::Clusters => "Clusters",
            TopRows::Clients => "Clients",
        };
        let chosen = rows == app.rows;
        let text = if chosen { format!("[{name}]") } else { format!(" {name} ") };
        parts.join("", text, if chosen { bold() } else { Style::new() });
    }
    parts.sentence(&format!("by {}", app.order.describe(app.rows)), Style::new());
    parts.line()
}

fn header(app: &App, shown: &[SizedColumn]) -> Line<'static> {
    let sorted = &columns(app.rows)[app.order.column];
    let title = |(column, width): &SizedColumn| {
        let style = bold().add_modifier(Modifier::UNDERLINED);
        let style = if *column == sorted { style } else { Style::new() };
        [Span::styled(fit::cell(column.title, *width, column.cell), style), Span::raw(" ")]
    };
    Line::from_iter(shown.iter().flat_map(title)).style(Style::new().add_modifier(Modifier::REVERSED))
}

fn body(app: &App, shown: &[SizedColumn], look: Look) -> Vec<Line<'static>> {
    if app.items.is_empty() {
        let why = match (app.connecting, app.all) {
            (true, _) => "",
            (false, 0) => "Nothing is here yet.",
            (false, _) => "No row has these words; Esc shows all.",
        };
        return vec![Line::from(why)];
    }
    let in_sight = app.items.iter().enumerate().skip(app.first).take(app.fitting);
    in_sight.map(|(at, item)| row(app, item, shown, look, at == app.cursor)).collect()
}

fn row(app: &App, item: &Item, shown: &[SizedColumn], look: Look, chosen: bool) -> Line<'static> {
    let mut spans = Vec::new();
    for (column, width) in shown {
        let text = match column.cell {
            Cell::Recent => app.model().bars(app.rows, item, (*width).into()),
            cell => cell.show(item),
        };
        let text = fit::cell(&text, *width, column.cell) + " ";
        let marked = column.name == STATE || matches!(column.cell, Cell::Ready | Cell::Why);
        let bad = column.cell == Cell::Errors && item.traffic.errors_per_second > 0.0;
        let style = match (marked, bad) {
            (true, _) => look.of(item.label.severity),
            (_, true) => look.of(Severity::Bad),
            _ => Style::new(),
        };
        spans.push(Span::styled(text, style));
    }
    let line = Line::from(spans);
    if chosen { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
}

/// Note on the selected row, else on the process.
fn note(app: &App, look: Look, width: u16) -> Line<'static> {
    let chosen = app.items.get(app.cursor).filter(|item| !item.label.note.is_empty());
    let (text, severity) = match (chosen, app.model().wrong.first()) {
        (Some(item), _) => {
            let name = item.label.texts.first().map(String::as_str).unwrap_or_default();
            (format!("{name}: {}", item.label.note), item.label.severity)
        }
        (None, Some(wrong)) => (visible(wrong).into_owned(), Severity::Warning),
        (None, None) => return Line::default(),
    };
    Line::styled(shortened(&text, width.into()), look.of(severity))
}

fn keys(app: &App, width: u16) -> Line<'static> {
    if app.filter_before.is_some() {
        // The end of the filter is where it is typed.
        return Line::from(format!("/{}_  (Enter applies, Esc cancels)", visible(&app.filter)));
    }
    let mut parts = Parts::new(width);
    let keys = [
        "q quit",
        "Enter explain",
        "t trace",
        "Tab rows",
        "s sort",
        "w worst",
        "/ filter",
        "? help",
        "r reverse",
        "f freeze",
    ];
    for key in keys {
        parts.add(key, Style::new());
    }
    parts.line()
}
