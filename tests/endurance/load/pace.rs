//! Schedule of requests at fixed times, regardless of earlier ones (an open loop).

use std::time::{Duration, Instant};

/// Steady rate.
pub(super) struct Pace {
    began: Instant,
    rate: f64,
    begun: u64,
}

impl Pace {
    /// Starts with this many per second.
    pub(super) fn new(rate: f64) -> Self {
        Self { began: Instant::now(), rate, begun: 0 }
    }

    /// Time at which the next one was due, if it is.
    pub(super) fn next(&mut self) -> Option<Instant> {
        let due = self.due();
        let is_due = due <= Instant::now();
        self.begun += u64::from(is_due);
        is_due.then_some(due)
    }

    /// Time until the next one is due.
    pub(super) fn wait(&self) -> Duration {
        self.due().saturating_duration_since(Instant::now())
    }

    fn due(&self) -> Instant {
        self.began + Duration::from_secs_f64(self.begun as f64 / self.rate)
    }
}
