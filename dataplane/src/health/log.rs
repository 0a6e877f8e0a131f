//! Says in the log which endpoints fall ill and get well, but not of each of a thousand.
//!
//! It must not know why they do.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::FrontendAddr;

use super::reports::EndpointKey;

/// So many lines in each window; of further ones only the number is told, with the first of the next.
const LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Who noticed.
#[derive(Debug)]
pub(super) enum DetectedBy {
    /// A client of this frontend.
    Frontend(FrontendAddr),
    /// A check of this cluster's endpoints.
    Cluster(Arc<str>),
}

impl fmt::Display for DetectedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frontend(addr) => write!(f, "frontend {addr}"),
            Self::Cluster(name) => write!(f, "cluster {name}"),
        }
    }
}

/// Counts lines.
#[derive(Debug, Default)]
pub(super) struct Log {
    window: Option<Instant>,
    lines: u32,
    untold: u32,
}

impl Log {
    pub(super) fn unhealthy(&mut self, (protocol, endpoint): EndpointKey, by: &DetectedBy, why: &str) {
        if let Some(untold) = self.admits(Instant::now()) {
            tracing::info!(%endpoint, %protocol, of = %by, reason = why, untold, "endpoint is unhealthy");
        }
    }

    pub(super) fn healthy(&mut self, (protocol, endpoint): EndpointKey, by: &DetectedBy, after: Duration) {
        if let Some(untold) = self.admits(Instant::now()) {
            tracing::info!(%endpoint, %protocol, of = %by, ?after, untold, "endpoint is healthy again");
        }
    }

    /// Whether there is room for a line, with how many were not told before it.
    fn admits(&mut self, now: Instant) -> Option<u32> {
        if self.window.is_none_or(|begin| now.saturating_duration_since(begin) >= WINDOW) {
            (self.window, self.lines) = (Some(now), 0);
        }
        if self.lines >= LINES {
            self.untold += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_only_so_many_are_told_and_then_how_many_were_not() {
        let (mut log, now) = (Log::default(), Instant::now());
        let told = (0..100).filter(|_| log.admits(now).is_some()).count();
        assert_eq!(told, 20);
        assert_eq!(log.admits(now + WINDOW), Some(80));
        assert_eq!(log.admits(now + WINDOW), Some(0));
    }
}
