//! Selection of endpoints: the routing table compiled so that a new connection or flow takes one lookup and one pick. Each frontend
//! has its balancers, loads and affinity; unchanged ones are carried over from table to table.

mod active_frontend;
pub mod affinity;
mod candidates;
mod endpoint_health;
mod endpoint_load;
mod server_names;
mod split;

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use sheave_model::{ClientAddr, EndpointAddr, FrontendAddr, RoutingTable, diff};

use crate::limits::service::Limiters;
pub use active_frontend::{ActiveFrontend, Preview};
pub use endpoint_health::{EndpointHealth, FULL_SHARE, ServiceHealth};
pub(crate) use endpoint_load::Unanswered;
pub use endpoint_load::{EndpointLoad, Picked};
pub use split::PartId;

/// Class of a client, which selects a frontend's external or internal route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Origin {
    /// Outside the cluster.
    External,
    /// A pod, a node, or a configured internal CIDR.
    Internal,
}

/// Result of a pick.
#[derive(Debug)]
#[must_use]
pub enum Pick {
    /// Goes to this endpoint.
    Forward(Picked),
    /// Refused with TCP reset or ICMP port unreachable.
    Reject,
    /// Dropped.
    Drop,
    /// The part of the split frontend that was chosen refuses its share: a connection is reset, and datagrams are dropped.
    Refused(RefusedShare),
}

/// Why a part of a split refuses its share of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RefusedShare {
    /// The part's backend cannot be served.
    InvalidBackend,
    /// The part has no endpoint for these clients.
    NoEndpoint,
}

/// Inputs of a pick besides the table.
#[derive(Clone, Copy, Debug)]
pub struct PickRequest<'a> {
    /// The client.
    pub client: ClientAddr,
    /// The client's class.
    pub origin: Origin,
    /// A fresh random number; apart from it the pick is deterministic.
    pub random: u64,
    /// Current time, for the affinity timeout.
    pub now: Instant,
    /// Endpoints that this client's connection has failed to reach; avoided while there is another.
    pub tried: &'a [EndpointAddr],
    /// Part of a split frontend that the connection was given by [`ActiveFrontend::part`]: its retries stay there. `None` = choose.
    pub part: Option<PartId>,
}

/// Number of shards; a power of two.
const SHARDS: usize = 256;

/// The frontends of one shard, keyed by the address inside the frontend: a table of pointers fits the cache.
type TableShard = HashSet<ByAddr, foldhash::fast::RandomState>;

#[derive(Clone, Debug)]
struct ByAddr(Arc<ActiveFrontend>);

impl Borrow<FrontendAddr> for ByAddr {
    fn borrow(&self) -> &FrontendAddr {
        &self.0.addr
    }
}

impl Hash for ByAddr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.addr.hash(state);
    }
}

impl PartialEq for ByAddr {
    fn eq(&self, other: &Self) -> bool {
        self.0.addr == other.0.addr
    }
}

impl Eq for ByAddr {}

/// The routing table compiled for picking.
///
/// Shards without changes are shared with the previous table: one change among ten thousand frontends copies forty entries.
#[derive(Debug)]
pub struct ActiveTable {
    table: Arc<RoutingTable>,
    health: EndpointHealth,
    shards: Box<[Arc<TableShard>]>,
    limiters: Arc<Limiters>,
}

impl Default for ActiveTable {
    /// A table without frontends.
    fn default() -> Self {
        Self {
            table: Arc::default(),
            health: EndpointHealth::default(),
            shards: vec![Arc::default(); SHARDS].into(),
            limiters: Arc::default(),
        }
    }
}

/// The shard of an address. The cluster chooses frontend addresses, so an attacker cannot crowd a shard; they come in runs, which the
/// multiplication spreads (Fibonacci hashing).
fn shard_of(addr: FrontendAddr) -> usize {
    let ip = match addr.ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            (bits as u64) ^ ((bits >> 64) as u64)
        }
    };
    let mixed = (ip ^ (u64::from(addr.port) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % SHARDS
}

impl ActiveTable {
    /// Compiles `table` with the health of `previous`; frontends with the same value are carried over with their state.
    #[must_use]
    #[expect(clippy::mutable_key_type, reason = "the key is the address, which never changes")]
    pub fn compile(table: impl Into<Arc<RoutingTable>>, previous: &Self) -> Self {
        let table = table.into();
        let mut shards = previous.shards.clone();
        let health = previous.health.clone();
        let limiters = Arc::clone(&previous.limiters);
        for (addr, frontend) in diff(&previous.table, &table) {
            let Some(shard) = shards.get_mut(shard_of(addr)) else { continue };
            let shard = Arc::make_mut(shard);
            let before = shard.take(&addr);
            if let Some(spec) = frontend {
                let limiter = limiters.get(&spec);
                let active = ActiveFrontend::compile(
                    spec,
                    (&health, &HashSet::new()),
                    limiter,
                    before.as_ref().map(|ByAddr(before)| &**before),
                );
                shard.insert(ByAddr(Arc::new(active)));
            }
        }
        Self { table, health, shards, limiters }
    }

    /// The limiters of Services, shared by all successive tables.
    pub(crate) fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    /// Compiles the same routing table with other health of endpoints. Frontends whose endpoints' health did not change are carried
    /// over.
    #[must_use]
    pub fn with_health(&self, health: EndpointHealth) -> Self {
        let changed = self.health.difference(&health);
        let mut shards = self.shards.clone();
        for shard in &mut shards {
            let affected: Vec<_> =
                shard.iter().filter(|ByAddr(it)| it.is_judged_by(&changed)).cloned().collect();
            for ByAddr(before) in affected {
                let (spec, limiter) = (Arc::clone(before.spec()), before.limiter().cloned());
                let after = ActiveFrontend::compile(spec, (&health, &changed), limiter, Some(&before));
                Arc::make_mut(shard).replace(ByAddr(Arc::new(after)));
            }
        }
        Self { table: Arc::clone(&self.table), health, shards, limiters: Arc::clone(&self.limiters) }
    }

    /// The health of endpoints.
    pub fn health(&self) -> &EndpointHealth {
        &self.health
    }

    /// The routing table that this table was compiled from.
    pub fn table(&self) -> &RoutingTable {
        &self.table
    }

    /// The frontend at exactly this address.
    pub fn get(&self, addr: FrontendAddr) -> Option<&Arc<ActiveFrontend>> {
        self.shards.get(shard_of(addr))?.get(&addr).map(|ByAddr(frontend)| frontend)
    }

    /// Whether the address belongs to a Pod, node or Service, so that NetworkPolicies and Pods trust it as an identity. A client that
    /// only claims such an address must not get it as the source of a connection.
    pub fn is_identity(&self, ip: IpAddr) -> bool {
        self.table.internal_clients().contains(ip) || self.table.serves(ip)
    }

    /// The class of a frontend's client. A packet from the frontend's own address comes from this machine: the kernel uses that
    /// source when a local process connects to an address of the machine (kube-proxy short-circuits such packets as well: `--src-type
    /// LOCAL` in pkg/proxy/iptables/proxier.go).
    pub fn origin(&self, frontend: FrontendAddr, client: ClientAddr) -> Origin {
        let ip = client.ip();
        if ip == frontend.ip || self.table.internal_clients().contains(ip) {
            Origin::Internal
        } else {
            Origin::External
        }
    }
}
