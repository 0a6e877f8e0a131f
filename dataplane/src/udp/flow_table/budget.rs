//! How many flows the worker may have over all its frontends, and which frontend gives way when it is full.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use crate::client_traffic::TallyCell;
use crate::counters::ShedReason;
use crate::counters::UdpCounters;
use crate::limits::capacity::Capacity;
use sheave_model::EndpointAddr;

/// The owner of some of a worker's flows: one frontend.
pub(in crate::udp) trait FlowOwner {
    /// How many flows it has.
    fn flows(&self) -> usize;

    /// Ends the flow that was quiet the longest, among those to `towards` if that is given; false if there is none.
    fn evict(&self, now: Instant, towards: Option<EndpointAddr>) -> bool;
}

/// How many flows a worker may have over all its frontends, and has.
pub(in crate::udp) struct FlowBudget {
    pub(super) used: Cell<usize>,
    limit: Cell<usize>,
    capacity: Arc<Capacity>,
    tally: Rc<TallyCell>,
    /// The frontend that had the most when it last got one.
    largest: RefCell<Option<Weak<dyn FlowOwner>>>,
}

impl FlowBudget {
    /// Nothing used so far.
    pub(in crate::udp) fn new(limit: usize, capacity: Arc<Capacity>, tally: Rc<TallyCell>) -> Rc<Self> {
        let (used, limit) = (Cell::new(0), Cell::new(limit));
        Rc::new(Self { used, limit, capacity, tally, largest: RefCell::new(None) })
    }

    /// There may be so many from now on. If there are more, each new one takes the place of another.
    pub(in crate::udp) fn set_limit(&self, limit: usize) {
        self.limit.set(limit);
    }

    /// Whether the worker has no flow.
    pub(in crate::udp) fn is_unused(&self) -> bool {
        self.used.get() == 0
    }

    /// Whether there is room for one flow more of a frontend with these counters.
    ///
    /// # Errors
    /// What there is too little of.
    pub(super) fn room(&self, counters: &UdpCounters) -> Result<(), ShedReason> {
        if self.used.get() >= self.limit.get() {
            return Err(ShedReason::Capacity);
        }
        self.capacity.room_for_flow(counters.usage().open())
    }

    /// Takes the room for one flow.
    pub(super) fn take(self: &Rc<Self>, counters: &Arc<UdpCounters>) -> Slot {
        self.capacity.take_flow();
        self.used.set(self.used.get() + 1);
        counters.add_flow();
        Slot { budget: Rc::clone(self), counters: Arc::clone(counters) }
    }

    /// Notes that `owner` has so many flows now.
    pub(super) fn note(&self, owner: &Weak<dyn FlowOwner>, flows: usize) {
        let mut largest = self.largest.borrow_mut();
        let known = largest.as_ref().filter(|known| !known.ptr_eq(owner)).and_then(Weak::upgrade);
        if known.is_none_or(|known| known.flows() < flows) {
            *largest = Some(Weak::clone(owner));
        }
    }

    /// The frontend that has the most, if that is more than the `flows` of `owner`.
    pub(super) fn larger(&self, owner: &Weak<dyn FlowOwner>, flows: usize) -> Option<Rc<dyn FlowOwner>> {
        let largest = self.largest.borrow();
        let other = largest.as_ref().filter(|largest| !largest.ptr_eq(owner))?.upgrade()?;
        (other.flows() > flows).then_some(other)
    }
}

/// One flow's share of the budget; given back when dropped.
pub(super) struct Slot {
    budget: Rc<FlowBudget>,
    counters: Arc<UdpCounters>,
}

impl Slot {
    /// What a watch of the worker is told of.
    pub(super) fn tally(&self) -> &TallyCell {
        &self.budget.tally
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - 1);
        self.budget.capacity.give_flow();
        self.counters.subtract_flow();
    }
}
