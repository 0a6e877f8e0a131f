//! The worker's room for flows: how many there may be over all its frontends, and are, and who gives way to whom when it is
//! full.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::capacity::Capacity;
use crate::shed::ShedReason;
use crate::udp::counters::UdpCounters;
use crate::udp::tenant::Tenant;

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

    /// Whether there is room for one flow more of a frontend with these counters.
    ///
    /// # Errors
    /// What there is too little of.
    pub(super) fn room(&self, counters: &UdpCounters) -> Result<(), ShedReason> {
        if self.used.get() >= self.limit {
            return Err(ShedReason::Capacity);
        }
        self.capacity.room_for_flow(counters.usage().open())
    }

    /// Takes the room for one flow.
    pub(super) fn take(self: &Rc<Self>, counters: &Arc<UdpCounters>) -> Slot {
        self.capacity.take_flow();
        self.used.set(self.used.get() + 1);
        counters.add(|it| &it.flows_active, 1);
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

    /// The frontend that has the most, if that is more than the `flows` of `tenant`.
    pub(super) fn larger(&self, tenant: &Weak<dyn Tenant>, flows: usize) -> Option<Rc<dyn Tenant>> {
        let largest = self.largest.borrow();
        let other = largest.as_ref().filter(|largest| !largest.ptr_eq(tenant))?.upgrade()?;
        (other.flows() > flows).then_some(other)
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
        self.counters.subtract(|it| &it.flows_active, 1);
        self.counters.usage().subtract_open();
    }
}
