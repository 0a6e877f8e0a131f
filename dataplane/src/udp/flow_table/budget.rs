//! Flow budget of a worker over all its frontends, and the choice of the frontend that gives way when it is full.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use crate::client_traffic::TallyCell;
use crate::counters::ShedReason;
use crate::counters::UdpCounters;
use crate::limits::capacity::Capacity;
use sheave_model::EndpointAddr;

/// Owner of some of a worker's flows: one frontend.
pub(in crate::udp) trait FlowOwner {
    fn flows(&self) -> usize;

    /// Evicts the flow that was idle for longest, among those to `towards` if given. Returns false if there is none.
    fn evict(&self, now: Instant, towards: Option<EndpointAddr>) -> bool;
}

/// Number of flows of a worker, and their limit.
pub(in crate::udp) struct FlowBudget {
    pub(super) used: Cell<usize>,
    limit: Cell<usize>,
    capacity: Arc<Capacity>,
    tally: Rc<TallyCell>,
    /// The frontend that had the most flows when one was last added.
    largest: RefCell<Option<Weak<dyn FlowOwner>>>,
}

impl FlowBudget {
    /// Creates an unused budget.
    pub(in crate::udp) fn new(limit: usize, capacity: Arc<Capacity>, tally: Rc<TallyCell>) -> Rc<Self> {
        let (used, limit) = (Cell::new(0), Cell::new(limit));
        Rc::new(Self { used, limit, capacity, tally, largest: RefCell::new(None) })
    }

    /// Sets the limit. If there are more flows already, each new one replaces another.
    pub(in crate::udp) fn set_limit(&self, limit: usize) {
        self.limit.set(limit);
    }

    pub(in crate::udp) fn is_unused(&self) -> bool {
        self.used.get() == 0
    }

    /// Checks whether there is room for another flow of a frontend with these counters.
    ///
    /// # Errors
    /// Returns the resource that is short.
    pub(super) fn room(&self, counters: &UdpCounters) -> Result<(), ShedReason> {
        if self.used.get() >= self.limit.get() {
            return Err(ShedReason::Capacity);
        }
        self.capacity.room_for_flow(counters.usage().open())
    }

    /// Takes the room of one flow.
    pub(super) fn take(self: &Rc<Self>, counters: &Arc<UdpCounters>) -> Slot {
        self.capacity.take_flow();
        self.used.set(self.used.get() + 1);
        counters.add_flow();
        Slot { budget: Rc::clone(self), counters: Arc::clone(counters) }
    }

    /// Records that `owner` now has this number of flows.
    pub(super) fn note(&self, owner: &Weak<dyn FlowOwner>, flows: usize) {
        let mut largest = self.largest.borrow_mut();
        let known = largest.as_ref().filter(|known| !known.ptr_eq(owner)).and_then(Weak::upgrade);
        if known.is_none_or(|known| known.flows() < flows) {
            *largest = Some(Weak::clone(owner));
        }
    }

    /// The frontend with the most flows, if it has more than the `flows` of `owner`.
    pub(super) fn larger(&self, owner: &Weak<dyn FlowOwner>, flows: usize) -> Option<Rc<dyn FlowOwner>> {
        let largest = self.largest.borrow();
        let other = largest.as_ref().filter(|largest| !largest.ptr_eq(owner))?.upgrade()?;
        (other.flows() > flows).then_some(other)
    }
}

/// One flow's share of the budget; returned when dropped.
pub(super) struct Slot {
    budget: Rc<FlowBudget>,
    counters: Arc<UdpCounters>,
}

impl Slot {
    /// Counts the flow with these counters from now on. Returns whether it was counted with others.
    pub(super) fn count_with(&mut self, counters: &Arc<UdpCounters>) -> bool {
        let others = !Arc::ptr_eq(&self.counters, counters);
        if others {
            counters.add_flow();
            std::mem::replace(&mut self.counters, Arc::clone(counters)).subtract_flow();
        }
        others
    }

    /// The worker's tally for watches.
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
