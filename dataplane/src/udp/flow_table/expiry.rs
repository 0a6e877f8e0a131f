//! When flows end: after a short time if no endpoint ever answered, else after the idle timeout, and earlier where others need the
//! room.
//!
//! Traffic does not touch the queues: an entry says when to check a flow, and a flow that was not quiet until then is put back. So
//! the first entry is that of the flow that was quiet the longest, but for flows with traffic since they were queued.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use sheave_model::{ClientAddr, EndpointAddr};

use super::{Flow, FlowTable};

/// A flow that is busier than this is not ended for another one of the same frontend: with so many new ones, nobody would be
/// served if each took the place of the one before.
pub(super) const BUSY: Duration = Duration::from_millis(100);

/// A flow that no endpoint has answered for so long is the first to give way.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A flow that was answered and quiet for so long is the next: a query that takes longer than [`PATIENCE`] goes on rather than
/// what is over in all likelihood.
pub(super) const OVER: Duration = Duration::from_secs(5);

/// Entries that are put back in search of the flow that was quiet the longest; then the first will do.
const CORRECTIONS: usize = 32;

/// Flows to other endpoints that are passed over in search of one to a certain endpoint.
const PASSED_OVER: usize = 64;

/// Flows by when to look at them.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Those that no endpoint had answered when they were queued.
    unanswered: Queue,
    answered: Queue,
}

type Queue = BinaryHeap<Reverse<(Instant, ClientAddr)>>;

impl Queues {
    /// Looks at a flow then.
    pub(super) fn push(&mut self, answered: bool, at: Instant, client: ClientAddr) {
        self.of(answered).push(Reverse((at, client)));
    }

    fn of(&mut self, answered: bool) -> &mut Queue {
        if answered { &mut self.answered } else { &mut self.unanswered }
    }

    /// When the next flow is to be looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = |queue: &Queue| queue.peek().map(|Reverse((at, _))| *at);
        first(&self.unanswered).into_iter().chain(first(&self.answered)).min()
    }

    pub(super) fn clear(&mut self) {
        self.unanswered.clear();
        self.answered.clear();
    }

    /// Entries, with those of flows that are gone.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.unanswered.len() + self.answered.len()
    }
}

impl<L> FlowTable<L> {
    /// When a flow ends if nothing passes any more.
    pub(super) fn deadline(&self, flow: &Flow<L>) -> Instant {
        let quiet = flow.touched + self.patience(flow.answered);
        flow.ends_by.map_or(quiet, |ends_by| ends_by.min(quiet))
    }

    /// How long a flow may be quiet.
    pub(super) fn patience(&self, answered: bool) -> Duration {
        if answered { self.idle } else { self.timeouts.unanswered.min(self.idle) }
    }

    /// When [`expire`](Self::expire) is due next; none if there is nothing to look at.
    pub(in crate::udp) fn next_check(&self) -> Option<Instant> {
        self.queues.next()
    }

    /// Ends flows that were quiet for too long, of at most so many that are looked at; false if there are more.
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

    /// Ends the flow that was quiet the longest, of those that no endpoint has answered if there is one that had time for it, but
    /// none that was quiet for less than `busy` and whose endpoint serves, and none to another endpoint than `towards` if one is
    /// named. False if none is found.
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

    /// The first of one queue that was quiet for so long.
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

    /// Takes the flow that was quiet the longest from one queue, with its deadline.
    fn quietest(&mut self, answered: bool) -> Option<(ClientAddr, Instant)> {
        let mut corrections = 0;
        while let Some(Reverse((at, client))) = self.queues.of(answered).pop() {
            let Some(flow) = self.flows.get(&client).filter(|flow| flow.check_at == at) else { continue };
            let deadline = self.deadline(flow);
            // It was answered, or had traffic, since it was queued: others may have been quiet for longer.
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

    /// Looks whether the client's flow ends sooner than was planned: its endpoint serves no more, and then it ends within `grace` even
    /// if that endpoint still talks, or timeouts have become shorter. Says whether it does.
    pub(in crate::udp) fn hasten(&mut self, client: ClientAddr, now: Instant, grace: Duration) -> bool {
        let Some(flow) = self.flows.get_mut(&client) else { return false };
        let serves = self.frontend.as_ref().is_some_and(|frontend| frontend.serves(flow.endpoint()));
        flow.ends_by = if serves { None } else { flow.ends_by.or(Some(now + grace)) };
        let check_at = flow.check_at;
        let deadline = self.flows.get(&client).map(|flow| self.deadline(flow));
        let sooner = deadline.filter(|deadline| *deadline < check_at);
        if let Some(deadline) = sooner {
            self.look_again(client, deadline);
        }
        sooner.is_some()
    }
}
