//! Token bucket, without I/O; the caller passes the time.

use std::time::Duration;

use tokio::time::Instant;

/// Bucket whose tokens return over time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    burst: u32,
    refill: Duration,
    /// Time at which all tokens are back. Taking one moves it by `refill`.
    full_at: Instant,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens, one of which returns in each `refill`.
    pub(crate) fn new(burst: u32, refill: Duration, now: Instant) -> Self {
        Self { burst, refill, full_at: now }
    }

    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }

    pub(crate) fn has_one(&self, now: Instant) -> bool {
        self.next_at(now) <= now
    }

    /// Time at which a token is available: `now`, or later.
    pub(crate) fn next_at(&self, now: Instant) -> Instant {
        let missing = self.full_at.saturating_duration_since(now);
        now + missing.saturating_sub(self.refill * (self.burst - 1))
    }

    /// Takes a token, which must be available.
    pub(crate) fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.refill;
    }
}
