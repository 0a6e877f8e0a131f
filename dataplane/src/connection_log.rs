//! What workers tell of TCP connections that have ended, for a log. They never wait for whoever writes it: what finds the queue full is
//! counted, and lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use sheave_model::{ClientAddr, EndpointAddr, Frontend};

use crate::counters::CloseReason;

/// Connections that may wait to be written: what a busy gateway ends in some milliseconds. A megabyte at most.
const QUEUE: usize = 8192;

/// A connection that has ended.
#[derive(Debug)]
pub struct ConnectionRecord {
    /// Its frontend, as it was when the connection came.
    pub frontend: Arc<Frontend>,
    /// Who opened it.
    pub peer: ClientAddr,
    /// Whom a trusted peer named as the client.
    pub named_client: Option<SocketAddr>,
    /// Its endpoint, or the last that was tried.
    pub endpoint: Option<EndpointAddr>,
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
    frontend: Arc<Frontend>,
    accepted: Instant,
    named_client: Option<SocketAddr>,
    endpoint: Option<EndpointAddr>,
    connected: Option<Instant>,
    client_bytes: u64,
    endpoint_bytes: u64,
}

impl LoggedConnection {
    /// One that was accepted now. Boxed, since few are logged, and every connection would have to carry it.
    pub(crate) fn accepted(frontend: Arc<Frontend>, now: Instant) -> Box<Self> {
        Box::new(Self {
            frontend,
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

    pub(crate) fn try_endpoint(&mut self, endpoint: EndpointAddr) {
        self.endpoint = Some(endpoint);
    }

    pub(crate) fn connect(&mut self, endpoint: EndpointAddr, now: Instant) {
        (self.endpoint, self.connected) = (Some(endpoint), Some(now));
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
            connected_after: connected.map(after),
            duration: after(now),
            client_bytes,
            endpoint_bytes,
            reason,
        });
    }
}
