//! What a connection has with it from accept to close: its place among others, and how its end is counted.
//!
//! It must not know how bytes are moved.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::connection_table::Story;
use crate::counters::ShedReason;
use crate::counters::{CloseReason, TcpCounters};
use crate::limits::service::{Limiter, Permit};
use crate::select::Picked;
use crate::worker::{Live, Worker};
use sheave_model::{ClientAddr, FrontendAddr};

/// A connection that counts for its frontend, its endpoint and its worker until it is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    pub(super) frontend: FrontendAddr,
    pub(super) peer: ClientAddr,
    pub(super) ending: Ending,
    pub(super) _picked: Picked,
}

impl Story for Served {
    fn counters(&self) -> &TcpCounters {
        &self.ending.counters
    }

    fn end(self, reason: CloseReason) {
        tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, reason = reason.label(), "closed");
        self.ending.by(reason);
    }
}

/// Counts a connection's end when it is dropped, and gives back its place.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) counters: Arc<TcpCounters>,
    reason: CloseReason,
    live: Live,
    /// Boxed, since most Services have no limits and every connection would have to carry it.
    permit: Option<Box<Permit>>,
}

impl Ending {
    /// Takes a place for a connection of this frontend. Unless told otherwise, it ends by being aborted.
    pub(super) fn admit(
        worker: &Rc<Worker>,
        counters: &Arc<TcpCounters>,
        limiter: Option<&Arc<Limiter>>,
        client: Option<IpAddr>,
    ) -> Result<Self, ShedReason> {
        // Who finds no room has not come, as far as the Service's rates are concerned.
        worker.capacity.take_connection(counters.usage().open())?;
        let permit = limiter.map(|limiter| limiter.admit(client, Instant::now())).transpose();
        let permit = permit.inspect_err(|_| worker.capacity.give_connection())?.map(Box::new);
        counters.add_accepted();
        Ok(Self {
            counters: Arc::clone(counters),
            reason: CloseReason::Aborted,
            live: worker.admit(),
            permit,
        })
    }

    /// It turned out to be this client's, which may have as many as it may have.
    pub(super) fn identify(&mut self, client: IpAddr) -> Result<(), ShedReason> {
        self.permit.as_mut().map_or(Ok(()), |permit| permit.identify(client, Instant::now()))
    }

    /// It ends for this reason.
    pub(super) fn by(mut self, reason: CloseReason) {
        self.reason = reason;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.counters.add_closed(self.reason);
        self.live.worker().capacity.give_connection();
    }
}
