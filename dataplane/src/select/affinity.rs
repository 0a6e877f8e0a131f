//! Session affinity by client address: the endpoint of a client's last new connection or flow, and when that record expires. Shared by
//! all workers and bounded. There is no timer: writing records removes expired ones.

mod records;

#[cfg(test)]
mod tests;

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sheave_model::{AffinityScope, EndpointAddr, ServicePort};

use crate::balance::hash;
use crate::handover::AffinityRecord;
use records::{AffinityKey, Shard};

/// Default number of records: about 100 MB when full.
const DEFAULT_RECORDS: usize = 1_000_000;
/// Maximum number of shards: dozens of workers rarely contend for one lock.
const MAX_SHARDS: usize = 64;
/// Minimum number of records per shard: small tables have fewer shards, so that the bound stays accurate.
const MIN_SHARD_RECORDS: usize = 1024;

/// Owner of affinity records.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScopeOwner<'a> {
    /// A Service port.
    Port(&'a ServicePort),
    /// A part of the split of this port's frontends, by the part's identity: two routes that name the same Service share no records.
    Part(&'a ServicePort, u64),
}

impl ScopeOwner<'_> {
    /// Narrows the owner to one of several routes that share the port.
    pub(super) fn of_route(self, route: &str) -> Self {
        let route = hash::part(route);
        match self {
            Self::Port(port) => Self::Part(port, route),
            Self::Part(port, part) => Self::Part(port, hash::in_part(route, part)),
        }
    }
}

/// Scope of affinity: a Service port, whose records all its frontends share (kube-proxy: k/k #103000), or a whole Service if it is
/// configured that way.
///
/// The scope is a stable hash of the name. A collision is harmless: a record is used only if its endpoint is a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(u64);

impl Scope {
    /// The scope of a Service port.
    pub fn of(port: &ServicePort, scope: AffinityScope) -> Self {
        match scope {
            AffinityScope::Port => Self(hash::service_port(port)),
            AffinityScope::Service => Self(hash::service(port)),
        }
    }

    /// The scope of an owner of records.
    pub(super) fn of_owner(owner: ScopeOwner<'_>, scope: AffinityScope) -> Self {
        match owner {
            ScopeOwner::Port(port) => Self::of(port, scope),
            ScopeOwner::Part(port, part) => Self(hash::in_part(Self::of(port, scope).0, part)),
        }
    }
}

/// Affinity records of every Service port.
#[derive(Debug)]
pub struct AffinityTable {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
}

impl Default for AffinityTable {
    fn default() -> Self {
        Self::with_capacity(DEFAULT_RECORDS)
    }
}

impl AffinityTable {
    /// Creates a table for at most `max_records` (at least one), allocated on demand. When full, the scope with the most records makes room
    /// for a new one: one of its records that expires soon is evicted.
    pub fn with_capacity(max_records: usize) -> Self {
        let shards = (max_records / MIN_SHARD_RECORDS).clamp(1, MAX_SHARDS);
        let hasher = foldhash::fast::RandomState::default();
        let shard = || Mutex::new(Shard::new((max_records / shards).max(1), hasher.clone()));
        Self { shards: std::iter::repeat_with(shard).take(shards).collect(), hasher }
    }

    /// Restarts the timeout of the client's record and returns what `usable` returns for its endpoint. `None` if there is no
    /// record, it has expired, or its endpoint is not usable.
    pub fn renew<T>(
        &self,
        scope: Scope,
        client: IpAddr,
        timeout: Duration,
        now: Instant,
        usable: impl FnOnce(EndpointAddr) -> Option<T>,
    ) -> Option<T> {
        let key = AffinityKey { scope, client };
        self.shard(&key).renew(&key, timeout, now, usable)
    }

    /// The endpoint of the client's record and the time until it expires, without restarting the timeout.
    pub fn peek(
        &self,
        scope: Scope,
        client: IpAddr,
        timeout: Duration,
        now: Instant,
    ) -> Option<(EndpointAddr, Duration)> {
        let key = AffinityKey { scope, client };
        self.shard(&key).peek(&key, timeout, now)
    }

    /// Records the endpoint of a new connection or flow of the client.
    pub fn record(
        &self,
        scope: Scope,
        client: IpAddr,
        endpoint: EndpointAddr,
        timeout: Duration,
        now: Instant,
    ) {
        let key = AffinityKey { scope, client };
        self.shard(&key).record(key, endpoint, timeout, now);
    }

    /// Every unexpired record, or only those used since `since`. Each shard is locked while it is copied.
    pub fn records(&self, since: Option<Instant>, now: Instant) -> impl Iterator<Item = AffinityRecord> {
        self.shards.iter().flat_map(move |shard| lock(shard).records(since, now))
    }

    /// Restores a record of another process, replacing the client's own record.
    pub fn restore(&self, record: &AffinityRecord, now: Instant) {
        let key = AffinityKey { scope: Scope(record.scope), client: record.client };
        self.shard(&key).restore(key, record, now);
    }

    /// Number of records, including expired ones that are not yet removed.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, key: &AffinityKey) -> MutexGuard<'_, Shard> {
        // The shard's own map uses the lowest and highest bits of the same hash, so use others here.
        let bits = (self.hasher.hash_one(key) >> 32) as usize;
        let index = bits % self.shards.len();
        lock(&self.shards[index])
    }
}

/// Locks a shard. It is consistent between any two statements, so poisoning does not matter.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
