//! Log records of ended TCP connections. Workers never wait for the writer of the log: a record that finds the queue full is counted
//! and lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use sheave_model::{ClientAddr, EndpointAddr, Frontend, FrontendAddr, ServicePort};

use crate::counters::CloseReason;

/// Length of the queue: the connections that a busy gateway ends in some milliseconds, at most a megabyte.
const QUEUE: usize = 8192;

/// Record of a connection that has ended.
#[derive(Debug)]
pub struct ConnectionRecord {
    /// The frontend.
    pub frontend: LoggedFrontend,
    /// The peer that opened the connection.
    pub peer: ClientAddr,
    /// The client that a trusted peer named.
    pub named_client: Option<SocketAddr>,
    /// The endpoint, or the last one that was tried.
    pub endpoint: Option<LoggedEndpoint>,
    /// When the connection ended.
    pub ended: SystemTime,
    /// Time from accept until the endpoint was connected; `None` = never.
    pub connected_after: Option<Duration>,
    /// Time from accept to close.
    pub duration: Duration,
    /// Bytes forwarded from the client.
    pub client_bytes: u64,
    /// Bytes forwarded from the endpoint.
    pub endpoint_bytes: u64,
    /// Why the connection ended.
    pub reason: CloseReason,
}

/// The recorded part of a frontend. Not the frontend itself, which a long connection would keep in memory with all its endpoints.
#[derive(Clone, Debug)]
pub struct LoggedFrontend {
    /// Address of the frontend.
    pub addr: FrontendAddr,
    /// Service port that the frontend belongs to.
    pub service: ServicePort,
}

/// The recorded part of an endpoint.
#[derive(Clone, Debug)]
pub struct LoggedEndpoint {
    /// Address of the endpoint.
    pub addr: EndpointAddr,
    /// Its cluster and node, if the table has the endpoint.
    pub place: Option<(Arc<str>, Arc<str>)>,
}

impl LoggedFrontend {
    /// The record of a frontend.
    pub fn of(frontend: &Frontend) -> Self {
        Self { addr: frontend.addr, service: frontend.service.clone() }
    }
}

impl LoggedEndpoint {
    /// The record of the endpoint at this address, with its cluster and node in `frontend`.
    pub fn of(addr: EndpointAddr, frontend: Option<&Frontend>) -> Self {
        let pools = frontend.into_iter().flat_map(Frontend::pools);
        let backends = pools.flat_map(|pool| pool.backends.iter());
        let mut places = backends.filter_map(|backend| {
            // Endpoints are sorted by address.
            let index = backend.endpoints.binary_search_by_key(&addr, |endpoint| endpoint.addr).ok()?;
            Some((Arc::clone(&backend.cluster), Arc::clone(&backend.endpoints.get(index)?.node)))
        });
        Self { addr, place: places.next() }
    }
}

/// Queue of records, shared by all clones.
#[derive(Clone, Debug)]
pub struct ConnectionLog {
    queue: SyncSender<ConnectionRecord>,
    lost: Arc<AtomicU64>,
}

impl ConnectionLog {
    /// Creates a queue, and the receiver of its records, which disconnects when all clones are dropped.
    pub fn new() -> (Self, Receiver<ConnectionRecord>) {
        let (queue, records) = sync_channel(QUEUE);
        (Self { queue, lost: Arc::default() }, records)
    }

    /// Live count of the records that were lost because the queue was full.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    fn leave(&self, record: ConnectionRecord) {
        if self.queue.try_send(record).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Data of an open connection that will be logged.
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
    /// Data of a connection that was accepted now. Boxed to keep sessions small, since few connections are logged.
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

    /// Records that the last endpoint tried was connected.
    pub(crate) fn connect(&mut self, now: Instant) {
        self.connected = Some(now);
    }

    pub(crate) fn add_bytes(&mut self, from_client: u64, from_endpoint: u64) {
        self.client_bytes += from_client;
        self.endpoint_bytes += from_endpoint;
    }

    /// Sends the record of the connection, which has ended.
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
