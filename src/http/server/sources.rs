//! How much one source may take of a server that is open to the network: so many connections before it is authorized, and so many a
//! second at all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sheave_model::Ipv6Prefix;

/// From where somebody connects, as far as an address tells: whoever has an IPv6 address has all of its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source(IpAddr);

impl Source {
    pub(super) fn of(ip: IpAddr) -> Self {
        Self(Ipv6Prefix::DEFAULT.client(ip.to_canonical()))
    }
}

/// Connections of one source that are not authorized, at a time.
pub(super) const UNAUTHORIZED: usize = 16;
/// Connections of one source a second: each may be a TLS handshake, which takes a core about half a millisecond.
const A_SECOND: u32 = 32;
/// Sources that are told apart within a second. Beyond that only these are answered.
const TOLD_APART: usize = 4096;

/// Counts connections by source, anew each second.
#[derive(Debug)]
pub(super) struct SourceRates {
    since: Instant,
    counts: HashMap<Source, u32>,
}

impl SourceRates {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, counts: HashMap::new() }
    }

    /// Whether another connection of this source is answered.
    pub(super) fn admits(&mut self, source: Source, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.counts.clear();
        }
        let room = self.counts.len() < TOLD_APART;
        match self.counts.get_mut(&source) {
            Some(count) => {
                *count = count.saturating_add(1);
                *count <= A_SECOND
            }
            None if room => self.counts.insert(source, 1).is_none(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::of(text.parse().unwrap())
    }

    #[test]
    fn a_source_is_an_address_or_a_network_of_one_host() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }

    #[test]
    fn a_source_that_comes_too_often_is_refused_and_others_are_not() {
        let start = Instant::now();
        let mut rates = SourceRates::new(start);
        let (greedy, other) = (source("192.0.2.1"), source("192.0.2.2"));
        let admitted = (0..1000).filter(|_| rates.admits(greedy, start)).count();
        assert_eq!(admitted, A_SECOND as usize);
        assert!(rates.admits(other, start));
        assert!(rates.admits(greedy, start + Duration::from_secs(1)));
        for number in 0..10_000_u32 {
            rates.admits(Source::of(std::net::Ipv4Addr::from(number).into()), start + Duration::from_secs(1));
        }
        assert_eq!(rates.counts.len(), TOLD_APART);
        assert!(rates.admits(greedy, start + Duration::from_secs(1)), "it was there before");
    }
}
