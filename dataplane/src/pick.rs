//! The routing table made ready for picking: each frontend with its balancers, loads and affinity, so that the answer to
//! "where does this client go" is one lookup and one pick. Unchanged frontends are carried over from table to table.
//!
//! It must not know sockets or tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::affinity::AffinityTable;
use crate::model::{ClientAddr, EndpointAddr, Frontend, FrontendAddr, Route};
use crate::table::RoutingTable;

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

/// One frontend, ready for picking.
#[derive(Debug)]
pub struct ActiveFrontend {
    spec: Arc<Frontend>,
}

impl ActiveFrontend {
    /// The frontend as the table has it.
    pub fn spec(&self) -> &Arc<Frontend> {
        &self.spec
    }

    /// Chooses an endpoint for a new connection or flow, by affinity first, and records it there.
    pub fn pick(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Pick {
        let _ = affinity;
        let route = match request.origin {
            Origin::External => &self.spec.external,
            Origin::Internal => &self.spec.internal,
        };
        match route {
            Route::Forward(_) | Route::Reject => Pick::Reject,
            Route::Drop => Pick::Drop,
        }
    }

    /// Whether the endpoint still serves here, Ready or Terminating: then its flows stay.
    pub fn serves(&self, endpoint: EndpointAddr) -> bool {
        self.spec.backends.iter().flat_map(|backend| &backend.endpoints).any(|e| e.addr == endpoint)
    }
}

/// The whole table, ready for picking.
#[derive(Debug, Default)]
pub struct ActiveTable {
    table: RoutingTable,
    frontends: HashMap<FrontendAddr, Arc<ActiveFrontend>, foldhash::fast::RandomState>,
}

impl ActiveTable {
    /// Prepares `table`; frontends that `previous` has with the same value are carried over with their state.
    #[must_use]
    pub fn compile(table: RoutingTable, previous: &Self) -> Self {
        let frontends = table
            .frontends()
            .iter()
            .map(|spec| {
                let kept = previous.frontends.get(&spec.addr).filter(|kept| kept.spec == *spec);
                let active = kept.cloned().unwrap_or_else(|| Arc::new(ActiveFrontend { spec: spec.clone() }));
                (spec.addr, active)
            })
            .collect();
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

    /// Whether a client counts as inside the cluster.
    pub fn origin(&self, client: ClientAddr) -> Origin {
        if self.table.internal_clients().contains(client.ip()) { Origin::Internal } else { Origin::External }
    }
}
