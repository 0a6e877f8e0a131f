//! `sheave top` on a terminal: one loop that waits for the gateway, keys and signals, and draws when something changed. The
//! terminal is restored at any exit, including a panic.

use std::io::{self, IsTerminal as _};

use jiff::Zoned;
use ratatui::DefaultTerminal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use super::app::{App, Next};
use super::ask::{self, Request};
use super::feed::Feed;
use super::keys;
use super::look::Look;
use super::screen;
use super::table::Order;
use crate::arguments::Top;
use crate::exit::Exit;

/// Runs until the user or a signal ends it.
pub(super) async fn run(command: &Top, authority: &str, order: Order) -> Exit {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        eprintln!("sheave: top needs a terminal; --once prints the traffic of one second");
        return Exit::Usage;
    }
    let signals =
        [SignalKind::window_change(), SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let signals: io::Result<Vec<Signal>> = signals.into_iter().map(signal).collect();
    let shown = match signals {
        Ok(signals) => show(command, authority, order, signals).await,
        Err(error) => Err(error),
    };
    match shown {
        Ok(()) => Exit::Ok,
        Err(error) => {
            eprintln!("sheave: the terminal cannot be used: {error}");
            Exit::Software
        }
    }
}

async fn show(command: &Top, authority: &str, order: Order, signals: Vec<Signal>) -> io::Result<()> {
    // Installs a hook that restores the terminal before a panic message is printed.
    let mut terminal = ratatui::try_init().inspect_err(|_| ratatui::try_restore().unwrap_or_default())?;
    let app = App::new(command.view, order, command.filter.clone());
    let shown = follow(&mut terminal, app, authority, signals).await;
    match (shown, ratatui::try_restore()) {
        // The terminal is gone, so there is nothing to restore.
        (Err(error), _) if is_gone(&error) => Ok(()),
        (Err(error), _) => Err(error),
        (Ok(()), Err(error)) if !is_gone(&error) => Err(error),
        (Ok(()), _) => Ok(()),
    }
}

/// Whether the terminal was closed.
fn is_gone(error: &io::Error) -> bool {
    // A write to a terminal without its other side fails with EIO (tty_io.c).
    error.kind() == io::ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

async fn follow(
    terminal: &mut DefaultTerminal,
    mut app: App,
    authority: &str,
    signals: Vec<Signal>,
) -> io::Result<()> {
    // See https://no-color.org.
    let look = Look { color: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
    let mut feed = Feed::open(authority, app.rows);
    let mut keys = keys::typed();
    let mut asking = Asking::default();
    let [mut resized, mut terminate, mut interrupt, mut hang_up] =
        <[Signal; 4]>::try_from(signals).map_err(|_| io::Error::other("signals are missing"))?;
    terminal.draw(|frame| screen::draw(frame, &mut app, look))?;
    loop {
        let next = tokio::select! {
            event = feed.next() => app.take(event, time_of_day),
            (request, answer) = asking.answer() => app.answered(&request, answer, time_of_day()),
            key = keys.recv() => key.map_or(Next::Quit, |key| app.press(key)),
            _ = resized.recv() => Next::Draw,
            _ = terminate.recv() => Next::Quit,
            _ = interrupt.recv() => Next::Quit,
            _ = hang_up.recv() => Next::Quit,
        };
        match next {
            Next::Wait => continue,
            Next::Quit => return Ok(()),
            Next::Follow(rows) => feed = Feed::open(authority, rows),
            Next::Ask => asking.ask(authority, app.request()),
            Next::Draw => {}
        }
        terminal.draw(|frame| screen::draw(frame, &mut app, look))?;
    }
}

/// The last request to the gateway, whose answer is still to come.
#[derive(Default)]
struct Asking(Option<JoinHandle<(Request, Result<String, String>)>>);

impl Asking {
    /// Asks in place of the last request.
    fn ask(&mut self, authority: &str, request: Option<&Request>) {
        self.forget();
        let authority = authority.to_owned();
        self.0 = request.cloned().map(|request| {
            tokio::spawn(async move {
                let answer = ask::answer(&authority, &request).await;
                (request, answer)
            })
        });
    }

    /// Waits for the answer, without end if nothing is asked. Cancel safe.
    async fn answer(&mut self) -> (Request, Result<String, String>) {
        if let Some(task) = &mut self.0 {
            let answer = task.await;
            self.0 = None;
            if let Ok(answer) = answer {
                return answer;
            }
        }
        std::future::pending().await
    }

    fn forget(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

fn time_of_day() -> String {
    Zoned::now().strftime("%H:%M:%S").to_string()
}
