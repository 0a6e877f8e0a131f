//! Watches who announces what, and for how long an address has two owners or none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// What was observed.
pub(crate) struct Judge {
    addresses: BTreeMap<IpAddr, Record>,
}

#[derive(Clone, Default)]
struct Record {
    owners: BTreeSet<usize>,
    since: Duration,
    /// Some of the owners see each other.
    disputed: bool,
    /// The last one that was alone.
    last: Option<usize>,
    /// The longest time with two owners, and without one.
    overlap: Duration,
    gap: Duration,
    moves: usize,
}

impl Judge {
    pub(crate) fn new(addresses: BTreeSet<IpAddr>) -> Self {
        Self { addresses: addresses.into_iter().map(|address| (address, Record::default())).collect() }
    }

    /// Forgets what was, but who owns what.
    pub(crate) fn reset(&mut self, now: Duration) {
        for record in self.addresses.values_mut() {
            *record = Record {
                owners: record.owners.clone(),
                disputed: record.disputed,
                since: now,
                last: record.last,
                ..Record::default()
            };
        }
    }

    /// Takes down who announces what. Two owners count as such if they see each other: those in different parts of the network have different
    /// clients.
    pub(crate) fn observe(
        &mut self,
        now: Duration,
        announcers: &[(usize, BTreeSet<IpAddr>)],
        sees: impl Fn(usize, usize) -> bool,
    ) {
        for (address, record) in &mut self.addresses {
            let announce = announcers.iter().filter(|(_, announced)| announced.contains(address));
            let owners: BTreeSet<usize> = announce.map(|(index, _)| *index).collect();
            let disputed =
                owners.iter().any(|one| owners.iter().any(|other| one < other && sees(*one, *other)));
            record.observe(now, owners, disputed);
        }
    }

    pub(crate) fn overlap(&self) -> Duration {
        self.addresses.values().map(|record| record.overlap).max().unwrap()
    }

    pub(crate) fn gap(&self) -> Duration {
        self.addresses.values().map(|record| record.gap).max().unwrap()
    }

    /// How long each of these had no owner, at the longest.
    pub(crate) fn gaps(&self, addresses: &BTreeSet<IpAddr>) -> Vec<Duration> {
        addresses.iter().map(|address| self.addresses[address].gap).collect()
    }

    pub(crate) fn moves(&self) -> usize {
        self.addresses.values().map(|record| record.moves).sum()
    }

    pub(crate) fn owned_once(&self) -> bool {
        self.addresses.values().all(|record| record.owners.len() == 1)
    }

    pub(crate) fn owned_by_nobody(&self) -> bool {
        self.addresses.values().all(|record| record.owners.is_empty())
    }

    pub(crate) fn owners(&self) -> BTreeMap<IpAddr, BTreeSet<usize>> {
        self.addresses.iter().map(|(address, record)| (*address, record.owners.clone())).collect()
    }
}

impl Record {
    fn observe(&mut self, now: Duration, owners: BTreeSet<usize>, disputed: bool) {
        let lasted = now - self.since;
        if self.owners.is_empty() {
            self.gap = self.gap.max(lasted);
        }
        if self.disputed {
            self.overlap = self.overlap.max(lasted);
        }
        if owners == self.owners && disputed == self.disputed {
            return;
        }
        if let Some(&owner) = owners.first().filter(|_| owners.len() == 1) {
            self.moves += usize::from(self.last.is_some_and(|last| last != owner));
            self.last = Some(owner);
        }
        // Two owners stay two when one of them changes.
        if !(disputed && self.disputed) {
            self.since = now;
        }
        (self.owners, self.disputed) = (owners, disputed);
    }
}
