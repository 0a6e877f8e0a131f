//! When memory runs out although nobody is let in any more, the connections for which the most waits are reset: their peers do not
//! read, and what waits for them would have the kernel kill all of the process.
//!
//! It must not know how much memory there is, nor who counts it.

use std::cmp::Reverse;

use super::{ConnectionTable, EntryState, end};
use crate::counters::CloseReason;
use crate::limits::capacity::Capacity;

/// Connections that are looked at each time, round and round: a few system calls each.
const LOOKED_AT: usize = 2048;

/// A connection for which less waits is not reset: it does not help.
const LEAST: u64 = 64 << 10;

impl ConnectionTable {
    /// Gives back memory whenever more is taken than there may be, for ever.
    pub(crate) async fn watch_memory(&self, capacity: &Capacity) {
        let mut next = 0;
        loop {
            capacity.wants_relief().await;
            next = self.relieve_memory(capacity, next);
        }
    }

    /// Looks at some connections from `first` on; gives where to go on.
    pub(super) fn relieve_memory(&self, capacity: &Capacity, first: usize) -> usize {
        let mut entries = self.entries.borrow_mut();
        let last = first + LOOKED_AT;
        let waiting = |index: usize| match &entries.get(index)?.state {
            EntryState::Relaying(relay, _) => {
                Some((relay.waiting(), index)).filter(|(bytes, _)| *bytes >= LEAST)
            }
            EntryState::Connecting(_) | EntryState::Changing => None,
        };
        let mut holders: Vec<(u64, usize)> = (first..last).filter_map(waiting).collect();
        holders.sort_unstable_by_key(|holder| Reverse(*holder));
        for (bytes, index) in holders {
            if !capacity.relieve_of(bytes) {
                break;
            }
            if let Some(EntryState::Relaying(relay, _)) = entries.get(index).map(|entry| &entry.state) {
                relay.cut();
            }
            end(&mut entries, index as u32, CloseReason::Memory);
        }
        if last >= entries.capacity() { 0 } else { last }
    }
}
