//! A rate limit for log lines about something that lasts.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Lets one through in so long. For one worker.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    every: Duration,
    last: Cell<Option<Instant>>,
}

impl LogThrottle {
    /// The first is let through.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, last: Cell::new(None) }
    }

    /// Whether this one may pass; then it counts as the last.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let due = self.last.get().is_none_or(|last| now.duration_since(last) >= self.every);
        if due {
            self.last.set(Some(now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_passes_in_each_interval() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let throttle = LogThrottle::new(second);
        let passed =
            [0, 500, 999, 1000, 1500, 2000].map(|ms| throttle.admits(start + Duration::from_millis(ms)));
        assert_eq!(passed, [true, false, false, true, false, true]);
    }
}
