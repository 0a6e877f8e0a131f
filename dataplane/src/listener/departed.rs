//! Frontends that have left, while sockets of theirs may still be on their addresses.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use sheave_model::FrontendAddr;

use crate::counters::FrontendCounters;
use crate::udp::UdpCounters;

/// So few may be remembered although all their sockets are closed.
const KEPT: usize = 64;

/// Those frontends, by address.
#[derive(Debug, Default)]
pub(super) struct Departed {
    /// The counters of UDP frontends: who still has one has sockets on the address.
    counters: HashMap<FrontendAddr, Vec<Weak<UdpCounters>>>,
    /// So many were left when those that are gone were last removed.
    left: usize,
}

impl Departed {
    /// Remembers who may still have sockets on the address.
    pub(super) fn add(&mut self, addr: FrontendAddr, counters: &[FrontendCounters]) {
        let of_udp: Vec<_> = counters.iter().filter_map(FrontendCounters::udp).collect();
        if of_udp.is_empty() {
            return;
        }
        self.counters.entry(addr).or_default().extend(of_udp.iter().map(Arc::downgrade));
        // Not at each of thousands that leave together.
        if self.counters.len() > 2 * self.left + KEPT {
            self.counters.retain(|_, counters| counters.iter().any(|one| one.strong_count() > 0));
            self.left = self.counters.len();
        }
    }

    /// Whether sockets of ours may still be on the address of a frontend that has none now: workers close those of UDP when
    /// they come to it, and flows of a retired frontend keep theirs. Of TCP there are only connections left, which are in
    /// nobody's way (SO_REUSEADDR, socket(7)).
    pub(super) fn holds(&mut self, addr: FrontendAddr, counters: &[FrontendCounters]) -> bool {
        let departed = self.counters.remove(&addr).unwrap_or_default();
        let alive: Vec<_> = departed.into_iter().filter(|counters| counters.strong_count() > 0).collect();
        let held = !alive.is_empty() || counters.iter().any(FrontendCounters::is_used_for_udp);
        if !alive.is_empty() {
            self.counters.insert(addr, alive);
        }
        held
    }
}
