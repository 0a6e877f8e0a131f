//! Keeps the kernel from answering questions about announced addresses: the process does that, so that one that is dead or stands still
//! answers nobody, although its kernel has the addresses for seconds yet.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use tracing::debug;

use super::nftables::{Nftables, Place, Table};

/// How long the kernel is kept from it by a process that is gone: longer than it has the addresses, and not for good, because somebody
/// else may use them on this machine later.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How often that begins anew. Between, a process that is killed has at least the difference left.
const RENEWAL: Duration = Duration::from_secs(20);

/// For which addresses the kernel does not answer.
pub(super) struct KernelAnswers {
    nftables: Option<Nftables>,
    tables: [Suppressed; 2],
}

struct Suppressed {
    table: Table,
    places: BTreeSet<Place>,
    exists: bool,
    /// When it was renewed, or that was tried.
    renewed: Instant,
}

impl KernelAnswers {
    /// Leaves the tables of a process before this one as they are.
    pub(super) fn new(now: Instant) -> Self {
        let suppressed = |table| Suppressed { table, places: BTreeSet::new(), exists: false, renewed: now };
        let tables = [Table::Arp, Table::NeighbourDiscovery].map(suppressed);
        Self { nftables: Nftables::open().ok(), tables }
    }

    /// Has the kernel answer for everything; what a process before this one has left is removed as well.
    pub(super) fn restore(&mut self) {
        for suppressed in &mut self.tables {
            suppressed.exists = false;
            let removed = self.nftables.as_mut().map(|nftables| nftables.remove(suppressed.table));
            if let Some(Err(error)) = removed {
                debug!(%error, table = ?suppressed.table, "a table cannot be removed");
            }
        }
    }

    /// Keeps the kernel from answering for these alone, those of IPv4 first.
    pub(super) fn suppress(&mut self, wanted: [BTreeSet<Place>; 2], now: Instant) -> io::Result<()> {
        let mut outcome = Ok(());
        for (suppressed, wanted) in self.tables.iter_mut().zip(wanted) {
            if wanted.is_empty() && !suppressed.exists {
                suppressed.places.clear();
                continue;
            }
            let done = match &mut self.nftables {
                Some(nftables) => suppressed.follow(nftables, wanted, now),
                None => Err(io::ErrorKind::Unsupported.into()),
            };
            outcome = outcome.and(done);
        }
        outcome
    }

    /// When `suppress` has something to do although nothing has changed.
    pub(super) fn due(&self) -> Option<Instant> {
        let used = self.tables.iter().filter(|suppressed| !suppressed.places.is_empty());
        used.map(|suppressed| suppressed.renewed + RENEWAL).min()
    }
}

impl Suppressed {
    fn follow(&mut self, nftables: &mut Nftables, wanted: BTreeSet<Place>, now: Instant) -> io::Result<()> {
        let before = std::mem::replace(&mut self.places, wanted);
        if self.places.is_empty() {
            self.exists = false;
            return nftables.remove(self.table);
        }
        let all: Vec<Place> = self.places.iter().copied().collect();
        let renews = now >= self.renewed + RENEWAL;
        if self.exists {
            let done = if renews {
                nftables.replace(self.table, &all)
            } else {
                let gone: Vec<Place> = before.difference(&self.places).copied().collect();
                let new: Vec<Place> = self.places.difference(&before).copied().collect();
                nftables.change(self.table, &gone, &new)
            };
            match done {
                Ok(()) if renews => self.renewed = now,
                Ok(()) => {}
                // Somebody has removed it, with all tables for instance.
                Err(error) => {
                    debug!(%error, table = ?self.table, "a table is made anew");
                    self.exists = false;
                }
            }
        }
        if !self.exists {
            self.renewed = now;
            nftables.create(self.table, &all, TIMEOUT)?;
            self.exists = true;
        }
        Ok(())
    }
}
