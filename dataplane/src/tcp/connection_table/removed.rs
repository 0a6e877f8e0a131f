//! Connections of frontends that have left the table. kube-proxy leaves established connections alone, for as long as they like
//! (pkg/proxy/conntrack/cleanup.go); here they go on too, but nobody could end them once their Service is gone, so they have the time
//! of a drain. If something serves at the address again by then, they go on.

use std::collections::HashMap;
use std::time::Instant;

use super::{ConnectionTable, Tick};
use sheave_model::FrontendAddr;

/// When the connections of each end.
pub(super) type RemovedFrontends = HashMap<FrontendAddr, Tick, foldhash::fast::RandomState>;

impl ConnectionTable {
    /// The frontend has left the table.
    pub(in crate::tcp) fn remove_frontend(&mut self, addr: FrontendAddr) {
        let (now, drain) = (self.context.worker.now(), self.context.worker.timeouts().drain);
        self.removed.insert(addr, self.sweep.tick(now + drain));
        self.sweep.look_every(now, drain);
    }

    /// A connection of the frontend is relayed from now on. It may have been set up for longer than the removal of the frontend is
    /// remembered, and has the time of a drain then.
    pub(super) fn remember_removed(&mut self, addr: FrontendAddr) {
        if !self.removed.contains_key(&addr) && self.context.worker.table().get(addr).is_none() {
            self.remove_frontend(addr);
        }
    }

    /// A round of the sweep is over, which began at `began`: forgets the frontends whose connections have all ended in it.
    pub(super) fn forget_removed(&mut self, began: Tick, now: Instant) {
        self.removed.retain(|_, ends| *ends >= began);
        if !self.removed.is_empty() {
            self.sweep.look_every(now, self.context.worker.timeouts().drain);
        }
    }
}
