//! The worker's room for flows: how many there may be over all its frontends, and are.
//!
//! It must not know flows.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use crate::udp::counters::UdpCounters;

/// How many flows a worker may have over all its frontends, and has.
#[derive(Debug)]
pub(in crate::udp) struct FlowBudget {
    pub(super) used: Cell<usize>,
    limit: usize,
}

impl FlowBudget {
    /// Nothing used so far.
    pub(in crate::udp) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { used: Cell::new(0), limit })
    }

    /// Room for one flow more, if there is.
    pub(super) fn take(self: &Rc<Self>, counters: &Arc<UdpCounters>) -> Option<Slot> {
        let used = self.used.get();
        (used < self.limit).then(|| {
            self.used.set(used + 1);
            counters.flows_active.add(1);
            Slot { budget: Rc::clone(self), counters: Arc::clone(counters) }
        })
    }
}

/// One flow's share of the budget; given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    budget: Rc<FlowBudget>,
    counters: Arc<UdpCounters>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - 1);
        self.counters.flows_active.subtract(1);
    }
}
