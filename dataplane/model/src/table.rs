//! Routing table: an immutable snapshot of all frontends, looked up by address, and the difference between two
//! snapshots.

mod frontend_list;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

pub use self::frontend_list::FrontendList;
use crate::{AddressSet, Frontend, FrontendAddr};

/// New value of a frontend; `None` removes the frontend.
pub type FrontendChange = (FrontendAddr, Option<Arc<Frontend>>);

/// All frontends at one moment, sorted by address, and the set of clients that count as inside the cluster.
///
/// Unchanged frontends keep their `Arc` from table to table: pointer equality makes a swap cheap.
#[derive(Clone, Debug, Default)]
pub struct RoutingTable {
    generation: u64,
    frontends: FrontendList,
    internal_clients: Arc<AddressSet>,
}

impl RoutingTable {
    /// Builds a table and sorts the frontends. If two have the same address, the first one given stays: the projection
    /// resolves and reports conflicts.
    pub fn new(
        generation: u64,
        mut frontends: Vec<Arc<Frontend>>,
        internal_clients: Arc<AddressSet>,
    ) -> Self {
        frontends.sort_by_key(|frontend| frontend.addr);
        frontends.dedup_by_key(|frontend| frontend.addr);
        Self { generation, frontends: FrontendList::from_sorted(&frontends), internal_clients }
    }

    /// The next table: this one with `changes`, which are sorted by address and name each address once.
    #[must_use]
    pub fn with(&self, changes: &[FrontendChange], internal_clients: Arc<AddressSet>) -> Self {
        debug_assert!(changes.is_sorted_by(|(one, _), (next, _)| one < next));
        let frontends = self.frontends.with(changes);
        Self { generation: self.generation + 1, frontends, internal_clients }
    }

    /// Generation of the table: grows by one with each table that differs from its predecessor; 0 is the empty table at
    /// start.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Every frontend, sorted by address.
    pub fn frontends(&self) -> &FrontendList {
        &self.frontends
    }

    /// The frontend at exactly this address.
    pub fn get(&self, addr: FrontendAddr) -> Option<&Arc<Frontend>> {
        self.frontends.get(addr)
    }

    /// Whether any frontend is at this address.
    pub fn serves(&self, ip: IpAddr) -> bool {
        self.frontends.has(ip)
    }

    /// Addresses whose traffic counts as coming from inside the cluster: with `externalTrafficPolicy: Local` such
    /// clients get the cluster-wide endpoints.
    pub fn internal_clients(&self) -> &Arc<AddressSet> {
        &self.internal_clients
    }
}

/// The changes that turn `old` into `new`: every frontend whose value differs, sorted by address. Skips the chunks that
/// both tables share, and compares pointers before addresses for the other frontends.
pub fn diff(old: &RoutingTable, new: &RoutingTable) -> Vec<FrontendChange> {
    let [before, after] = old.frontends.unshared(&new.frontends);
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    let mut changes = Vec::new();
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(was), Some(is)) if Arc::ptr_eq(was, is) => Ordering::Equal,
            (Some(was), Some(is)) => was.addr.cmp(&is.addr),
        };
        let was = before.next_if(|_| order.is_le());
        let is = after.next_if(|_| order.is_ge());
        if was != is {
            changes.extend(was.or(is).map(|either| (either.addr, is.cloned())));
        }
    }
}
