//! Section `logging`: format and level of log lines.

use tracing::level_filters::LevelFilter;

use super::section::Section;
use super::values;

/// Format and level of logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logging {
    /// Format of lines.
    pub(crate) format: LogFormat,
    /// Least important level that is logged.
    pub(crate) level: LevelFilter,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

pub(super) fn read(section: &mut Section<'_>) -> Logging {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    Logging {
        format: section.get("format", LogFormat::Text, values::one_of(&formats)),
        level: section.get("level", LevelFilter::INFO, values::one_of(&levels)),
    }
}
