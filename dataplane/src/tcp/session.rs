//! Session of a connection from accept to close: its share of the limits, its endpoint, and the counting of its end.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use sheave_model::{ClientAddr, EndpointAddr, FrontendAddr, ServiceTimeouts};

use crate::client_traffic::Meter;
use crate::connection_log::{LoggedConnection, LoggedEndpoint};
use crate::counters::{CloseReason, ShedReason, TcpCounters};
use crate::limits::service::{Limiter, Permit};
use crate::select::{ActiveFrontend, ActiveTable, Picked, Unanswered};
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
    /// Boxed as well: few sessions have any.
    extras: Option<Box<Extras>>,
}

/// Data of sessions that are logged, or whose frontends have server names.
#[derive(Default)]
struct Extras {
    logged: Option<Box<LoggedConnection>>,
    /// The server that the client asks for.
    server_name: Option<Box<str>>,
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
            extras: logged().map(|logged| Box::new(Extras { logged: Some(logged), server_name: None })),
        })
    }

    /// Sets the client that a PROXY protocol header named, and applies its limits.
    ///
    /// # Errors
    /// Returns the limit of the client that is exceeded.
    pub(super) fn identify(&mut self, client: ClientAddr, now: Instant) -> Result<(), ShedReason> {
        if let Some(logged) = self.logged() {
            logged.name_client(client.0);
        }
        self.meter.set_client(client.ip());
        self.permit.as_mut().map_or(Ok(()), |permit| permit.identify(client.ip(), now))
    }

    /// Sets the server that the client asks for.
    pub(super) fn set_server_name(&mut self, server_name: Box<str>) {
        self.extras.get_or_insert_default().server_name = Some(server_name);
    }

    /// The server that the client asks for.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.extras.as_ref()?.server_name.as_deref()
    }

    /// The frontend that chooses the session's endpoint: its own, or the target of the server name. `None` if there is none any more.
    pub(super) fn destination<'t>(&self, table: &'t ActiveTable) -> Option<&'t Arc<ActiveFrontend>> {
        table.get(self.frontend)?.destination(self.server_name())
    }

    /// Timeouts of the destination, or of the frontend if the server name leads nowhere any more. `None` if the frontend has left.
    pub(super) fn timeouts(&self, table: &ActiveTable) -> Option<ServiceTimeouts> {
        let frontend = table.get(self.frontend)?;
        Some(frontend.destination(self.server_name()).unwrap_or(frontend).timeouts())
    }

    /// Records an attempt to connect to this endpoint.
    pub(super) fn try_endpoint(&mut self, endpoint: EndpointAddr) {
        if self.logged().is_none() {
            return;
        }
        let destination = self.destination(&self.open.worker().table()).map(|it| Arc::clone(it.spec()));
        let endpoint = LoggedEndpoint::of(endpoint, destination.as_deref());
        if let Some(logged) = self.logged() {
            logged.try_endpoint(endpoint);
        }
    }

    fn logged(&mut self) -> Option<&mut LoggedConnection> {
        self.extras.as_mut()?.logged.as_deref_mut()
    }

    /// The endpoint that the session counts for.
    pub(super) fn endpoint(&self) -> Option<EndpointAddr> {
        self.picked.as_ref().map(Picked::addr)
    }

    /// Counts the session for this endpoint from now on.
    pub(super) fn set_endpoint(&mut self, picked: Picked) {
        let now = self.open.worker().now();
        if let Some(logged) = self.logged() {
            logged.connect(now);
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
        if let Some(logged) = self.logged() {
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
        if let Some(logged) = self.extras.take().and_then(|extras| extras.logged) {
            logged.end(&worker.shared.connection_log, self.peer, self.reason, worker.now());
        }
    }
}
