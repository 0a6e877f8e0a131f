//! Whether the next list is asked for as a stream. That is the best way where it works, and a failure says nothing of the time
//! after it: streams are tried again after every failure, sooner or later.

use tokio::time::Instant;

use super::limits::Limits;
use crate::backoff::Backoff;

/// A refused stream is tried again after this many times the first pause at the latest.
const LONGEST: u32 = 12;

/// What is known of streamed lists of one kind.
#[derive(Debug)]
pub(super) struct Streaming {
    /// How long a refusal counts.
    refusals: Backoff,
    /// The server refused a stream, which counts until then.
    refused_until: Option<Instant>,
    /// The last stream failed, for whatever reason. If it is the server that is in trouble, pages fail as well, and the next
    /// list is a stream again; if it is the stream, pages bring the objects.
    failed: bool,
}

impl Streaming {
    pub(super) fn new(limits: &Limits) -> Self {
        let refusals = Backoff::new(limits.unstreamed, limits.unstreamed * LONGEST);
        Self { refusals, refused_until: None, failed: false }
    }

    /// Whether to ask for a stream now. After a failure the answer is no, once.
    pub(super) fn is_due(&mut self) -> bool {
        let failed = std::mem::take(&mut self.failed);
        !failed && self.refused_until.is_none_or(|until| until <= Instant::now())
    }

    /// A streamed list was complete.
    pub(super) fn worked(&mut self) {
        self.refusals.reset();
        self.refused_until = None;
    }

    /// The server does not stream lists.
    pub(super) fn refused(&mut self) {
        self.refused_until = Some(Instant::now() + self.refusals.pause(None));
    }

    /// A stream failed without a word about streams.
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
