//! Text over the whole screen that is scrolled: what the gateway answers about a Service, or the help.

use ratatui::crossterm::event::KeyCode;

use super::ask::{Request, RequestKind};
use super::fit::wrapped;
use super::messages::LiveService;
use super::model::shown_name;

const HELP: &str = "\
Rows      Tab, 1 to 4    Services, endpoints, clusters, clients
          j k g G        down, up, first, last; also arrows, Page Up, Page Down
Explain   Enter          what `sheave explain` says of the Service, its traffic
                         and what has changed; r asks again, q goes back
          t              where a packet for it stops, as `sheave trace` says
Sort      s S, < >       by the next column, by the one before
          r              the other way round
          w              what is not well first, or by the column alone
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
          most of their bytes, or if none have passed, of what is open
RECENT    what was opened, four seconds a bar; each row has its own scale
WHY       the reason for the state";

/// Text, and what it is about.
#[derive(Debug)]
pub(super) struct Pane {
    /// What the gateway is asked; `None` for the help.
    request: Option<Request>,
    text: String,
    /// Time of day of the answer.
    answered: Option<String>,
    /// Whether an answer is still to come, and why the last one did not come.
    waiting: bool,
    failure: Option<String>,
    /// The text in lines of this width.
    lines: Vec<String>,
    width: Option<u16>,
    /// First line on the screen, and the number of lines that fit.
    first: usize,
    fitting: usize,
}

impl Pane {
    fn new(request: Option<Request>, text: String) -> Self {
        let waiting = request.is_some();
        Self {
            request,
            text,
            answered: None,
            waiting,
            failure: None,
            lines: Vec::new(),
            width: None,
            first: 0,
            fitting: 1,
        }
    }

    pub(super) fn help() -> Self {
        Self::new(None, HELP.to_owned())
    }

    /// Waits for an answer about this Service.
    pub(super) fn asking(of: LiveService, kind: RequestKind) -> Self {
        Self::new(Some(Request { of, kind }), String::new())
    }

    pub(super) fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Asks again, for this kind of answer if there is one. Returns whether there is anything to ask.
    pub(super) fn ask(&mut self, kind: Option<RequestKind>) -> bool {
        let Some(Request { of, kind: known }) = &self.request else { return false };
        let kind = kind.unwrap_or(*known);
        if kind == *known {
            self.waiting = true;
        } else {
            *self = Self::asking(of.clone(), kind);
        }
        true
    }

    /// Takes the answer to a request, if it is still wanted. An old answer stays when no new one comes.
    pub(super) fn take(&mut self, request: &Request, answer: Result<String, String>, now: String) {
        if self.request.as_ref() != Some(request) {
            return;
        }
        self.waiting = false;
        match answer {
            Ok(text) => {
                (self.text, self.answered, self.failure, self.width) = (text, Some(now), None, None);
            }
            Err(why) => self.failure = Some(why),
        }
    }

    /// What is shown, from when, and what went wrong.
    pub(super) fn title(&self) -> (String, Option<String>) {
        let Some(Request { of, kind }) = &self.request else { return ("Keys and columns".to_owned(), None) };
        let name = shown_name(of);
        let (done, doing) = match kind {
            RequestKind::Explain => ("explained", "asking the gateway"),
            RequestKind::Trace => ("traced", "tracing, which takes some seconds"),
        };
        let state = match (self.waiting, &self.answered) {
            (true, _) => doing.to_owned(),
            (false, Some(time)) => format!("{done} at {time}"),
            (false, None) => "no answer".to_owned(),
        };
        (format!("{name}  {state}"), self.failure.clone().filter(|_| !self.waiting))
    }

    /// Lines that are in sight on a screen of this size.
    pub(super) fn in_sight(&mut self, width: u16, height: u16) -> &[String] {
        if self.width != Some(width) {
            self.lines.clear();
            self.text.lines().for_each(|line| wrapped(line, width.into(), &mut self.lines));
            self.width = Some(width);
        }
        self.fitting = usize::from(height).max(1);
        self.go_to(self.first);
        let end = self.lines.len().min(self.first + usize::from(height));
        &self.lines[self.first..end]
    }

    /// The numbers of the first and last line in sight, and of all lines, if they do not all fit.
    pub(super) fn place(&self) -> Option<(usize, usize, usize)> {
        let all = self.lines.len();
        (all > self.fitting).then(|| (self.first + 1, all.min(self.first + self.fitting), all))
    }

    fn go_to(&mut self, line: usize) {
        self.first = line.min(self.lines.len().saturating_sub(self.fitting));
    }

    /// Scrolls. Returns whether it is a key for that.
    pub(super) fn scroll(&mut self, key: KeyCode) -> bool {
        let page = self.fitting.saturating_sub(1).max(1);
        let line = match key {
            KeyCode::Char('j') | KeyCode::Down => self.first + 1,
            KeyCode::Char('k') | KeyCode::Up => self.first.saturating_sub(1),
            KeyCode::Char(' ') | KeyCode::PageDown => self.first + page,
            KeyCode::PageUp => self.first.saturating_sub(page),
            KeyCode::Char('g') | KeyCode::Home => 0,
            KeyCode::Char('G') | KeyCode::End => self.lines.len(),
            _ => return false,
        };
        self.go_to(line);
        true
    }
}
