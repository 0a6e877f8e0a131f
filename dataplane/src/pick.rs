//! The routing table made ready for picking: each frontend with its balancers, loads and affinity, so that the answer to
//! "where does this client go" is one lookup and one pick. Unchanged frontends are carried over from table to table.
//!
//! It must not know sockets or tasks.

mod frontend;
mod selection;
mod serving;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::model::{ClientAddr, EndpointAddr, Frontend, FrontendAddr};
use crate::table::RoutingTable;
pub use frontend::{ActiveFrontend, Preview};

/// Which class of clients one belongs to; decides between a frontend's external and internal route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Origin {
    /// Outside the cluster.
    External,
    /// A pod, a node, or a configured internal CIDR.
    Internal,
}

/// Connections or flows that an endpoint has through this gateway. Shared by all workers and kept across tables.
#[derive(Debug, Default)]
pub struct EndpointLoad {
    active: AtomicU32,
}

impl EndpointLoad {
    /// Open connections or flows.
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }
}

/// A chosen endpoint. Counts as one connection or flow of its endpoint until dropped.
#[derive(Debug)]
pub struct Picked {
    addr: EndpointAddr,
    load: Arc<EndpointLoad>,
}

impl Picked {
    fn new(addr: EndpointAddr, load: &Arc<EndpointLoad>) -> Self {
        load.active.fetch_add(1, Ordering::Relaxed);
        Self { addr, load: Arc::clone(load) }
    }

    /// Where to connect.
    pub fn addr(&self) -> EndpointAddr {
        self.addr
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        self.load.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where a new connection or flow goes.
#[derive(Debug)]
#[must_use]
pub enum Pick {
    /// To this endpoint.
    Forward(Picked),
    /// Nowhere, visibly.
    Reject,
    /// Nowhere, silently.
    Drop,
}

/// What a pick depends on besides the table.
#[derive(Clone, Copy, Debug)]
pub struct PickRequest<'a> {
    /// Who asks.
    pub client: ClientAddr,
    /// From inside or outside the cluster.
    pub origin: Origin,
    /// A fresh random number; the pick itself is deterministic.
    pub random: u64,
    /// The present moment, for affinity's timeout.
    pub now: Instant,
    /// Endpoints that already failed this client's connection; avoided while another is left.
    pub tried: &'a [EndpointAddr],
}

/// The whole table, ready for picking.
#[derive(Debug, Default)]
pub struct ActiveTable {
    table: Arc<RoutingTable>,
    frontends: HashMap<FrontendAddr, Arc<ActiveFrontend>, foldhash::fast::RandomState>,
}

impl ActiveTable {
    /// Prepares `table`; frontends that `previous` has with the same value are carried over with their state.
    #[must_use]
    pub fn compile(table: impl Into<Arc<RoutingTable>>, previous: &Self) -> Self {
        let table = table.into();
        let activate = |spec: &Arc<Frontend>| {
            let before = previous.frontends.get(&spec.addr);
            let kept = before.filter(|kept| Arc::ptr_eq(kept.spec(), spec) || kept.spec() == spec);
            let make = || Arc::new(ActiveFrontend::compile(Arc::clone(spec), before.map(AsRef::as_ref)));
            (spec.addr, kept.cloned().unwrap_or_else(make))
        };
        let frontends = table.frontends().iter().map(activate).collect();
        Self { table, frontends }
    }

    /// The table that this was made from.
    pub fn table(&self) -> &RoutingTable {
        &self.table
    }

    /// The frontend at exactly this address.
    pub fn get(&self, addr: FrontendAddr) -> Option<&Arc<ActiveFrontend>> {
        self.frontends.get(&addr)
    }

    /// Whether a client of a frontend counts as inside the cluster. A packet from the frontend's own address is from this
    /// machine: the kernel gives it that source when a process here talks to an address that the machine has.
    /// (kube-proxy short-circuits such packets, too: `--src-type LOCAL` in pkg/proxy/iptables/proxier.go.)
    pub fn origin(&self, frontend: FrontendAddr, client: ClientAddr) -> Origin {
        let ip = client.ip();
        if ip == frontend.ip || self.table.internal_clients().contains(ip) {
            Origin::Internal
        } else {
            Origin::External
        }
    }
}
