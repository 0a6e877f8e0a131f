//! State of the screen of `sheave top`, and how keys change it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::ask::{Request, RequestKind};
use super::feed::{self, FeedEvent};
use super::model::Model;
use super::pane::Pane;
use super::table::{Item, Order, columns, key_length};
use crate::arguments::TopRows;
use crate::views::escape::visible;

/// Kinds of rows, in the order of the Tab key.
pub(super) const ALL_ROWS: [TopRows; 4] =
    [TopRows::Services, TopRows::Endpoints, TopRows::Clusters, TopRows::Clients];

/// Longest filter that can be typed.
const LONGEST_FILTER: usize = 100;

/// Next step of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Next {
    /// Nothing changed.
    Wait,
    Draw,
    /// Follow the counters of other rows.
    Follow(TopRows),
    /// Ask the gateway what is [requested](App::request).
    Ask,
    Quit,
}

/// Period without an answer from the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// Time of day when it began.
    pub(super) since: String,
    pub(super) why: String,
}

/// The state of the screen.
pub(super) struct App {
    pub(super) rows: TopRows,
    pub(super) order: Order,
    pub(super) filter: String,
    /// The filter before editing began; `None` while no filter is edited.
    pub(super) filter_before: Option<String>,
    /// Text in place of the rows.
    pub(super) pane: Option<Pane>,
    /// The current state, and the state when the screen was frozen.
    model: Model,
    frozen: Option<Model>,
    pub(super) silence: Option<Silence>,
    /// Whether no message has arrived yet.
    pub(super) connecting: bool,
    /// Rows that match the filter, sorted.
    pub(super) items: Vec<Item>,
    /// Number of rows without the filter.
    pub(super) all: usize,
    /// Width of the widest text of each text column.
    pub(super) widest: Vec<u16>,
    /// Width of the longest reason for a state; 0 without any.
    pub(super) widest_why: u16,
    /// Index of the selected row.
    pub(super) cursor: usize,
    /// Texts of the row that was selected by a key. It stays selected wherever it moves.
    selected: Option<Vec<String>>,
    /// Index of the first row on the screen, and the number of rows that fit.
    pub(super) first: usize,
    pub(super) fitting: usize,
}

impl App {
    pub(super) fn new(rows: TopRows, order: Order, filter: String) -> Self {
        Self {
            rows,
            order,
            filter,
            filter_before: None,
            pane: None,
            model: Model::default(),
            frozen: None,
            silence: None,
            connecting: true,
            items: Vec::new(),
            all: 0,
            widest: Vec::new(),
            widest_why: 0,
            cursor: 0,
            selected: None,
            first: 0,
            fitting: 1,
        }
    }

