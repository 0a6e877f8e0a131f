//! The section `logging`: how lines look, and which are left out.

use super::section::Section;
use super::values;

/// How to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logging {
    /// For people or for collectors.
    pub(crate) format: LogFormat,
    /// What to leave out.
    pub(crate) level: LogLevel,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The least important lines that are still logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// A human is needed.
    Error,
    /// Degraded.
    Warn,
    /// What changes.
    Info,
    /// Each connection.
    Debug,
    /// Each step.
    Trace,
}

/// Reads the section.
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
