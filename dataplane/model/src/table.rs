//! The routing table: an immutable snapshot of all frontends, looked up by address.
//!
//! It must not know sockets or balancers; what changed between two tables is [`diff`]'s to say.

pub(crate) mod diff;
mod frontend_list;

use std::sync::Arc;

pub use self::frontend_list::FrontendList;
use crate::address_set::AddressSet;
use crate::{Frontend, FrontendAddr};

/// All frontends at one moment, sorted by address, and who counts as a client inside the cluster.
///
/// Unchanged frontends keep their `Arc` from table to table: pointer equality is what makes a swap cheap.
#[derive(Clone, Debug, Default)]
pub struct RoutingTable {
    generation: u64,
    frontends: FrontendList,
    internal_clients: Arc<AddressSet>,
}

impl RoutingTable {
    /// Sorts the frontends. Of two with the same address the first given stays: conflicts are settled, and reported,
    /// by the projection.
    pub fn new(
        generation: u64,
        mut frontends: Vec<Arc<Frontend>>,
        internal_clients: Arc<AddressSet>,
    ) -> Self {
        frontends.sort_by_key(|frontend| frontend.addr);
        frontends.dedup_by_key(|frontend| frontend.addr);
        Self { generation, frontends: FrontendList::sorted(frontends.iter()), internal_clients }
    }

    /// The next table, with these frontends in place of what was at their addresses; `None` takes away. `changes` are sorted by
    /// address, each once.
    #[must_use]
    pub fn changed(
        &self,
        changes: &[(FrontendAddr, Option<Arc<Frontend>>)],
        internal_clients: Arc<AddressSet>,
    ) -> Self {
        debug_assert!(changes.is_sorted_by(|(one, _), (next, _)| one < next));
        let frontends = self.frontends.with(changes);
        Self { generation: self.generation + 1, frontends, internal_clients }
    }

    /// Grows by one with each table that differs from the one before; 0 is the empty table at start.
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

    /// Addresses whose traffic counts as coming from inside the cluster (semantics of `externalTrafficPolicy: Local`:
    /// such clients get the cluster-wide endpoints).
    pub fn internal_clients(&self) -> &Arc<AddressSet> {
        &self.internal_clients
    }
}
