//! Section `logging`: format and level of log lines.

use super::section::Section;
use super::values;

/// Format and level of logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logging {
    /// Format of lines.
    pub(crate) format: LogFormat,
    /// Least important level that is logged.
    pub(crate) level: LogLevel,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// Someone must act.
    Error,
    /// Something is degraded.
    Warn,
    /// Changes of state.
    Info,
    /// Single connections.
    Debug,
    /// Single steps.
    Trace,
}

pub(super) fn read(section: &mut Section<'_>) -> Logging {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
    Logging {
        format: section.get("format", LogFormat::Text, values::one_of(&formats)),
        level: section.get("level", LogLevel::Info, values::one_of(&levels)),
    }
}
