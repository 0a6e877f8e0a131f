//! The routing table made ready for picking: each frontend with its balancers, loads and affinity, so that the answer to
//! "where does this client go" is one lookup and one pick. Unchanged frontends are carried over from table to table.
//!
//! It must not know sockets or tasks.

mod active_frontend;
pub mod affinity;
mod candidates;
mod endpoint_load;
mod unhealthy;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use sheave_model::{ClientAddr, EndpointAddr, FrontendAddr, FrontendChange, RoutingTable, diff};

use crate::limits::service::Limiters;
pub use active_frontend::{ActiveFrontend, Preview};
pub use endpoint_load::{EndpointLoad, Picked};
pub use unhealthy::Unhealthy;

/// Which class of clients one belongs to; decides between a frontend's external and internal route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Origin {
    /// Outside the cluster.
    External,
    /// A pod, a node, or a configured internal CIDR.
    Internal,
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

/// Into so many parts the frontends are spread. A power of two.
const PARTS: usize = 256;

/// Some of the frontends.
type Part = HashMap<FrontendAddr, Arc<ActiveFrontend>, foldhash::fast::RandomState>;

/// The whole table, ready for picking.
///
/// It is kept in parts, and shares those in which nothing changed with the table before: one change among ten thousand
/// frontends makes forty entries anew.
#[derive(Debug)]
pub struct ActiveTable {
    table: Arc<RoutingTable>,
    unhealthy: Unhealthy,
    parts: Box<[Arc<Part>]>,
    limiters: Arc<Limiters>,
}

impl Default for ActiveTable {
    /// Without any frontend.
    fn default() -> Self {
        Self {
            table: Arc::default(),
            unhealthy: Unhealthy::default(),
            parts: vec![Arc::default(); PARTS].into(),
            limiters: Arc::default(),
        }
    }
}

/// The part that an address belongs to. Addresses are the cluster's own, so nobody can crowd a part; they come in runs, which
/// the multiplication spreads (Fibonacci hashing).
fn part_of(addr: FrontendAddr) -> usize {
    let ip = match addr.ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            (bits as u64) ^ ((bits >> 64) as u64)
        }
    };
    let mixed = (ip ^ (u64::from(addr.port) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % PARTS
}

impl ActiveTable {
    /// Prepares `table` with the health that `previous` has; frontends that it has with the same value are carried over
    /// with their state.
    #[must_use]
    pub fn compile(table: impl Into<Arc<RoutingTable>>, previous: &Self) -> Self {
        let table = table.into();
        let mut parts = previous.parts.clone();
        let unhealthy = previous.unhealthy.clone();
        let limiters = Arc::clone(&previous.limiters);
        for FrontendChange { addr, frontend, .. } in diff(&previous.table, &table) {
            let Some(part) = parts.get_mut(part_of(addr)) else { continue };
            let part = Arc::make_mut(part);
            let before = part.remove(&addr);
            if let Some(spec) = frontend {
                let limiter = limiters.get(&spec);
                let active = ActiveFrontend::compile(spec, &unhealthy, limiter, before.as_deref());
                part.insert(addr, Arc::new(active));
            }
        }
        Self { table, unhealthy, parts, limiters }
    }

    /// The same table with these unhealthy endpoints instead. Frontends whose rules do not ask for health, or whose
    /// endpoints are as they were, are carried over.
    #[must_use]
    pub fn with_health(&self, unhealthy: Unhealthy) -> Self {
        let changed = self.unhealthy.difference(&unhealthy);
        let mut parts = self.parts.clone();
        for part in &mut parts {
            let concerned: Vec<_> =
                part.values().filter(|frontend| frontend.depends_on(&changed)).cloned().collect();
            for before in concerned {
                let spec = Arc::clone(before.spec());
                let (addr, limiter) = (spec.addr, before.limiter().cloned());
                let after = ActiveFrontend::compile(spec, &unhealthy, limiter, Some(&before));
                Arc::make_mut(part).insert(addr, Arc::new(after));
            }
        }
        Self { table: Arc::clone(&self.table), unhealthy, parts, limiters: Arc::clone(&self.limiters) }
    }

    /// The endpoints that count as unhealthy.
    pub fn unhealthy(&self) -> &Unhealthy {
        &self.unhealthy
    }

    /// The table that this was made from.
    pub fn table(&self) -> &RoutingTable {
        &self.table
    }

    /// The frontend at exactly this address.
    pub fn get(&self, addr: FrontendAddr) -> Option<&Arc<ActiveFrontend>> {
        self.parts.get(part_of(addr))?.get(&addr)
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
