//! Connections whose frontend or endpoint has left the table. kube-proxy never ends established connections
//! (pkg/proxy/conntrack/cleanup.go). Here those of a removed frontend get the drain timeout, since no setting could end them once
//! their Service is gone, and go on if a frontend exists at the address again by then. Connections whose endpoint has left end if
//! their Service sets a grace period; that of another Service, which has the address by now, is for its own connections.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::sweep::Sweep;
use super::{ConnectionTable, Tick};
use crate::select::ActiveTable;
use crate::tcp::session::Session;
use sheave_model::FrontendAddr;

/// Shortest grace period: bounds how often connections are checked.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);

/// When the connections of each removed frontend end.
pub(super) type RemovedFrontends = HashMap<FrontendAddr, Tick, foldhash::fast::RandomState>;

impl ConnectionTable {
    /// Starts the drain timeout of a frontend that has left the table.
    pub(in crate::tcp) fn remove_frontend(&mut self, addr: FrontendAddr) {
        let (now, drain) = (self.context.worker.now(), self.context.worker.timeouts().drain);
        self.removed.insert(addr, self.sweep.tick(now + drain));
        self.sweep.look_every(now, drain);
    }

    /// Registers the frontend of a connection that is relayed from now on. If its setup outlasted the record of the frontend's
    /// removal, the drain timeout starts again.
    pub(super) fn remember_removed(&mut self, session: &Session) {
        let (addr, timeouts) = (session.frontend, session.timeouts(&self.context.worker.table()));
        match timeouts.map(|timeouts| timeouts.removed_endpoint_grace) {
            None if !self.removed.contains_key(&addr) => self.remove_frontend(addr),
            Some(Some(grace)) => self.sweep.look_every(self.context.worker.now(), grace.max(SHORTEST_GRACE)),
            None | Some(None) => {}
        }
    }

    /// After a pass of the sweep that began at `began`: forgets the frontends whose connections have all ended in it.
    pub(super) fn forget_removed(&mut self, began: Tick, now: Instant) {
        self.removed.retain(|_, ends| *ends >= began);
        if !self.removed.is_empty() {
            self.sweep.look_every(now, self.context.worker.timeouts().drain);
        }
    }
}

impl Sweep {
    /// When a connection has to end because its endpoint stopped serving; `known` is the result of the last check.
    pub(super) fn end_without_endpoint(
        &mut self,
        known: Tick,
        session: &Session,
        table: &ActiveTable,
        now: Instant,
    ) -> Tick {
        let timeouts = session.timeouts(table);
        let grace = timeouts.and_then(|timeouts| timeouts.removed_endpoint_grace);
        let (Some(grace), Some(frontend)) = (grace, table.get(session.frontend)) else {
            return Tick::NEVER;
        };
        self.look_every(now, grace.max(SHORTEST_GRACE));
        if session.counters.usage().is_of_another(frontend.spec()) {
            return Tick::NEVER;
        }
        // Whatever its server name leads to now: the frontend may have the endpoint for another one.
        match session.endpoint() {
            Some(endpoint) if !frontend.serves(endpoint) => known.min(self.tick(now + grace)),
            Some(_) | None => Tick::NEVER,
        }
    }
}
