//! What walks the table in the background, a few entries at a time: connections that have become idle end, and where memory runs
//! out, those for which the most waits are reset. Their peers do not read, and what waits for them would have the kernel kill
//! the whole process.

use std::cmp::Reverse;
use std::time::Duration;

use slab::Slab;
use tokio::time::sleep;

use super::{ConnectionTable, Entry, EntryState, end};
use crate::counters::CloseReason;
use crate::limits::capacity::Capacity;
use crate::tcp::idle_clock::{CHECKS, TICK, Tick, ticks};
use crate::tcp::relay::RelayState;

/// Idle connections are looked for as often as this at least, since a connection gets some of its options then.
const LONGEST_ROUND: Duration = Duration::from_secs(60);
/// Entries that are checked at a time. Each may take some system calls.
pub(super) const CHECKED_AT_A_TIME: usize = 256;
/// Connections that are looked at each time, round and round: a few system calls each.
const LOOKED_AT: usize = 2048;

/// A connection for which less waits is not reset: it does not help.
const LEAST: u64 = 64 << 10;

impl ConnectionTable {
    /// Ends connections that have become idle, for ever: a few are checked at a time, so that no other one waits while
    /// a large table is walked.
    pub(crate) async fn watch_idle(&self) {
        let mut next = 0;
        loop {
            tokio::select! {
                () = sleep(self.until_next_check()) => {}
                () = self.idle_shortened.notified() => continue,
            }
            let mut entries = self.entries.borrow_mut();
            self.check_some(&mut entries, next);
            next += CHECKED_AT_A_TIME;
            if next >= entries.capacity() {
                let shortest = self.shortest_of_round.replace(u32::MAX);
                self.shortest_idle.set(shortest.min(ticks(self.idle)));
                next = 0;
                if entries.len() < entries.capacity() / 4 {
                    entries.shrink_to_fit();
                }
            }
        }
    }

    /// So that all entries are checked in one round.
    fn until_next_check(&self) -> Duration {
        let round = (self.shortest_idle.get() * TICK / CHECKS).clamp(TICK / 2, LONGEST_ROUND);
        let steps = self.entries.borrow().capacity().div_ceil(CHECKED_AT_A_TIME).max(1);
        let step = round / u32::try_from(steps).unwrap_or(u32::MAX);
        step.max(Duration::from_millis(1))
    }

    /// Checks the entries from `first` on.
    fn check_some(&self, entries: &mut Slab<Entry>, first: usize) {
        let now = Tick::now(self.epoch);
        for index in first..first + CHECKED_AT_A_TIME {
            let Some(EntryState::Relaying(relay, _)) = entries.get_mut(index).map(|entry| &mut entry.state)
            else {
                continue;
            };
            self.shortest_of_round.update(|shortest| shortest.min(relay.idle_ticks()));
            if let RelayState::Ended(reason) = relay.check_idle(now) {
                end(entries, index as u32, reason);
            }
        }
    }

    /// Closes pipes that streams do without, for ever.
    pub(crate) async fn watch_pipes(&self) {
        self.buffers.watch_pipes().await;
    }

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
