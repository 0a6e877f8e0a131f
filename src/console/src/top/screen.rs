//! Screen of `sheave top`: designed for 80 columns and 24 lines, and adapts to other sizes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::app::{ALL_ROWS, App, Silence};
use super::table::{Cell, Column, Item, Severity, columns};
use crate::arguments::TopRows;
use crate::views::escape::visible;
use crate::views::numbers::{bytes, count, rate, short_count};

/// Number of lines above and below the rows.
const HEAD: u16 = 4;
const FOOT: u16 = 2;
/// Minimum width of the first column. Other columns are left out instead.
const NARROWEST_NAME: u16 = 14;
/// Width of the first column before leftover space goes to other name columns as well.
const WIDE_NAME: u16 = 28;

const HELP: &str = "\
Rows      Tab, 1 to 4    Services, endpoints, clusters, clients
          j k g G        down, up, first, last; also arrows, Page Up, Page Down
Sort      s S, < >       by the next column, by the one before
          r              the other way round
Filter    /              show rows that have all of the words; Esc shows all
Freeze    f, Space       hold the screen; sorting and filtering go on
End       q, Ctrl-C

OPEN      TCP connections and UDP flows that are open
NEW/s     those that were opened within the last second
IN/s      bytes from clients to endpoints; OUT/s from endpoints to clients
DGRAM/s   datagrams in both directions
ERR/s     connections that failed, datagrams dropped, and what was refused
READY     endpoints that are ready and healthy, out of all
SHARE     the cluster's part of what was opened
CLIENTS   networks of clients, IPv4 /24 and IPv6 /56; SERVICE is the one with
          most of their bytes, or if none have passed, of what is open";

/// Style of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Without color, bold and reverse video are used.
    pub(super) color: bool,
}

impl Look {
    fn of(self, severity: Severity) -> Style {
        match severity {
            Severity::Fine => Style::new(),
            Severity::Warning if self.color => Style::new().fg(Color::Yellow),
            Severity::Bad if self.color => Style::new().fg(Color::Red),
            Severity::Warning | Severity::Bad => Style::new().add_modifier(Modifier::BOLD),
        }
    }
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, look: Look) {
    let area = frame.area();
    let rows = area.height.saturating_sub(HEAD + FOOT);
    app.fit(rows.into());
    let line = |y: u16, height: u16| Rect { y: area.y + y, height, ..area }.intersection(area);
    frame.render_widget(title(app, look), line(0, 1));
    frame.render_widget(totals(app), line(1, 1));
    frame.render_widget(tabs(app), line(2, 1));
    if app.help {
        frame.render_widget(Paragraph::new(HELP), line(HEAD, rows));
    } else {
        let widths = widths(columns(app.rows), area.width);
        frame.render_widget(header(app, &widths), line(3, 1));
        frame.render_widget(Paragraph::new(body(app, &widths, look)), line(HEAD, rows));
    }
    if area.height > HEAD + FOOT {
        frame.render_widget(note(app, look), line(area.height - 2, 1));
    }
    frame.render_widget(keys(app, look), line(area.height.saturating_sub(1), 1));
}

fn title(app: &App, look: Look) -> Line<'static> {
    let model = app.model();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled("sheave top", bold), Span::raw(format!("  {}  ", model.node))];
    let state = match (&app.silence, app.connecting, app.is_frozen()) {
        (Some(_), ..) => Span::styled("not live", look.of(Severity::Bad)),
        (None, true, _) => Span::raw("connecting"),
        (None, false, true) => Span::styled("FROZEN", bold),
        (None, false, false) => Span::raw("live"),
    };
    spans.push(state);
    let states = model.states;
    let all = states.broken + states.degraded + states.ok;
    spans.push(Span::raw(format!("  Services: {}", count(all as f64))));
    let bad = [(states.broken, "broken", Severity::Bad), (states.degraded, "degraded", Severity::Warning)];
    for (number, name, severity) in bad.into_iter().filter(|(number, ..)| *number > 0) {
        spans.push(Span::styled(format!(", {} {name}", count(number as f64)), look.of(severity)));
    }
    Line::from(spans)
}

fn totals(app: &App) -> Line<'static> {
    let total = app.model().total.traffic;
    Line::from(format!(
        "open {}  new {}/s  in {}/s  out {}/s  datagrams {}/s  errors {}/s",
        short_count(total.open),
        rate(total.opened_per_second),
        bytes(total.client_bytes_per_second),
        bytes(total.endpoint_bytes_per_second),
        rate(total.datagrams_per_second),
        rate(total.errors_per_second),
    ))
}

