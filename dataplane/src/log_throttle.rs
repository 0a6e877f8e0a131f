//! Rate limit for log lines about a lasting condition.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Admits one log line per interval. For use on one worker.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    every: Duration,
    last: Cell<Option<Instant>>,
}

impl LogThrottle {
    /// Creates a throttle that admits the first line.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, last: Cell::new(None) }
    }

    /// Whether a line may be logged now; if so, the interval starts again.
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
