//! Connections of frontends that have left the table. kube-proxy leaves established connections alone, for as long as they like
//! (pkg/proxy/conntrack/cleanup.go); here they go on too, but nobody could end them once their Service is gone, so they have the time
//! of a drain. If something serves at the address again by then, they go on. Likewise connections whose endpoint has left, where their
//! Service wants them to end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::sweep::Sweep;
use super::{ConnectionTable, Tick};
use crate::select::ActiveTable;
use crate::tcp::session::Session;
use sheave_model::FrontendAddr;

/// A connection is not looked at more often than for this grace, however short that of its Service is.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);

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
        let timeouts = self.context.worker.table().get(addr).map(|active| active.timeouts());
        match timeouts.map(|timeouts| timeouts.removed_endpoint_grace) {
            None if !self.removed.contains_key(&addr) => self.remove_frontend(addr),
            Some(Some(grace)) => self.sweep.look_every(self.context.worker.now(), grace.max(SHORTEST_GRACE)),
            None | Some(None) => {}
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

impl Sweep {
    /// When a connection has to end since its endpoint serves no more. `known` is what was found when it was last looked at.
    pub(super) fn end_without_endpoint(
        &mut self,
        known: Tick,
        session: &Session,
        table: &ActiveTable,
        now: Instant,
    ) -> Tick {
        let Some(active) = table.get(session.frontend) else { return Tick::NEVER };
        let Some(grace) = active.timeouts().removed_endpoint_grace else { return Tick::NEVER };
        self.look_every(now, grace.max(SHORTEST_GRACE));
        match session.endpoint() {
            Some(endpoint) if !active.serves(endpoint) => known.min(self.tick(now + grace)),
            Some(_) | None => Tick::NEVER,
        }
    }
}