    /// The model that is shown.
    pub(super) fn model(&self) -> &Model {
        self.frozen.as_ref().unwrap_or(&self.model)
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Applies an event of the gateway; `now` is the time of day.
    pub(super) fn take(&mut self, event: FeedEvent, now: impl FnOnce() -> String) -> Next {
        match event {
            FeedEvent::Lost(why) => {
                let since = self.silence.take().map_or_else(now, |silence| silence.since);
                self.silence = Some(Silence { since, why: visible(&why).into_owned() });
                Next::Draw
            }
            FeedEvent::Message(message) => {
                (self.silence, self.connecting) = (None, false);
                if !self.model.take(message) {
                    return Next::Wait;
                }
                if self.frozen.is_none() {
                    self.arrange();
                }
                Next::Draw
            }
        }
    }

    /// Filters and sorts the rows.
    fn arrange(&mut self) {
        let mut items = self.model().items(self.rows);
        let without_row = self.model().without_row(self.rows);
        self.all = items.len() + without_row.as_ref().map_or(0, |item| item.label.stands_for);
        let filter = self.filter.to_lowercase();
        items.retain(|item| item.label.has(&filter));
        self.order.sort(self.rows, &mut items);
        // Always last, since it sums up the clients that have no row of their own.
        items.extend(without_row.filter(|_| filter.is_empty()));
        self.items = items;
        self.measure();
        let selected = self.selected.as_ref();
        let place =
            selected.and_then(|key| self.items.iter().position(|item| item.label.texts.starts_with(key)));
        let place = place.unwrap_or(self.cursor);
        if place != self.cursor && place < self.fitting {
            // What it moved to is near the top, which is where to look.
            self.first = 0;
        }
        self.go_to(place);
    }

    /// Measures the texts of all rows, so that columns do not change their width when rows change their order.
    fn measure(&mut self) {
        let mut widest = Vec::new();
        for label in self.items.iter().map(|item| &item.label) {
            widest.resize(widest.len().max(label.widths.len()), 0);
            widest.iter_mut().zip(&label.widths).for_each(|(widest, width)| *widest = (*width).max(*widest));
        }
        self.widest_why = self.items.iter().map(|item| item.label.why_width).max().unwrap_or_default();
        self.widest = widest;
    }

    fn go_to(&mut self, row: usize) {
        self.cursor = row.min(self.items.len().saturating_sub(1));
        self.first = self.first.min(self.cursor).max((self.cursor + 1).saturating_sub(self.fitting));
    }

    /// Sets the number of rows that fit on the screen.
    pub(super) fn fit(&mut self, rows: usize) {
        self.fitting = rows.max(1);
        self.first = self.first.min(self.items.len().saturating_sub(self.fitting));
        self.go_to(self.cursor);
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Next {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, self.filter_before.is_some()) {
            (KeyCode::Char('c' | 'd'), _) if control => Next::Quit,
            (KeyCode::Char('u'), true) if control => self.type_filter(None),
            _ if control => Next::Wait,
            (code, true) => self.type_filter(Some(code)),
            (code, false) if self.pane.is_some() => self.command_pane(code),
            (code, false) => self.command(code),
        }
    }

    /// Handles a key of the filter input; without a key, starts an empty filter.
    fn type_filter(&mut self, key: Option<KeyCode>) -> Next {
        let Some(key) = key else {
            self.filter.clear();
            self.arrange();
            return Next::Draw;
        };
        match key {
            KeyCode::Enter => self.filter_before = None,
            KeyCode::Esc => self.filter = self.filter_before.take().unwrap_or_default(),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(char) if self.filter.chars().count() < LONGEST_FILTER => self.filter.push(char),
            _ => return Next::Wait,
        }
        self.arrange();
        Next::Draw
    }

    fn command(&mut self, key: KeyCode) -> Next {
        match key {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('?' | 'h') => self.pane = Some(Pane::help()),
            KeyCode::Enter => return self.look_into(RequestKind::Explain),
            KeyCode::Char('t') => return self.look_into(RequestKind::Trace),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.filter_before = Some(self.filter.clone()),
            KeyCode::Char('f' | ' ') => self.frozen = self.frozen.take().xor(Some(self.model.clone())),
            KeyCode::Char('s' | '>') | KeyCode::Right => self.sort_by(1),
            KeyCode::Char('S' | '<') | KeyCode::Left => self.sort_by(columns(self.rows).len() - 1),
            KeyCode::Char('r') => self.order.reversed = !self.order.reversed,
            KeyCode::Char('w') => self.order.state_first = !self.order.state_first,
            KeyCode::Tab => return self.look_at(self.neighbour(1)),
            KeyCode::BackTab => return self.look_at(self.neighbour(ALL_ROWS.len() - 1)),
            KeyCode::Char(digit @ '1'..='4') => {
                let at = usize::from(digit as u8 - b'1');
                return self.look_at(ALL_ROWS[at]);
            }
            _ => return self.move_cursor(key),
        }
        self.arrange();
        Next::Draw
    }

    /// Opens what the gateway says of the selected row's Service.
    fn look_into(&mut self, kind: RequestKind) -> Next {
        let chosen = self.items.get(self.cursor).and_then(|item| item.label.of.clone());
        let Some(of) = chosen else { return Next::Wait };
        self.pane = Some(Pane::asking(of, kind));
        Next::Ask
    }

    /// What the gateway is to be asked.
    pub(super) fn request(&self) -> Option<&Request> {
        self.pane.as_ref()?.request()
    }

    /// Takes the answer to a request; `now` is the time of day.
    pub(super) fn answered(
        &mut self,
        request: &Request,
        answer: Result<String, String>,
        now: String,
    ) -> Next {
        let Some(pane) = &mut self.pane else { return Next::Wait };
        pane.take(request, answer, now);
        Next::Draw
    }

    fn command_pane(&mut self, key: KeyCode) -> Next {
        let Some(pane) = &mut self.pane else { return Next::Wait };
        let kind = match key {
            KeyCode::Char('q' | '?' | 'h') | KeyCode::Esc => {
                self.pane = None;
                return Next::Draw;
            }
            KeyCode::Char('r') => None,
            KeyCode::Char('t') => Some(RequestKind::Trace),
            KeyCode::Enter => Some(RequestKind::Explain),
            _ => return if pane.scroll(key) { Next::Draw } else { Next::Wait },
        };
        if pane.ask(kind) { Next::Ask } else { Next::Wait }
    }

    fn move_cursor(&mut self, key: KeyCode) -> Next {
        let row = match key {
            KeyCode::Char('j') | KeyCode::Down => self.cursor + 1,
            KeyCode::Char('k') | KeyCode::Up => self.cursor.saturating_sub(1),
            KeyCode::PageDown => self.cursor + self.fitting,
            KeyCode::PageUp => self.cursor.saturating_sub(self.fitting),
            KeyCode::Char('g') | KeyCode::Home => 0,
            KeyCode::Char('G') | KeyCode::End => usize::MAX - 1,
            _ => return Next::Wait,
        };
        self.go_to(row);
        // The first place is no row: what comes to the top is selected then.
        let chosen = self.items.get(self.cursor).filter(|_| self.cursor > 0);
        self.selected =
            chosen.map(|item| item.label.texts.iter().take(key_length(self.rows)).cloned().collect());
        Next::Draw
    }

    fn sort_by(&mut self, further: usize) {
        self.order.column = (self.order.column + further) % columns(self.rows).len();
        self.order.reversed = false;
    }

    fn neighbour(&self, further: usize) -> TopRows {
        let at = ALL_ROWS.iter().position(|rows| *rows == self.rows).unwrap_or_default();
        ALL_ROWS[(at + further) % ALL_ROWS.len()]
    }

    /// Switches to other rows. A frozen screen is released, since it only has counters of its own rows.
    fn look_at(&mut self, rows: TopRows) -> Next {
        if rows == self.rows {
            return Next::Wait;
        }
        if feed::traffic(rows) != feed::traffic(self.rows) {
            // The counters of these rows are those of the last visit.
            self.model.forget_traffic();
        }
        let order = Order { state_first: self.order.state_first, ..Order::usual(rows) };
        (self.rows, self.order, self.frozen) = (rows, order, None);
        (self.cursor, self.first, self.selected) = (0, 0, None);
        self.arrange();
        Next::Follow(rows)
    }
}
