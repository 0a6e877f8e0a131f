//! Progress of a long replay on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::merged_logs::MergedLogs;
use crate::views::numbers::{bytes, count};

/// Time after which a replay counts as long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of connections between two looks at the clock.
const CONNECTIONS: u64 = 50_000;

/// Line on standard error that shows how much was read. Without a terminal, there is none.
pub(super) struct Progress {
    shown_at: Instant,
    terminal: bool,
    shown: bool,
}

impl Progress {
    pub(super) fn start() -> Self {
        Self { shown_at: Instant::now(), terminal: std::io::stderr().is_terminal(), shown: false }
    }

    /// Shows the progress, about once a second.
    pub(super) fn show(&mut self, logs: &MergedLogs) {
        if !self.terminal
            || !logs.connections.is_multiple_of(CONNECTIONS)
            || self.shown_at.elapsed() < PATIENCE
        {
            return;
        }
        (self.shown_at, self.shown) = (Instant::now(), true);
        print(&text(logs));
    }
}

/// Clears the line.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            print("");
        }
    }
}

fn text(logs: &MergedLogs) -> String {
    let connections = count(logs.connections as f64);
    match logs.progress() {
        (read, Some(length)) => {
            let percent = if length == 0 { 100.0 } else { read as f64 * 100.0 / length as f64 };
            format!("{percent:.0} % of {}, {connections} connections", bytes(length as f64))
        }
        (read, None) => format!("{} read, {connections} connections", bytes(read as f64)),
    }
}

/// Replaces the line. A terminal that has gone is no reason to end.
fn print(text: &str) {
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "\r\u{1b}[K{text}").and_then(|()| stderr.flush()).unwrap_or_default();
}
