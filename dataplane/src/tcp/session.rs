//! What a connection has from accept to close: its share of the limits, its endpoint, and how its end is counted.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use sheave_model::{ClientAddr, EndpointAddr, FrontendAddr};

use crate::client_traffic::Meter;
use crate::connection_log::{LoggedConnection, LoggedEndpoint};
use crate::counters::{CloseReason, ShedReason, TcpCounters};
use crate::limits::service::{Limiter, Permit};
use crate::select::{Picked, Unanswered};
use crate::worker::context::{OpenCount, WorkerContext};

/// A connection that counts for its frontend, its endpoint and its worker until it is dropped.
pub(super) struct Session {
    pub(super) frontend: FrontendAddr,
    peer: ClientAddr,
    pub(super) counters: Arc<TcpCounters>,
    reason: CloseReason,
    meter: Meter,
    open: OpenCount,
    /// Boxed, since most Services have no limits and every connection would have to carry it.
    permit: Option<Box<Permit>>,
    /// None until an endpoint is connected.
    picked: Option<Picked>,
    /// None for a connection that is not logged.
    logged: Option<Box<LoggedConnection>>,
}

impl Session {
    /// Takes a place for a connection of this frontend. Unless it is [closed](Self::close) for another reason, it was aborted.
    ///
    /// # Errors
    /// What there is too little of, or which limit of the Service is reached.
    pub(super) fn admit(
        worker: &Rc<WorkerContext>,
        (frontend, peer): (FrontendAddr, ClientAddr),
        counters: &Arc<TcpCounters>,
        limiter: Option<&Arc<Limiter>>,
        client: Option<IpAddr>,
        logged: impl FnOnce() -> Option<Box<LoggedConnection>>,
    ) -> Result<Self, ShedReason> {
        let capacity = &worker.shared.capacity;
        // First, so that a connection without room does not count for the Service's rates.
        capacity.take_connection(counters.usage().open())?;
        let permit = limiter.map(|limiter| limiter.admit(client, worker.now())).transpose();
        let permit = permit.inspect_err(|_| capacity.give_connection())?.map(Box::new);
        counters.add_accepted();
        Ok(Self {
            frontend,
            peer,
            counters: Arc::clone(counters),
            reason: CloseReason::Aborted,
            meter: Meter::new(peer.ip()),
            open: worker.count_open(),
            permit,
            picked: None,
            logged: logged(),
        })
    }

    /// Sets the client that a PROXY protocol header named, and counts for its limits.
    ///
    /// # Errors
    /// Which limit of the client is reached.
    pub(super) fn identify(&mut self, client: ClientAddr, now: Instant) -> Result<(), ShedReason> {
        if let Some(logged) = &mut self.logged {
            logged.name_client(client.0);
        }
        self.meter.set_client(client.ip());
        self.permit.as_mut().map_or(Ok(()), |permit| permit.identify(client.ip(), now))
    }

    /// This endpoint is to be connected.
    pub(super) fn try_endpoint(&mut self, endpoint: EndpointAddr) {
        if let Some(logged) = &mut self.logged {
            let table = self.open.worker().table();
            let frontend = table.get(self.frontend).map(|active| &**active.spec());
            logged.try_endpoint(LoggedEndpoint::of(endpoint, frontend));
        }
    }

    /// The endpoint that it counts for.
    pub(super) fn endpoint(&self) -> Option<EndpointAddr> {
        self.picked.as_ref().map(Picked::addr)
    }

    /// Counts for this endpoint from now on.
    pub(super) fn set_endpoint(&mut self, picked: Picked) {
        if let Some(logged) = &mut self.logged {
            logged.connect(self.open.worker().now());
        }
        self.picked = Some(picked);
    }

    /// Has it count for its endpoint as one that ended without an answer.
    pub(super) fn unanswered(&self) -> Option<Unanswered> {
        self.picked.as_ref().map(Picked::unanswered)
    }

    /// So many bytes were passed on.
    pub(super) fn add_bytes(&mut self, from_client: u64, from_endpoint: u64) {
        self.meter.add_bytes(from_client, from_endpoint);
        if let Some(logged) = &mut self.logged {
            logged.add_bytes(from_client, from_endpoint);
        }
    }

    /// Has a watch know what it has.
    pub(super) fn collect(&mut self) {
        let Self { meter, frontend, picked, open, .. } = self;
        open.worker().tally.collect_open(meter, *frontend, picked.as_ref());
    }

    /// Ends for this reason.
    pub(super) fn close(mut self, reason: CloseReason) {
        let Self { frontend, peer, .. } = self;
        tracing::debug!(peer.addr = %peer, %frontend, reason = reason.label(), "closed");
        self.reason = reason;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.counters.add_closed(self.reason);
        let worker = self.open.worker();
        worker.tally.collect(&mut self.meter, self.frontend, self.picked.as_ref());
        worker.shared.capacity.give_connection();
        if let Some(logged) = self.logged.take() {
            logged.end(&worker.shared.connection_log, self.peer, self.reason, worker.now());
        }
    }
}
