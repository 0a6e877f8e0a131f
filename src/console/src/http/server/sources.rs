//! Limits of one source on a server that is open to the network: connections before authorization, and connections per second.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sheave_model::Ipv6Prefix;

/// Source of a connection. An IPv6 source is a /64, since a host has all of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source(IpAddr);

impl Source {
    pub(super) fn of(ip: IpAddr) -> Self {
        Self(Ipv6Prefix::DEFAULT.client(ip.to_canonical()))
    }
}

/// Limit of concurrent connections per source that are not authorized.
pub(super) const UNAUTHORIZED: usize = 16;
/// Limit of connections per source and second. Each may be a TLS handshake, which takes half a millisecond of a core.
const A_SECOND: u32 = 32;
/// Limit of distinct sources per second. Beyond it, only known sources are answered.
const TOLD_APART: usize = 4096;

/// Number of connections by source, reset each second.
#[derive(Debug)]
pub(super) struct SourceRates {
    since: Instant,
    counts: HashMap<Source, u32>,
}

impl SourceRates {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, counts: HashMap::new() }
    }

    /// Counts a connection. Returns whether its source is within the limit.
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
