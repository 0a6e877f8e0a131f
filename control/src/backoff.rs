//! Pauses after failures: doubling, with jitter, and never shorter than the server's `Retry-After`.

use std::time::Duration;

/// Longest `Retry-After` that is honoured: proxies in front of a server ask for hours.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Pauses after failures of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    /// Number of failures in a row.
    failures: u32,
}

/// One second to five minutes: for work that is not urgent and may fail for days.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(300))
    }
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// The next pause: between half and all of the doubled delay. `asked` is the server's `Retry-After`; up to half is added to
    /// it, too, so that clients do not return all at once.
    pub(crate) fn pause(&mut self, asked: Option<Duration>) -> Duration {
        let whole = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        let own = whole.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.failures = self.failures.saturating_add(1);
        let asked = asked.map(|asked| asked.min(MAX_RETRY_AFTER).mul_f64(1.0 + fastrand::f64() / 2.0));
        asked.map_or(own, |asked| asked.max(own))
    }

    /// Number of failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Resets the count after a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff() -> Backoff {
        Backoff::new(Duration::from_secs(1), Duration::from_secs(10))
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_success() {
        let mut backoff = backoff();
        for whole in [1, 2, 4, 8, 10, 10] {
            let pause = backoff.pause(None);
            let whole = Duration::from_secs(whole);
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.pause(None) <= Duration::from_secs(1));
    }

    #[test]
    fn a_server_that_asks_for_time_gets_it_but_not_for_ever() {
        let mut backoff = backoff();
        let pause = backoff.pause(Some(Duration::from_secs(10)));
        assert!(pause >= Duration::from_secs(10) && pause <= Duration::from_secs(15), "{pause:?}");
        let pause = backoff.pause(Some(Duration::from_secs(86_400)));
        assert!(pause >= Duration::from_secs(120) && pause <= Duration::from_secs(180), "{pause:?}");
    }

    #[test]
    fn a_server_that_asks_for_nothing_is_not_hammered() {
        let mut backoff = backoff();
        assert!(backoff.pause(Some(Duration::ZERO)) >= Duration::from_millis(500));
    }
}
