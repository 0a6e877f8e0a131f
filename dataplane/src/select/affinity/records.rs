//! Affinity records behind one lock.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use sheave_model::EndpointAddr;

use super::Scope;
use crate::handover::{AffinityRecord, millis_since};

/// Number of records checked for expiry at each use. More than one, so that removal outpaces writing; each is a cache miss
/// in a large table.
const SWEPT: usize = 2;
/// Number of records compared to evict one (Redis found five to be nearly as good as all).
const SAMPLED: usize = 5;
/// Maximum number of records compared while it is not certain that the scope with the most is among them.
const SEARCHED: usize = 64;
/// Step between compared records, of [`SEARCHED`] places: the golden section spreads any number of them over the shard.
const STRIDE: usize = 39;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AffinityKey {
    pub(super) scope: Scope,
    pub(super) client: IpAddr,
}

/// Affinity record. It stores the time of use rather than of expiry, so that a changed timeout also applies to old records
/// at once (like iptables' `recent --rcheck --seconds`).
#[derive(Clone, Copy, Debug)]
struct StickyRecord {
    endpoint: EndpointAddr,
    /// The timeout at the last use, for sweeping.
    timeout_millis: u32,
    used: Instant,
}

impl StickyRecord {
    fn new(endpoint: EndpointAddr, timeout: Duration, now: Instant) -> Self {
        let timeout_millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        Self { endpoint, timeout_millis, used: now }
    }

    /// Time until it expires, by the timeout at its last use.
    fn remaining(&self, now: Instant) -> Duration {
        self.remaining_of(Duration::from_millis(u64::from(self.timeout_millis)), now)
    }

    fn remaining_of(&self, timeout: Duration, now: Instant) -> Duration {
        timeout.saturating_sub(now.saturating_duration_since(self.used))
    }
}

#[derive(Debug)]
pub(super) struct Shard {
    records: IndexMap<AffinityKey, StickyRecord, foldhash::fast::RandomState>,
    /// Number of records of each scope, so that a scope with many does not evict those of others.
    of_scopes: HashMap<Scope, usize, foldhash::fast::RandomState>,
    capacity: usize,
    /// One above the index that is swept next.
    hand: usize,
}

impl Shard {
    pub(super) fn new(capacity: usize, hasher: foldhash::fast::RandomState) -> Self {
        let of_scopes = HashMap::with_hasher(hasher.clone());
        Self { records: IndexMap::with_hasher(hasher), of_scopes, capacity, hand: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn peek(
        &self,
        key: &AffinityKey,
        timeout: Duration,
        now: Instant,
    ) -> Option<(EndpointAddr, Duration)> {
        let record = self.records.get(key)?;
        let remaining = record.remaining_of(timeout, now);
        (!remaining.is_zero()).then_some((record.endpoint, remaining))
    }

    pub(super) fn renew<T>(
        &mut self,
        key: &AffinityKey,
        timeout: Duration,
        now: Instant,
        usable: impl FnOnce(EndpointAddr) -> Option<T>,
    ) -> Option<T> {
        let record = self.records.get_mut(key).filter(|it| !it.remaining_of(timeout, now).is_zero())?;
        let usable = usable(record.endpoint)?;
        *record = StickyRecord::new(record.endpoint, timeout, now);
        self.sweep(now);
        Some(usable)
    }

    pub(super) fn record(
        &mut self,
        key: AffinityKey,
        endpoint: EndpointAddr,
        timeout: Duration,
        now: Instant,
    ) {
        self.sweep(now);
        if self.records.insert(key, StickyRecord::new(endpoint, timeout, now)).is_none() {
            *self.of_scopes.entry(key.scope).or_default() += 1;
        }
        if self.records.len() > self.capacity {
            self.evict(now);
        }
    }

    /// Unexpired records, or only those used since `since`.
    pub(super) fn records(&self, since: Option<Instant>, now: Instant) -> Vec<AffinityRecord> {
        let used = |record: &StickyRecord| since.is_none_or(|since| record.used >= since);
        let records =
            self.records.iter().filter(|(_, record)| used(record) && !record.remaining(now).is_zero());
        let handed = |(key, record): (&AffinityKey, &StickyRecord)| AffinityRecord {
            scope: key.scope.0,
            client: key.client,
            endpoint: record.endpoint,
            quiet_millis: millis_since(record.used, now),
            timeout_millis: u64::from(record.timeout_millis),
        };
        records.map(handed).collect()
    }

    pub(super) fn restore(&mut self, key: AffinityKey, record: &AffinityRecord, now: Instant) {
        let quiet = Duration::from_millis(record.quiet_millis);
        let timeout = Duration::from_millis(record.timeout_millis);
        // The clock starts at boot, so earlier times do not exist.
        let Some(used) = now.checked_sub(quiet) else { return };
        self.record(key, record.endpoint, timeout, used);
    }

    /// Checks the next few records in rotation, and removes expired ones. It goes downwards: `swap_remove` moves a record
    /// from the end, which was checked before or is young.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEPT {
            self.hand = self.hand.min(self.records.len()).checked_sub(1).unwrap_or(self.records.len());
            if self.records.get_index(self.hand).is_some_and(|(_, record)| record.remaining(now).is_zero()) {
                self.remove(self.hand);
            }
        }
    }

    fn remove(&mut self, index: usize) {
        let Some((AffinityKey { scope, .. }, _)) = self.records.swap_remove_index(index) else { return };
        if let Some(count) = self.of_scopes.get_mut(&scope) {
            *count -= 1;
            if *count == 0 {
                self.of_scopes.remove(&scope);
            }
        }
    }

    /// Removes a record of the scope with the most: the one that expires first among a few spread over the shard; never the newest, which
    /// is last.
    fn evict(&mut self, now: Instant) {
        let older = self.records.len().saturating_sub(1).max(1);
        let mut chosen = None;
        for step in 0..SEARCHED {
            let index = (self.hand + step * STRIDE % SEARCHED * older / SEARCHED) % older;
            let Some((key, record)) = self.records.get_index(index) else { continue };
            let of_scope = self.of_scopes.get(&key.scope).copied().unwrap_or_default();
            let candidate = (Reverse(of_scope), record.remaining(now), index);
            let best = chosen.map_or(candidate, |chosen| candidate.min(chosen));
            chosen = Some(best);
            // No scope has more than one that has half of the records.
            let (Reverse(most), ..) = best;
            if step + 1 >= SAMPLED && 2 * most >= self.records.len() {
                break;
            }
        }
        if let Some((.., index)) = chosen {
            self.remove(index);
        }
    }
}
