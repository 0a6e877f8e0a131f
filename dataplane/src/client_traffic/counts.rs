//! Counters by client network and frontend, of which there are only so many: whoever has a whole /32 of IPv6 must not fill the memory.

use std::collections::HashMap;
use std::ops::AddAssign;

use sheave_model::FrontendAddr;

use super::prefix::ClientPrefix;

/// Bytes that count as much as a connection where some have to give way.
const BYTES_OF_WEIGHT: u64 = 16 << 10;

/// What clients have, and have had since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// TCP connections and UDP flows that are open.
    pub open: u64,
    /// Those that were opened.
    pub opened: u64,
    /// Bytes passed on from clients to endpoints.
    pub client_bytes: u64,
    /// Bytes passed on from endpoints to clients.
    pub endpoint_bytes: u64,
}

impl ClientCounts {
    /// In both directions.
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

/// What clients had between two moments, by network and frontend. There is room for so many of these; when it is full, the lighter
/// half becomes one sum. Who has had much by then is not in that half, unless most have as much; what it has may be counted from then on.
#[derive(Debug)]
pub struct ClientTraffic {
    most: usize,
    counts: HashMap<(ClientPrefix, FrontendAddr), ClientCounts, foldhash::fast::RandomState>,
    others: ClientCounts,
    merged: u64,
}

impl ClientTraffic {
    /// Of nobody, with room for so many.
    pub(super) fn with_room(most: usize) -> Self {
        Self { most, counts: HashMap::default(), others: ClientCounts::default(), merged: 0 }
    }

    /// Each network with each frontend that it has used.
    pub fn iter(&self) -> impl Iterator<Item = (ClientPrefix, FrontendAddr, ClientCounts)> {
        self.counts.iter().map(|((client, frontend), counts)| (*client, *frontend, *counts))
    }

    /// The sum of those for which there was no room.
    pub fn others(&self) -> ClientCounts {
        self.others
    }

    /// How many networks that sum is of. One that came again counts each time.
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
