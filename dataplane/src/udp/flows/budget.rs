//! The worker's room for flows: how many there may be over all its frontends, and are, and who gives way to whom when it is
//! full.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use crate::capacity::Capacity;
use crate::udp::counters::UdpCounters;

/// A frontend's flows, as others that need room see them.
pub(in crate::udp) trait Tenant {
    /// How many there are on this worker.
    fn flows(&self) -> usize;

    /// Ends the one that was quiet the longest; false if there is none.
    fn evict(&self, now: Instant) -> bool;
}

/// Who gives way for a new flow.
#[derive(Clone)]
pub(super) enum Victim {
    /// The frontend that wants one more: no other has as many.
    Itself,
    /// The frontend that has the most.
    Other(Rc<dyn Tenant>),
}

/// How many flows a worker may have over all its frontends, and has.
pub(in crate::udp) struct FlowBudget {
    pub(super) used: Cell<usize>,
    limit: usize,
    capacity: Arc<Capacity>,
    /// The frontend that had the most when it last got one.
    largest: RefCell<Option<Weak<dyn Tenant>>>,
}

impl FlowBudget {
    /// Nothing used so far.
    pub(in crate::udp) fn new(limit: usize, capacity: Arc<Capacity>) -> Rc<Self> {
        Rc::new(Self { used: Cell::new(0), limit, capacity, largest: RefCell::new(None) })
    }

    /// Whether there is room for one flow more.
    pub(super) fn has_room(&self, counters: &UdpCounters) -> bool {
        self.used.get() < self.limit && self.capacity.has_room_for_flow(counters.usage().open())
    }

    /// Room for one flow more, if there is, for a frontend with these counters.
    pub(super) fn take(self: &Rc<Self>, counters: &Arc<UdpCounters>) -> Option<Slot> {
        self.has_room(counters).then(|| self.take_over(counters))
    }

    /// The room of a flow that was just ended for it.
    pub(super) fn take_over(self: &Rc<Self>, counters: &Arc<UdpCounters>) -> Slot {
        self.capacity.take_flow();
        self.used.set(self.used.get() + 1);
        counters.flows_active.add(1);
        counters.usage().add_open();
        Slot { budget: Rc::clone(self), counters: Arc::clone(counters) }
    }

    /// Notes that `tenant` has so many flows now.
    pub(super) fn note(&self, tenant: &Weak<dyn Tenant>, flows: usize) {
        let mut largest = self.largest.borrow_mut();
        let known = largest.as_ref().filter(|known| !known.ptr_eq(tenant)).and_then(Weak::upgrade);
        if known.is_none_or(|known| known.flows() < flows) {
            *largest = Some(Weak::clone(tenant));
        }
    }

    /// Who gives way for a new flow of `tenant`, which has so many.
    pub(super) fn victim(&self, tenant: &Weak<dyn Tenant>, flows: usize) -> Victim {
        let largest = self.largest.borrow();
        let other = largest.as_ref().filter(|largest| !largest.ptr_eq(tenant)).and_then(Weak::upgrade);
        match other.filter(|other| other.flows() > flows) {
            Some(other) => Victim::Other(other),
            None => Victim::Itself,
        }
    }
}

/// One flow's share of the budget; given back when dropped.
pub(super) struct Slot {
    budget: Rc<FlowBudget>,
    counters: Arc<UdpCounters>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - 1);
        self.budget.capacity.give_flow();
        self.counters.flows_active.subtract(1);
        self.counters.usage().subtract_open();
    }
}
