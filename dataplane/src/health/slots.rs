//! Slots for probes: limits how many run at once, in total and per namespace. A probe without a slot waits in its namespace's queue.
//! Namespaces take turns, so that one with thousands of endpoints that hang delays only its own probes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::task::{AbortHandle, Id, JoinSet};

/// Maximum number of probes that run at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotLimits {
    pub(super) total: usize,
    pub(super) per_namespace: usize,
}

/// Number of descriptors that a data plane's owner reserves for probes, in addition to those of traffic.
const LEFT_TO_PROBES: usize = 80;
/// Maximum number of probes that run at once.
const MOST: usize = 320;
/// Divisor of the descriptors of traffic that probes may use.
const SHARE: usize = 16;

/// Slots of each kind of probe: four in five are for checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeBudget {
    pub(super) checks: SlotLimits,
    pub(super) opinions: SlotLimits,
}

impl ProbeBudget {
    /// The budget if traffic may use this number of descriptors: at most 256 checks, 32 of them of one namespace, and 64 second
    /// opinions, 16 of them of one namespace.
    pub(crate) fn of(descriptors: usize) -> Self {
        let all = (descriptors / SHARE).clamp(LEFT_TO_PROBES, MOST);
        let (checks, opinions) = (all / 5 * 4, all / 5);
        let limits = |total: usize, most: usize| SlotLimits { total, per_namespace: most.min(total / 2) };
        Self { checks: limits(checks, 32), opinions: limits(opinions, 16) }
    }

    /// Number of descriptors taken from those of traffic.
    pub(crate) fn of_traffic(&self) -> usize {
        (self.checks.total + self.opinions.total).saturating_sub(LEFT_TO_PROBES)
    }
}

/// Slots of one kind of probe. A waiting probe is a `T`; a running one ends with an `R`.
#[derive(Debug)]
pub(super) struct ProbeSlots<T, R> {
    limits: SlotLimits,
    taken: usize,
    namespaces: HashMap<Arc<str>, NamespaceQueue<T>>,
    /// Namespaces with waiting probes that may take another slot.
    turns: VecDeque<Arc<str>>,
    running: JoinSet<R>,
    /// The slot of each task, since an aborted task has no result that could contain it.
    holders: HashMap<Id, ProbeSlot>,
}

/// Taken slots and waiting probes of one namespace; removed when there are neither.
#[derive(Debug)]
struct NamespaceQueue<T> {
    taken: usize,
    waiting: VecDeque<T>,
}

/// A taken slot.
#[derive(Debug)]
#[must_use]
pub(super) struct ProbeSlot(Arc<str>);

