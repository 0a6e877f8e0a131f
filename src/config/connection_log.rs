//! Section `connectionLog`: which TCP connections are logged.

use serde_json::Value;
use sheave_model::LogSample;

use super::section::Section;
use super::values::{self, ValueError};

/// Default limit of lines per second. A Service that reaches it writes 2 MB a minute.
const LINES_PER_SERVICE: u32 = 100;
/// Upper limit of `linesPerService`, which is more than a thread can write.
const MOST_LINES: u32 = 1_000_000;

/// Selection of the connections that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoggedConnections {
    /// Sampled share of each Service's connections, unless its annotation overrides it.
    pub(crate) sample: LogSample,
    /// Limit of lines per second for each Service.
    pub(crate) lines_per_service: u32,
}

pub(super) fn read(section: &mut Section<'_>) -> LoggedConnections {
    LoggedConnections {
        sample: section.get("sample", LogSample::NONE, sample),
        lines_per_service: section.get("linesPerService", LINES_PER_SERVICE, values::between(1, MOST_LINES)),
    }
}

fn sample(value: &Value) -> Result<LogSample, ValueError> {
    value.as_str().and_then(LogSample::parse).ok_or_else(|| {
        ValueError::expected("a percentage from 0% to 100%", value).hint("write it as 1% or 0.05%")
    })
}
