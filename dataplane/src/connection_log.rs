//! What workers tell of TCP connections that have ended, for a log. They never wait for whoever writes it: what finds the queue full is
//! counted, and lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use sheave_model::{ClientAddr, EndpointAddr, Frontend, FrontendAddr, ServicePort};

use crate::counters::CloseReason;

/// Connections that may wait to be written: what a busy gateway ends in some milliseconds. A megabyte at most.
const QUEUE: usize = 8192;

/// A connection that has ended.
#[derive(Debug)]
pub struct ConnectionRecord {
    /// Its frontend.
    pub frontend: LoggedFrontend,
    /// Who opened it.
    pub peer: ClientAddr,
    /// Whom a trusted peer named as the client.
    pub named_client: Option<SocketAddr>,
    /// Its endpoint, or the last that was tried.
    pub endpoint: Option<LoggedEndpoint>,
    /// When it ended.
    pub ended: SystemTime,
    /// How long after it was accepted the endpoint was connected; `None` = never.
    pub connected_after: Option<Duration>,
    /// From accept to close.
    pub duration: Duration,
    /// Passed on from the client.
    pub client_bytes: u64,
    /// Passed on from the endpoint.
    pub endpoint_bytes: u64,
    /// Why it ended.
    pub reason: CloseReason,
}

/// What is told of a frontend. Not the frontend itself, which a long connection would keep with all its endpoints.
#[derive(Clone, Debug)]
pub struct LoggedFrontend {
    /// Where it accepts traffic.
    pub addr: FrontendAddr,
    /// Whose it is.
    pub service: ServicePort,
}

/// What is told of an endpoint.
#[derive(Clone, Debug)]
pub struct LoggedEndpoint {
    /// Where it serves.
    pub addr: EndpointAddr,
    /// Its cluster and its node, if the table has it.
    pub place: Option<(Arc<str>, Arc<str>)>,
}

impl LoggedFrontend {
    /// Of a frontend of the table.
    pub fn of(frontend: &Frontend) -> Self {
        Self { addr: frontend.addr, service: frontend.service.clone() }
    }
}

impl LoggedEndpoint {
    /// At this address, by what `frontend` has of it.
    pub fn of(addr: EndpointAddr, frontend: Option<&Frontend>) -> Self {
        let backends = frontend.into_iter().flat_map(|frontend| frontend.backends.iter());
        let mut places = backends.filter_map(|backend| {
            // They are sorted by address.
            let index = backend.endpoints.binary_search_by_key(&addr, |endpoint| endpoint.addr).ok()?;
            Some((Arc::clone(&backend.cluster), Arc::clone(&backend.endpoints.get(index)?.node)))
        });
        Self { addr, place: places.next() }
    }
}

/// Where workers leave their records. Clones share it.
#[derive(Clone, Debug)]
pub struct ConnectionLog {
    queue: SyncSender<ConnectionRecord>,
    lost: Arc<AtomicU64>,
}

impl ConnectionLog {
    /// One, and where its records come out. These end when all clones are gone.
    pub fn new() -> (Self, Receiver<ConnectionRecord>) {
        let (queue, records) = sync_channel(QUEUE);
        (Self { queue, lost: Arc::default() }, records)
    }

    /// How many records were lost because the queue was full, now and later.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    fn leave(&self, record: ConnectionRecord) {
        if self.queue.try_send(record).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a connection collects that will be logged.
#[derive(Debug)]
pub(crate) struct LoggedConnection {
    frontend: LoggedFrontend,
    accepted: Instant,
    named_client: Option<SocketAddr>,
    endpoint: Option<LoggedEndpoint>,
    connected: Option<Instant>,
    client_bytes: u64,
    endpoint_bytes: u64,
}

impl LoggedConnection {
    /// One that was accepted now. Boxed, since few are logged, and every connection would have to carry it.
    pub(crate) fn accepted(frontend: &Frontend, now: Instant) -> Box<Self> {
        Box::new(Self {
            frontend: LoggedFrontend::of(frontend),
            accepted: now,
            named_client: None,
            endpoint: None,
            connected: None,
            client_bytes: 0,
            endpoint_bytes: 0,
        })
    }

    pub(crate) fn name_client(&mut self, client: SocketAddr) {
        self.named_client = Some(client);
    }

    pub(crate) fn try_endpoint(&mut self, endpoint: LoggedEndpoint) {
        self.endpoint = Some(endpoint);
    }

    /// The endpoint that was tried last has answered.
    pub(crate) fn connect(&mut self, now: Instant) {
        self.connected = Some(now);
    }

    pub(crate) fn add_bytes(&mut self, from_client: u64, from_endpoint: u64) {
        self.client_bytes += from_client;
        self.endpoint_bytes += from_endpoint;
    }

    /// It has ended.
    pub(crate) fn end(self, log: &ConnectionLog, peer: ClientAddr, reason: CloseReason, now: Instant) {
        let Self { frontend, accepted, named_client, endpoint, connected, client_bytes, endpoint_bytes } =
            self;
        let after = |time: Instant| time.saturating_duration_since(accepted);
        log.leave(ConnectionRecord {
            frontend,
            peer,
            named_client,
            endpoint,
            ended: SystemTime::now(),
            connected_after: connected.map(after),
            duration: after(now),
            client_bytes,
            endpoint_bytes,
            reason,
        });
    }
}
