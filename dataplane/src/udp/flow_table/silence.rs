//! Detection of silent endpoints: a client that repeats its requests gets no answer.
//!
//! Many protocols have datagrams that are never answered (syslog, keepalives of WireGuard or NAT traversal). Therefore only a client
//! that sends without long pauses counts, and [`ActiveFrontend::has_fallen_silent`] considers the answers to other clients.
//!
//! [`ActiveFrontend::has_fallen_silent`]: crate::select::ActiveFrontend::has_fallen_silent

use std::time::{Duration, Instant};

/// How long a client must send without an answer: glibc's resolver repeats its query after 5 s.
pub(in crate::udp) const LONG: Duration = Duration::from_secs(4);

/// Pause after which earlier datagrams do not count: clients repeat requests sooner than they send keepalives.
const PAUSE: Duration = Duration::from_secs(10);

/// Record of a client's datagrams since its endpoint's last answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    /// Since when the client has sent without an answer.
    since: Option<Instant>,
    /// Whether the silence was reported already.
    told: bool,
}

impl Silence {
    /// Resets the record: the endpoint answered, or was replaced.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Records a datagram of the client; the last datagram of either side passed at `touched`. Returns since when the client has had
    /// no answer, once that is longer than [`LONG`] and then once in such a time.
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

    /// Records that the silence was reported, which suffices until the next answer.
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
        // Keepalives every 25 s.
        for times in 1..10 {
            let last = start + 25 * times * SECOND;
            assert_eq!(silence.asked(last + 25 * SECOND, last), None);
        }
    }
}
