//! Logs: to stderr, as text for people or as JSON for collectors.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;

use crate::config::{LogFormat, LogLevel, Logging};

/// Sends the process's logs where the configuration says. Called once, before any thread starts.
pub(crate) fn init(logging: &Logging) {
    let level = match logging.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let logs = fmt().with_max_level(level).with_writer(io::stderr).with_target(false);
    match logging.format {
        LogFormat::Text => logs.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
}
