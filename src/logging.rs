//! Logs: to stderr, as text for people or as JSON for collectors.
//!
//! Logging never waits for the reader. Lines go through a bounded queue to a separate thread, and lines that do not fit are counted
//! and dropped: workers log as well, and a stuck log collector must not stop their traffic.

mod escape;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use sheave_console::views::escape::{visible, visible_json};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, reload};

use self::escape::{Escape, EscapingWriter, visible_with_colors};
use crate::config::{LogFormat, Logging};

/// Lines that may wait to be written: about a megabyte, as much as a large change of the table logs at once.
const QUEUE: usize = 8192;
/// How long the process may wait at its end for the last lines. Longer than `WorkerGuard` takes with a slow reader.
const LAST_LINES: Duration = Duration::from_millis(1500);

/// Counter of the process's only log.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();
/// Filter of the configured level; `None` inside if `RUST_LOG` replaces it.
static FILTER: OnceLock<reload::Handle<Option<Targets>, Registry>> = OnceLock::new();

/// Starts logging as configured. Called once, before any other thread starts.
pub(crate) fn init(logging: &Logging) -> Flush {
    let chosen = from_environment();
    let configured = chosen.is_none().then(|| levels(logging.level));
    let (filter, handle) = reload::Layer::new(configured);
    FILTER.get_or_init(|| handle);
    let (queue, flush) = queue(io::stderr());
    DROPPED.get_or_init(|| queue.error_counter());
    let colored = wants_color();
    let escape: Escape = match logging.format {
        LogFormat::Json => visible_json,
        LogFormat::Text if colored => visible_with_colors,
        LogFormat::Text => visible,
    };
    let writer = move || EscapingWriter::new(queue.clone(), escape);
    let logs = fmt::layer().with_writer(writer).with_target(false);
    let registry = Registry::default().with(filter).with(chosen);
    match logging.format {
        LogFormat::Text => {
            registry.with(logs.with_ansi(colored)).init();
        }
        LogFormat::Json => registry.with(logs.json().flatten_event(true)).init(),
    }
    std::panic::set_hook(Box::new(log_panic));
    flush
}

/// Changes the log level. Returns false if `RUST_LOG` replaces it.
pub(crate) fn set_level(level: LevelFilter) -> bool {
    let replace = |filter: &mut Option<Targets>| match filter {
        Some(filter) => {
            *filter = levels(level);
            true
        }
        None => false,
    };
    let mut is_set = false;
    let changed = FILTER.get().map(|handle| handle.modify(|filter| is_set = replace(filter)));
    is_set && matches!(changed, Some(Ok(())))
}

/// Filter of `RUST_LOG`, which overrides the configured level; `None` if it is unset, empty or invalid.
fn from_environment() -> Option<EnvFilter> {
    let text = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.is_empty())?;
    match EnvFilter::try_new(text) {
        Ok(filter) => Some(filter),
        Err(error) => {
            eprintln!("sheave: RUST_LOG is ignored: {error}");
            None
        }
    }
}

/// Whether to use colors: only on terminals, and not with `NO_COLOR` (<https://no-color.org>).
fn wants_color() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty());
    !refused && io::IsTerminal::is_terminal(&io::stderr())
}

/// Logs a panic like every other line, so that collectors find it. `RUST_BACKTRACE` controls the backtrace.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let (thread, message) = (thread.name().unwrap_or_default(), panic.payload_as_str().unwrap_or_default());
    let location = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    tracing::error!(bug = true, thread, location, "panicked: {message}");
    if backtrace.status() == BacktraceStatus::Captured {
        // One event per line of the backtrace.
        for line in backtrace.to_string().lines() {
            tracing::error!(bug = true, thread, "{line}");
        }
    }
}

/// Libraries that log each failed request as an error, repeatedly while a server is unreachable. Sheave logs a failure once, with
/// its consequences. At level debug, the lines of these libraries are logged as well.
const TALKATIVE: [&str; 6] = ["kube_client", "hyper", "hyper_util", "tower", "tower_http", "rustls"];

/// Filter of a configured level.
fn levels(level: LevelFilter) -> Targets {
    let theirs = if level >= LevelFilter::DEBUG { level } else { LevelFilter::OFF };
    Targets::new().with_default(level).with_targets(TALKATIVE.map(|target| (target, theirs)))
}

/// Number of lines that were dropped because the reader was too slow.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |counter| counter.dropped_lines() as u64)
}

/// Writes pending lines when dropped, within a time limit.
#[derive(Debug)]
#[must_use]
pub(crate) struct Flush(Option<WorkerGuard>);

fn queue(out: impl Write + Send + 'static) -> (NonBlocking, Flush) {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE);
    let (queue, guard) = builder.thread_name("sheave-log").finish(out);
    (queue, Flush(Some(guard)))
}

impl Drop for Flush {
    fn drop(&mut self) {
        let guard = self.0.take();
        let (flushed, is_flushed) = mpsc::channel::<()>();
        // On another thread, since the guard prints to stdout when it gives up, which may be as stuck as stderr.
        let flushing = thread::Builder::new().name("sheave-flush".to_owned()).spawn(move || {
            drop(guard);
            drop(flushed);
        });
        if flushing.is_ok() {
            is_flushed.recv_timeout(LAST_LINES).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Level;

    use super::*;

    /// Reader that is stuck until the channel closes, and then reads everything.
    struct Stuck {
        release: mpsc::Receiver<()>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.release.recv().unwrap_err();
            self.read.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn libraries_are_heard_only_by_those_who_ask_for_details() {
        for (level, heard) in
            [(LevelFilter::ERROR, false), (LevelFilter::INFO, false), (LevelFilter::DEBUG, true)]
        {
            let levels = levels(level);
            assert!(levels.would_enable("sheave_control::sources", &Level::ERROR), "{level}");
            for target in
                ["kube_client::client::builder", "hyper_util::client", "tower::buffer", "rustls::conn"]
            {
                assert_eq!(levels.would_enable(target, &Level::ERROR), heard, "{target} at {level}");
            }
        }
    }

    #[test]
    fn a_stuck_reader_costs_lines_but_no_time_and_what_waits_is_written_at_the_end() {
        let (released, release) = mpsc::channel();
        let read = Arc::new(Mutex::new(Vec::new()));
        let (mut log, flush) = queue(Stuck { release, read: Arc::clone(&read) });
        let lines = QUEUE + 10;
        for _ in 0..lines {
            log.write_all(b"\n").unwrap();
        }
        // One line may already be with the reader.
        let dropped = log.error_counter().dropped_lines();
        assert!((9..=10).contains(&dropped), "{dropped}");
        drop(released);
        drop(flush);
        assert_eq!(read.lock().unwrap().len(), lines - dropped);
    }

    #[test]
    fn a_reader_that_stays_stuck_does_not_keep_the_process_from_ending() {
        let (released, release) = mpsc::channel();
        let (mut log, flush) = queue(Stuck { release, read: Arc::default() });
        log.write_all(b"\n").unwrap();
        drop(flush);
        drop(released);
    }
}
