//! Whether a flow's endpoint has fallen silent: its client asks again and again and gets no answer.
//!
//! Many protocols have datagrams that nobody answers (syslog, keepalives of WireGuard or NAT traversal). So only a client that goes on
//! without long pauses counts, and [`ActiveFrontend::has_fallen_silent`] looks at what others get.
//!
//! [`ActiveFrontend::has_fallen_silent`]: crate::select::ActiveFrontend::has_fallen_silent

use std::time::{Duration, Instant};

/// How long a client asks without an answer: glibc's resolver asks again after 5 s.
pub(in crate::udp) const LONG: Duration = Duration::from_secs(4);

/// After a longer pause, what was before does not count: clients ask again sooner than they keep a flow alive.
const PAUSE: Duration = Duration::from_secs(10);

/// What a flow's client has sent since its endpoint's last answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    /// Since when it asks.
    since: Option<Instant>,
    /// It was told already.
    told: bool,
}

impl Silence {
    /// The endpoint answered, or is another.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// The client sends; the last datagram of either side passed at `touched`. Since when it gets no answer, if that is long: once in
    /// such a time.
    pub(super) fn asked(&mut self, now: Instant, touched: Instant) -> Option<Instant> {
        if self.told {
            return None;
        }
        let goes_on = now.saturating_duration_since(touched) <= PAUSE;
        match self.since.filter(|_| goes_on) {
            Some(since) if now.saturating_duration_since(since) < LONG => None,
            begun => {
                self.since = Some(now);
                begun
            }
        }
    }

    /// It was told, which is enough until the next answer.
    pub(super) fn was_told(&mut self) {
        self.told = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_client_that_asks_again_without_an_answer_is_heard_and_one_that_pauses_is_not() {
        let start = Instant::now();
        let mut silence = Silence::default();
        assert_eq!(silence.asked(start, start), None);
        assert_eq!(silence.asked(start + 3 * SECOND, start), None);
        assert_eq!(silence.asked(start + 5 * SECOND, start + 3 * SECOND), Some(start));
        assert_eq!(silence.asked(start + 6 * SECOND, start + 5 * SECOND), None, "once in such a time");
        silence.end();
        assert_eq!(silence.asked(start + 9 * SECOND, start + 8 * SECOND), None, "it was answered");
        // Keepalives.
        for times in 1..10 {
            let last = start + 25 * times * SECOND;
            assert_eq!(silence.asked(last + 25 * SECOND, last), None);
        }
    }
}
