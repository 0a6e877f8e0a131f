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
            *record =
                Record { owners: record.owners.clone(), since: now, last: record.last, ..Record::default() };
        }
    }

    pub(crate) fn observe<'a>(
        &mut self,
        now: Duration,
        announcers: impl Iterator<Item = (usize, &'a BTreeSet<IpAddr>)>,
    ) {
        let announcers: Vec<_> = announcers.collect();
        for (address, record) in &mut self.addresses {
            let announce = announcers.iter().filter(|(_, announced)| announced.contains(address));
            record.observe(now, announce.map(|(index, _)| *index).collect());
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
    fn observe(&mut self, now: Duration, owners: BTreeSet<usize>) {
        let lasted = now - self.since;
        match self.owners.len() {
            0 => self.gap = self.gap.max(lasted),
            1 => {}
            _ => self.overlap = self.overlap.max(lasted),
        }
        if owners == self.owners {
            return;
        }
        if let Some(&owner) = owners.first().filter(|_| owners.len() == 1) {
            self.moves += usize::from(self.last.is_some_and(|last| last != owner));
            self.last = Some(owner);
        }
        // Two owners stay two when one of them changes.
        if !(owners.len() > 1 && self.owners.len() > 1) {
            self.since = now;
        }
        self.owners = owners;
    }
}
