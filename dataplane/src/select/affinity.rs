//! Session affinity by client address: which endpoint a client's last new connection or flow went to, and until when
//! that counts. Shared by all workers and bounded.
//!
//! It must not know frontends, routes or balancers: whether a recorded endpoint may still be used is the caller's to
//! say. It has no clock and no timer; expired records leave as others are written.

mod shard;

#[cfg(test)]
mod tests;

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sheave_model::{EndpointAddr, ServicePort};

use crate::balance::hash;
use shard::{AffinityKey, Shard};

/// About 100 MB when full.
const DEFAULT_RECORDS: usize = 1_000_000;
/// Enough that dozens of workers seldom meet on one lock.
const MAX_SHARDS: usize = 64;
/// Small tables have fewer shards, so that the bound stays true to its number.
const MIN_SHARD_RECORDS: usize = 1024;

/// What records are separate by: the Service port. So each port of a Service has its own affinity, and all frontends of
/// one port share it (kube-proxy: k/k #103000).
///
/// A stable hash of the port's name. A collision would be harmless: a record counts only if its endpoint may be chosen
/// anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(u64);

impl Scope {
    /// The scope of one Service port.
    pub fn of(port: &ServicePort) -> Self {
        Self(hash::service_port(port))
    }
}

/// One record as a plain value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityRecord {
    /// Which Service port.
    pub scope: Scope,
    /// Whose record.
    pub client: IpAddr,
    /// Where the client's last new connection or flow went.
    pub endpoint: EndpointAddr,
    /// How long the record still counts.
    pub remaining: Duration,
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
    /// Keeps at most `max_records` (at least one); allocates as records come. When full, a record near its end makes
    /// room for a new one.
    pub fn with_capacity(max_records: usize) -> Self {
        let shards = (max_records / MIN_SHARD_RECORDS).clamp(1, MAX_SHARDS);
        let hasher = foldhash::fast::RandomState::default();
        let shard = || Mutex::new(Shard::new((max_records / shards).max(1), hasher.clone()));
        Self { shards: std::iter::repeat_with(shard).take(shards).collect(), hasher }
    }

    /// The endpoint that the client sticks to, as `usable` returns it, and starts its timeout anew. `None` if there is
    /// no record, if it is older than `timeout` or if it is not usable.
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

    /// The endpoint that [`Self::renew`] would offer to `usable`, and how long the record still counts, without starting
    /// the timeout anew.
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

    /// Records where a new connection or flow of the client went.
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

    /// How many records are kept, expired ones that nobody swept yet included.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether no record is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every record that still counts, in no order.
    pub fn export(&self, now: Instant) -> Vec<AffinityRecord> {
        self.shards.iter().flat_map(|shard| lock(shard).export(now)).collect()
    }

    fn shard(&self, key: &AffinityKey) -> MutexGuard<'_, Shard> {
        // The shard's own map goes by the lowest and highest bits of the same hash: take others here.
        let bits = (self.hasher.hash_one(key) >> 32) as usize;
        let index = bits % self.shards.len();
        lock(&self.shards[index])
    }
}

/// A record is whole between any two statements of a shard, so one whose thread panicked is as good as any.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