impl<T, R: Send + 'static> ProbeSlots<T, R> {
    /// Creates the slots, all free.
    pub(super) fn new(limits: SlotLimits) -> Self {
        Self {
            limits,
            taken: 0,
            namespaces: HashMap::new(),
            turns: VecDeque::new(),
            running: JoinSet::new(),
            holders: HashMap::new(),
        }
    }

    /// Queues a probe for a slot.
    pub(super) fn enqueue(&mut self, namespace: &Arc<str>, probe: T) {
        let new = || NamespaceQueue { taken: 0, waiting: VecDeque::new() };
        let queue = self.namespaces.entry(Arc::clone(namespace)).or_insert_with(new);
        if queue.waiting.is_empty() && queue.taken < self.limits.per_namespace {
            self.turns.push_back(Arc::clone(namespace));
        }
        queue.waiting.push_back(probe);
    }

    /// Takes the next probe and a slot for it; `None` if none waits or no slot is free.
    pub(super) fn dequeue(&mut self) -> Option<(ProbeSlot, T)> {
        if self.taken >= self.limits.total {
            return None;
        }
        let namespace = self.turns.pop_front()?;
        let queue = self.namespaces.get_mut(&namespace)?;
        let probe = queue.waiting.pop_front()?;
        self.taken += 1;
        queue.taken += 1;
        if !queue.waiting.is_empty() && queue.taken < self.limits.per_namespace {
            self.turns.push_back(Arc::clone(&namespace));
        }
        Some((ProbeSlot(namespace), probe))
    }

    pub(super) fn release(&mut self, ProbeSlot(namespace): ProbeSlot) {
        self.taken -= 1;
        let Some(queue) = self.namespaces.get_mut(&namespace) else { return };
        let was_full = queue.taken == self.limits.per_namespace;
        queue.taken -= 1;
        if queue.waiting.is_empty() {
            if queue.taken == 0 {
                self.namespaces.remove(&namespace);
            }
        } else if was_full {
            self.turns.push_back(namespace);
        }
    }

    /// Runs a probe, which holds the slot until it ends. Must be called inside a runtime.
    pub(super) fn run(
        &mut self,
        slot: ProbeSlot,
        probe: impl Future<Output = R> + Send + 'static,
    ) -> AbortHandle {
        let task = self.running.spawn(probe);
        self.holders.insert(task.id(), slot);
        task
    }

    /// Waits until a probe ends; returns its result, or `Some(None)` if it was aborted. `None` at once if none runs. Cancel safe.
    pub(super) async fn ended(&mut self) -> Option<Option<R>> {
        let (id, result) = match self.running.join_next_with_id().await? {
            Ok((id, result)) => (id, Some(result)),
            Err(error) => (error.id(), None),
        };
        if let Some(slot) = self.holders.remove(&id) {
            self.release(slot);
        }
        Some(result)
    }

    /// Number of running and waiting probes of a namespace.
    pub(super) fn load(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).map_or(0, |queue| queue.taken + queue.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(total: usize, per_namespace: usize) -> ProbeSlots<u32, ()> {
        ProbeSlots::new(SlotLimits { total, per_namespace })
    }

    /// Takes probes until no more slots are available.
    fn dequeue_all(slots: &mut ProbeSlots<u32, ()>) -> Vec<(ProbeSlot, u32)> {
        std::iter::from_fn(|| slots.dequeue()).collect()
    }

    #[test]
    fn probes_take_few_of_few_descriptors() {
        for (descriptors, expected) in
            [(0, (64, 32, 16, 8, 0)), (3200, (160, 32, 40, 16, 120)), (usize::MAX, (256, 32, 64, 16, 240))]
        {
            let budget = ProbeBudget::of(descriptors);
            let ProbeBudget { checks, opinions } = budget;
            let found = (checks.total, checks.per_namespace, opinions.total, opinions.per_namespace);
            let (total, per_namespace, opinions, opinions_per_namespace, of_traffic) = expected;
            assert_eq!(found, (total, per_namespace, opinions, opinions_per_namespace), "{descriptors}");
            assert_eq!(budget.of_traffic(), of_traffic);
        }
    }

    #[test]
    fn a_namespace_with_thousands_that_hang_delays_no_other() {
        let mut slots = slots(256, 32);
        let [many, few] = ["many", "few"].map(Arc::<str>::from);
        (0..5000).for_each(|number| slots.enqueue(&many, number));
        assert_eq!(dequeue_all(&mut slots).len(), 32, "they have their slots for good");
        for number in 0..100 {
            slots.enqueue(&few, number);
            let (slot, probe) = slots.dequeue().expect("there is a slot");
            assert_eq!(probe, number);
            slots.release(slot);
        }
        assert_eq!((slots.load("many"), slots.load("few")), (5000, 0));
    }

    #[test]
    fn where_all_slots_are_taken_namespaces_take_turns() {
        let mut slots = slots(8, 4);
        let names = ["a", "b", "c"].map(Arc::<str>::from);
        (0..100).for_each(|number| slots.enqueue(&names[0], number));
        let mut held = dequeue_all(&mut slots);
        assert_eq!(held.len(), 4);
        (0..100).for_each(|number| names[1..].iter().for_each(|name| slots.enqueue(name, number)));
        held.extend(dequeue_all(&mut slots));
        let mut served = Vec::new();
        for _ in 0..60 {
            let (slot, _) = held.remove(0);
            slots.release(slot);
            let next = dequeue_all(&mut slots);
            assert_eq!(next.len(), 1);
            served.extend(next.iter().map(|(ProbeSlot(name), _)| Arc::clone(name)));
            held.extend(next);
        }
        for name in &names {
            let share = served.iter().filter(|served| *served == name).count();
            assert!((18..=22).contains(&share), "{share} of 60 for {name}");
        }
    }

    #[test]
    fn what_one_namespace_has_enqueued_comes_in_order_and_all_slots_come_back() {
        let mut slots = slots(3, 2);
        let name = Arc::<str>::from("a");
        (0..50).for_each(|number| slots.enqueue(&name, number));
        let mut order = Vec::new();
        while let Some((slot, number)) = slots.dequeue() {
            order.push(number);
            slots.release(slot);
        }
        assert_eq!(order, (0..50).collect::<Vec<_>>());
        assert!(slots.taken == 0 && slots.namespaces.is_empty() && slots.turns.is_empty());
    }

    #[tokio::test]
    async fn an_aborted_probe_gives_its_slot_back() {
        let mut slots = slots(1, 1);
        let name = Arc::<str>::from("a");
        (1..=2).for_each(|number| slots.enqueue(&name, number));
        let (slot, _) = slots.dequeue().unwrap();
        let task = slots.run(slot, std::future::pending());
        assert!(slots.dequeue().is_none());
        task.abort();
        assert_eq!(slots.ended().await, Some(None));
        assert!(slots.dequeue().is_some() && slots.ended().await.is_none());
    }
}