fn tabs(app: &App) -> Line<'static> {
    let mut spans = Vec::new();
    for rows in ALL_ROWS {
        let name = match rows {
            TopRows::Services => "Services",
            TopRows::Endpoints => "Endpoints",
            TopRows::Clusters => "Clusters",
            TopRows::Clients => "Clients",
        };
        let chosen = rows == app.rows;
        let text = if chosen { format!("[{name}]") } else { format!(" {name} ") };
        let modifier = if chosen { Modifier::BOLD } else { Modifier::empty() };
        spans.push(Span::styled(text, Style::new().add_modifier(modifier)));
    }
    let (found, all) = (count(app.items.len() as f64), count(app.all as f64));
    spans.push(match app.filter.is_empty() {
        true => Span::raw(format!("  by {}; {all} rows", app.order.describe(app.rows))),
        // The header shows the sort column, and the filter needs the space.
        false => Span::raw(format!("  {found} of {all} match: {}", visible(&app.filter))),
    });
    Line::from(spans)
}

fn header(app: &App, widths: &[u16]) -> Line<'static> {
    let title = |(at, (column, width)): (usize, (&Column, &u16))| {
        let sorted = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        let style = if at == app.order.column { sorted } else { Style::new() };
        [Span::styled(fitted(column.title, *width, column.cell), style), Span::raw(" ")]
    };
    let titles = columns(app.rows).iter().zip(widths).enumerate().flat_map(title);
    Line::from_iter(titles).style(Style::new().add_modifier(Modifier::REVERSED))
}

fn body(app: &App, widths: &[u16], look: Look) -> Vec<Line<'static>> {
    if app.items.is_empty() {
        let why = match (app.connecting, app.all) {
            (true, _) => "",
            (false, 0) => "Nothing is here yet.",
            (false, _) => "No row has these words; Esc shows all.",
        };
        return vec![Line::from(why)];
    }
    let shown = app.items.iter().enumerate().skip(app.first).take(app.fitting);
    shown.map(|(at, item)| row(item, columns(app.rows), widths, look, at == app.cursor)).collect()
}

fn row(item: &Item, columns: &[Column], widths: &[u16], look: Look, chosen: bool) -> Line<'static> {
    let mut spans = Vec::new();
    for (column, width) in columns.iter().zip(widths) {
        let text = fitted(&column.cell.show(item), *width, column.cell) + " ";
        let marked = column.name == "state" || column.cell == Cell::Ready;
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
fn note(app: &App, look: Look) -> Line<'static> {
    let chosen = app.items.get(app.cursor).filter(|item| !item.label.note.is_empty());
    match (chosen, app.model().wrong.first()) {
        (Some(item), _) => {
            let name = item.label.texts.first().map(String::as_str).unwrap_or_default();
            Line::styled(format!("{name}: {}", item.label.note), look.of(item.label.severity))
        }
        (None, Some(wrong)) => Line::styled(visible(wrong).into_owned(), look.of(Severity::Warning)),
        (None, None) => Line::default(),
    }
}

fn keys(app: &App, look: Look) -> Line<'static> {
    if app.filter_before.is_some() {
        return Line::from(format!("/{}_  (Enter applies, Esc cancels)", visible(&app.filter)));
    }
    match &app.silence {
        Some(Silence { since, why }) => {
            Line::styled(format!("not answering since {since}: {why}; retrying"), look.of(Severity::Bad))
        }
        None => Line::from("q quit  Tab rows  s sort  r reverse  / filter  f freeze  ? help"),
    }
}

/// Widths of the columns that fit.
fn widths(columns: &[Column], total: u16) -> Vec<u16> {
    let mut widths: Vec<u16> = columns.iter().map(|column| column.width).collect();
    let left = |widths: &[u16]| {
        let taken: u16 = widths.iter().skip(1).map(|width| width + 1).sum();
        total.saturating_sub(taken + 1)
    };
    while widths.len() > 2 && left(&widths) < NARROWEST_NAME {
        widths.pop();
    }
    let more = left(&widths).saturating_sub(WIDE_NAME) / 2;
    let names = columns.iter().position(|column| column.name == "service").filter(|at| *at > 0);
    if let Some(width) = names.and_then(|at| widths.get_mut(at)) {
        *width += more;
    }
    let first = left(&widths);
    if let Some(width) = widths.first_mut() {
        *width = first;
    }
    widths
}

/// Pads or cuts a text to exactly this width. Names are cut in the middle, since their ends differ.
fn fitted(text: &str, width: u16, cell: Cell) -> String {
    let width = usize::from(width);
    let wide = |text: &str| Span::raw(text).width();
    let mut text = text.to_owned();
    if wide(&text) > width {
        let (mut head, mut tail) = (String::new(), String::new());
        let (mut front, mut back) = (text.chars(), text.chars().rev());
        let room = width.saturating_sub(1);
        loop {
            let next = if head.chars().count() <= tail.chars().count() { front.next() } else { back.next() };
            let Some(char) = next else { break };
            if wide(&head) + wide(&tail) + wide(&char.to_string()) > room {
                break;
            }
            if head.chars().count() <= tail.chars().count() { head.push(char) } else { tail.insert(0, char) }
        }
        text = if width == 0 { String::new() } else { format!("{head}…{tail}") };
    }
    let padding = " ".repeat(width.saturating_sub(wide(&text)));
    if cell.is_number() { padding + &text } else { text + &padding }
}
