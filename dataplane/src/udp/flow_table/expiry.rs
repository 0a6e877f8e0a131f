//! Expiry of flows: after a short time if no endpoint has answered, after the idle timeout otherwise, and earlier if their room is
//! needed.
//!
//! Traffic does not touch the queues: an entry is the time of the next check, and a flow that was not idle until then is queued again.
//! The first entry therefore belongs to the flow that was idle for longest, apart from flows with traffic since they were queued.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{ClientAddr, EndpointAddr};

use super::{Flow, FlowTable};
use crate::select::ActiveFrontend;

/// A flow with traffic more recent than this is not evicted for another one of the same frontend: under a flood of new flows no client
/// would be served if each flow replaced the one before.
pub(super) const BUSY: Duration = Duration::from_millis(100);

/// Unanswered flows that were idle for this long are evicted first.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Answered flows that were idle for this long are evicted next: they are probably over, while an unanswered query that takes longer
/// than [`PATIENCE`] may still be answered.
pub(super) const OVER: Duration = Duration::from_secs(5);

/// Number of entries that are queued again in search of the flow that was idle for longest; after that the first one is taken.
const CORRECTIONS: usize = 32;

/// Number of flows to other endpoints that are skipped in search of a flow to a certain endpoint.
const PASSED_OVER: usize = 64;

/// Flows by the time of their next check.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Flows that no endpoint had answered when they were queued.
    unanswered: Queue,
    answered: Queue,
}

type Queue = BinaryHeap<Reverse<(Instant, ClientAddr)>>;

impl Queues {
    /// Schedules the next check of a flow.
    pub(super) fn push(&mut self, answered: bool, at: Instant, client: ClientAddr) {
        self.of(answered).push(Reverse((at, client)));
    }

    fn of(&mut self, answered: bool) -> &mut Queue {
        if answered { &mut self.answered } else { &mut self.unanswered }
    }

    /// When the next check is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = |queue: &Queue| queue.peek().map(|Reverse((at, _))| *at);
        first(&self.unanswered).into_iter().chain(first(&self.answered)).min()
    }

    pub(super) fn clear(&mut self) {
        self.unanswered.clear();
        self.answered.clear();
    }

    /// Number of entries, including stale ones.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.unanswered.len() + self.answered.len()
    }
}

impl<L> FlowTable<L> {
    /// When a flow ends without further traffic.
    pub(super) fn deadline(&self, flow: &Flow<L>) -> Instant {
        let quiet = flow.touched + self.patience(flow.answered);
        flow.ends_by.map_or(quiet, |ends_by| ends_by.min(quiet))
    }

    /// Idle timeout of a flow.
    pub(super) fn patience(&self, answered: bool) -> Duration {
        if answered { self.idle } else { self.timeouts.unanswered.min(self.idle) }
    }

    /// When [`expire`](Self::expire) is due next; `None` if there is no entry.
    pub(in crate::udp) fn next_check(&self) -> Option<Instant> {
        self.queues.next()
    }

    /// Ends the flows that were idle for too long, checking at most `most` entries. Returns false if more are due.
    pub(in crate::udp) fn expire(&mut self, now: Instant, most: usize) -> bool {
        let mut looked = 0;
        for answered in [false, true] {
            while let Some(Reverse((at, client))) = self.queues.of(answered).peek().copied()
                && at <= now
            {
                if looked == most {
                    return false;
                }
                looked += 1;
                self.queues.of(answered).pop();
                let Some(flow) = self.flows.get(&client).filter(|flow| flow.check_at == at) else { continue };
                let deadline = self.deadline(flow);
                if deadline <= now {
                    self.flows.remove(&client);
                } else {
                    self.look_again(client, deadline);
                }
            }
        }
        true
    }

    /// Evicts the flow that was idle for longest, preferring unanswered flows past [`PATIENCE`], then answered ones past [`OVER`]. A
    /// flow that was idle for less than `busy` is spared while its endpoint serves, and so are flows to other endpoints than `towards`
    /// if given. Returns false if no flow is found.
    pub(in crate::udp) fn evict(
        &mut self,
        now: Instant,
        busy: Duration,
        towards: Option<EndpointAddr>,
    ) -> bool {
        let order = [(false, PATIENCE), (true, OVER), (false, busy), (true, busy)];
        let victim =
            order.into_iter().find_map(|(answered, quiet)| self.victim(answered, now, quiet, towards));
        let evicted = victim.is_some_and(|client| self.flows.remove(&client).is_some());
        self.counters.add(|it| &it.flows_evicted, usize::from(evicted));
        evicted
    }

    /// The first flow of one queue that was idle for at least `quiet`.
    fn victim(
        &mut self,
        answered: bool,
        now: Instant,
        quiet: Duration,
        towards: Option<EndpointAddr>,
    ) -> Option<ClientAddr> {
        let mut passed_over = Vec::new();
        let mut victim = None;
        while passed_over.len() < PASSED_OVER
            && let Some((client, deadline)) = self.quietest(answered)
        {
            let Some(flow) = self.flows.get(&client) else { continue };
            let busy = flow.ends_by.is_none() && now.saturating_duration_since(flow.touched) < quiet;
            if !busy && towards.is_none_or(|endpoint| flow.endpoint() == endpoint) {
                victim = Some(client);
                break;
            }
            passed_over.push((client, deadline));
            if busy {
                break;
            }
        }
        passed_over.into_iter().for_each(|(client, deadline)| self.look_again(client, deadline));
        victim
    }

    /// Removes the flow that was idle for longest from one queue; returns it with its deadline.
    fn quietest(&mut self, answered: bool) -> Option<(ClientAddr, Instant)> {
        let mut corrections = 0;
        while let Some(Reverse((at, client))) = self.queues.of(answered).pop() {
            let Some(flow) = self.flows.get(&client).filter(|flow| flow.check_at == at) else { continue };
            let deadline = self.deadline(flow);
            // A flow that was answered or had traffic since it was queued: others may have been idle for longer.
            if flow.answered == answered && (deadline <= at || corrections >= CORRECTIONS) {
                return Some((client, deadline));
            }
            corrections += 1;
            self.look_again(client, deadline);
        }
        None
    }

    fn look_again(&mut self, client: ClientAddr, at: Instant) {
        if let Entry::Occupied(mut entry) = self.flows.entry(client) {
            let flow = entry.get_mut();
            flow.check_at = at;
            self.queues.push(flow.answered, at, client);
        }
    }

    /// Schedules an earlier check if the client's flow now ends sooner: its timeouts have become shorter, or its endpoint no longer
    /// serves, or the source ranges no longer admit its client, and then it ends within `grace` even with traffic. Returns whether it does.
    pub(in crate::udp) fn hasten(&mut self, client: ClientAddr, now: Instant, grace: Duration) -> bool {
        let Some(flow) = self.flows.get_mut(&client) else { return false };
        let goes_on =
            |frontend: &Arc<ActiveFrontend>| frontend.serves(flow.endpoint()) && frontend.admits(client);
        let goes_on = self.frontend.as_ref().is_some_and(goes_on);
        flow.ends_by = if goes_on { None } else { flow.ends_by.or(Some(now + grace)) };
        let check_at = flow.check_at;
        let deadline = self.flows.get(&client).map(|flow| self.deadline(flow));
        let sooner = deadline.filter(|deadline| *deadline < check_at);
        if let Some(deadline) = sooner {
            self.look_again(client, deadline);
        }
        sooner.is_some()
    }
}
