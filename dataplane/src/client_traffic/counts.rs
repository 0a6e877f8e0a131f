//! Counters by client network and frontend. Their number is bounded: a client with a whole IPv6 /32 must not exhaust the memory.

use std::collections::HashMap;
use std::ops::AddAssign;

use sheave_model::FrontendAddr;

use super::prefix::ClientPrefix;

/// Number of bytes that weighs as much as a connection when some counters must be merged.
const BYTES_OF_WEIGHT: u64 = 16 << 10;

/// Connections, flows and bytes of clients since the last collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Open TCP connections and UDP flows.
    pub open: u64,
    /// TCP connections and UDP flows that were opened.
    pub opened: u64,
    /// Bytes forwarded from clients to endpoints.
    pub client_bytes: u64,
    /// Bytes forwarded from endpoints to clients.
    pub endpoint_bytes: u64,
}

impl ClientCounts {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.client_bytes.saturating_add(self.endpoint_bytes)
    }

    fn weight(&self) -> u64 {
        self.open.saturating_add(self.opened).saturating_add(self.bytes() / BYTES_OF_WEIGHT)
    }
}

impl AddAssign for ClientCounts {
    fn add_assign(&mut self, more: Self) {
        self.open += more.open;
        self.opened += more.opened;
        self.client_bytes += more.client_bytes;
        self.endpoint_bytes += more.endpoint_bytes;
    }
}

/// Traffic of clients between two moments, by network and frontend. Its size is bounded: when it is full, the lighter half becomes one
/// sum. A network with much traffic by then is not in that half, unless most have as much. A merged network is counted anew from then on.
#[derive(Debug)]
pub struct ClientTraffic {
    most: usize,
    counts: HashMap<(ClientPrefix, FrontendAddr), ClientCounts, foldhash::fast::RandomState>,
    others: ClientCounts,
    merged: u64,
}

impl ClientTraffic {
    /// Creates an empty record with room for `most` entries.
    pub(super) fn with_room(most: usize) -> Self {
        Self { most, counts: HashMap::default(), others: ClientCounts::default(), merged: 0 }
    }

    /// Each network with each frontend that it has used.
    pub fn iter(&self) -> impl Iterator<Item = (ClientPrefix, FrontendAddr, ClientCounts)> {
        self.counts.iter().map(|((client, frontend), counts)| (*client, *frontend, *counts))
    }

    /// Sum of the entries for which there was no room.
    pub fn others(&self) -> ClientCounts {
        self.others
    }

    /// Number of entries in that sum. An entry that was added again counts each time.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    pub(super) fn add(&mut self, client: ClientPrefix, frontend: FrontendAddr, counts: ClientCounts) {
        if self.counts.len() >= self.most && !self.counts.contains_key(&(client, frontend)) {
            self.make_room();
        }
        *self.counts.entry((client, frontend)).or_default() += counts;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.others += other.others;
        self.merged += other.merged;
        other.iter().for_each(|(client, frontend, counts)| self.add(client, frontend, counts));
    }

    fn make_room(&mut self) {
        let mut weights: Vec<u64> = self.counts.values().map(ClientCounts::weight).collect();
        let middle = weights.len() / 2;
        let (_, median, _) = weights.select_nth_unstable(middle);
        let Self { counts, others, merged, .. } = self;
        counts.retain(|_, counts| {
            let stays = counts.weight() > *median;
            if !stays {
                *others += *counts;
                *merged += 1;
            }
            stays
        });
    }
}
