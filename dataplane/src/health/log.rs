//! Log of endpoints that become unhealthy or healthy, rate-limited.

use std::time::{Duration, Instant};

use super::reports::EndpointKey;

/// Number of lines per window; the first line of the next window has the number of suppressed ones.
const LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Rate limiter of the log.
#[derive(Debug, Default)]
pub(super) struct Log {
    window: Option<Instant>,
    lines: u32,
    suppressed: u32,
}

impl Log {
    pub(super) fn unhealthy(&mut self, EndpointKey { service, addr }: &EndpointKey, why: &str) {
        if let Some(suppressed) = self.admits(Instant::now()) {
            let protocol = service.protocol;
            tracing::info!(%service, %protocol, endpoint = %addr, reason = why, suppressed, "endpoint is unhealthy");
        }
    }

    pub(super) fn healthy(&mut self, EndpointKey { service, addr }: &EndpointKey, after: Duration) {
        if let Some(suppressed) = self.admits(Instant::now()) {
            let protocol = service.protocol;
            tracing::info!(%service, %protocol, endpoint = %addr, ?after, suppressed, "endpoint is healthy again");
        }
    }

    /// Whether there is room for a line; returns the number of lines suppressed before it.
    fn admits(&mut self, now: Instant) -> Option<u32> {
        if self.window.is_none_or(|begin| now.saturating_duration_since(begin) >= WINDOW) {
            (self.window, self.lines) = (Some(now), 0);
        }
        if self.lines >= LINES {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_suppressed_and_counted() {
        let (mut log, now) = (Log::default(), Instant::now());
        let logged = (0..100).filter(|_| log.admits(now).is_some()).count();
        assert_eq!(logged, 20);
        assert_eq!(log.admits(now + WINDOW), Some(80));
        assert_eq!(log.admits(now + WINDOW), Some(0));
    }
}
