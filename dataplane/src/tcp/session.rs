//! Session of a connection from accept to close: its share of the limits, its endpoint, and the counting of its end.

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
    /// Boxed to keep sessions small, since most Services have no limits.
    permit: Option<Box<Permit>>,
    /// `None` until an endpoint is connected.
    picked: Option<Picked>,
    /// `None` if the connection is not logged.
    logged: Option<Box<LoggedConnection>>,
}

impl Session {
    /// Admits a connection of this frontend. It counts as aborted unless it is [closed](Self::close) with another reason.
    ///
    /// # Errors
    /// Returns the shortage of capacity or the limit of the Service that denies admission.
    pub(super) fn admit(
        worker: &Rc<WorkerContext>,
        (frontend, peer): (FrontendAddr, ClientAddr),
        counters: &Arc<TcpCounters>,
        limiter: Option<&Arc<Limiter>>,
        client: Option<IpAddr>,
        logged: impl FnOnce() -> Option<Box<LoggedConnection>>,
    ) -> Result<Self, ShedReason> {
        let capacity = &worker.shared.capacity;
        // Capacity first, so that a connection without room does not count for the Service's rates.
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

    /// Sets the client that a PROXY protocol header named, and applies its limits.
    ///
    /// # Errors
    /// Returns the limit of the client that is exceeded.
    pub(super) fn identify(&mut self, client: ClientAddr, now: Instant) -> Result<(), ShedReason> {
        if let Some(logged) = &mut self.logged {
            logged.name_client(client.0);
        }
        self.meter.set_client(client.ip());
        self.permit.as_mut().map_or(Ok(()), |permit| permit.identify(client.ip(), now))
    }

    /// Records an attempt to connect to this endpoint.
    pub(super) fn try_endpoint(&mut self, endpoint: EndpointAddr) {
        if let Some(logged) = &mut self.logged {
            let table = self.open.worker().table();
            let frontend = table.get(self.frontend).map(|active| &**active.spec());
            logged.try_endpoint(LoggedEndpoint::of(endpoint, frontend));
        }
    }

    /// The endpoint that the session counts for.
    pub(super) fn endpoint(&self) -> Option<EndpointAddr> {
        self.picked.as_ref().map(Picked::addr)
    }

    /// Counts the session for this endpoint from now on.
    pub(super) fn set_endpoint(&mut self, picked: Picked) {
        if let Some(logged) = &mut self.logged {
            logged.connect(self.open.worker().now());
        }
        self.picked = Some(picked);
    }

    /// A guard that keeps the session counting for its endpoint after it ended without an answer.
    pub(super) fn unanswered(&self) -> Option<Unanswered> {
        self.picked.as_ref().map(Picked::unanswered)
    }

    /// Adds relayed bytes.
    pub(super) fn add_bytes(&mut self, from_client: u64, from_endpoint: u64) {
        self.meter.add_bytes(from_client, from_endpoint);
        if let Some(logged) = &mut self.logged {
            logged.add_bytes(from_client, from_endpoint);
        }
    }

    /// Adds the session's traffic to a watch.
    pub(super) fn collect(&mut self) {
        let Self { meter, frontend, picked, open, .. } = self;
        open.worker().tally.collect_open(meter, *frontend, picked.as_ref());
    }

    /// Ends the session with this reason.
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
