//! Whether to request the next list as a stream. Streaming is the best way if it works. A failure does not mean that it keeps
//! failing, so streams are retried after every failure, sooner or later.

use tokio::time::Instant;

use super::limits::Limits;
use crate::backoff::Backoff;

/// Longest time until a refused stream is retried, in multiples of the first one.
const LONGEST: u32 = 12;

/// State of streamed lists of one kind.
#[derive(Debug)]
pub(super) struct Streaming {
    /// How long a refusal counts.
    refusals: Backoff,
    /// End of the last refusal.
    refused_until: Option<Instant>,
    /// Whether the last stream failed, for whatever reason. If the server has a problem, pages fail as well, and the next list is
    /// a stream again; if only streams have one, pages work.
    failed: bool,
}

impl Streaming {
    pub(super) fn new(limits: &Limits) -> Self {
        let refusals = Backoff::new(limits.unstreamed, limits.unstreamed * LONGEST);
        Self { refusals, refused_until: None, failed: false }
    }

    /// Whether to request a stream now. After a failure the result is false once.
    pub(super) fn is_due(&mut self) -> bool {
        let failed = std::mem::take(&mut self.failed);
        !failed && self.refused_until.is_none_or(|until| until <= Instant::now())
    }

    /// Records that a streamed list completed.
    pub(super) fn worked(&mut self) {
        self.refusals.reset();
        self.refused_until = None;
    }

    /// Records that the server refused to stream a list.
    pub(super) fn refused(&mut self) {
        self.refused_until = Some(Instant::now() + self.refusals.pause(None));
    }

    /// Records that a stream failed for a reason other than a refusal.
    pub(super) fn failed(&mut self) {
        self.failed = true;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[test]
    fn a_failure_costs_one_stream() {
        let mut streaming = Streaming::new(&Limits::default());
        assert!(streaming.is_due());
        streaming.failed();
        assert!(!streaming.is_due());
        assert!(streaming.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_for_minutes_and_the_next_one_for_longer() {
        let mut streaming = Streaming::new(&Limits::default());
        for minutes in [5, 10, 20, 40, 60, 60] {
            let longest = Duration::from_secs(minutes * 60);
            streaming.refused();
            advance(longest / 2 - Duration::from_secs(1)).await;
            assert!(!streaming.is_due(), "{longest:?}");
            advance(longest / 2 + Duration::from_secs(1)).await;
            assert!(streaming.is_due(), "{longest:?}");
        }
        streaming.worked();
        streaming.refused();
        advance(Duration::from_secs(5 * 60)).await;
        assert!(streaming.is_due());
    }
}
