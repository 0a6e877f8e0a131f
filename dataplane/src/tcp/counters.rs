//! What one worker counts for one TCP frontend. Written by that worker alone, read by whoever exports metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use super::connect_times::ConnectTimes;
use super::connect_times::increase;
use crate::shed::FrontendUse;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CloseReason {
    /// Both sides finished.
    Finished,
    /// The client reset it or vanished.
    ClientReset,
    /// The endpoint reset it or vanished.
    EndpointReset,
    /// Nothing moved for the idle timeout.
    Idle,
    /// No endpoint could be connected.
    ConnectFailed,
    /// The table had no endpoint for this client.
    NoEndpoint,
    /// The source ranges leave this client out, and the kernel could not know: a PROXY protocol header named it, or the ranges
    /// were narrowed meanwhile.
    Denied,
    /// A peer that names its clients sent no whole PROXY protocol header in time, or something else.
    BadProxyHeader,
    /// The client that a PROXY protocol header named had as many connections as it may.
    OverLimit,
    /// Too much waited for peers that did not read, and memory had run out.
    Memory,
    /// The gateway stopped while it was open.
    Aborted,
}

impl CloseReason {
    /// Every reason, in the order of [`TcpCounters::closed`].
    pub const ALL: [Self; 11] = [
        Self::Finished,
        Self::ClientReset,
        Self::EndpointReset,
        Self::Idle,
        Self::ConnectFailed,
        Self::NoEndpoint,
        Self::Denied,
        Self::BadProxyHeader,
        Self::OverLimit,
        Self::Memory,
        Self::Aborted,
    ];

    /// The reason as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::ClientReset => "client_reset",
            Self::EndpointReset => "endpoint_reset",
            Self::Idle => "idle",
            Self::ConnectFailed => "connect_failed",
            Self::NoEndpoint => "no_endpoint",
            Self::Denied => "denied",
            Self::BadProxyHeader => "bad_proxy_header",
            Self::OverLimit => "over_limit",
            Self::Memory => "memory",
            Self::Aborted => "aborted",
        }
    }
}

/// What one worker has counted for all TCP frontends together, those that have left included. It is written all the time, so it
/// shares no cache line with another worker's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct TcpTotals {
    /// Sums; the usage is nobody's.
    pub counters: TcpCounters,
    /// Of all endpoints together: by frontend they would be many series.
    pub connect_times: ConnectTimes,
}

/// Counters of one TCP frontend on one worker.
#[derive(Debug, Default)]
pub struct TcpCounters {
    usage: Arc<FrontendUse>,
    /// Where the worker counts the same for all; none in totals themselves.
    totals: Option<Arc<TcpTotals>>,
    accepted: AtomicU64,
    closed: [AtomicU64; CloseReason::ALL.len()],
    client_bytes: AtomicU64,
    endpoint_bytes: AtomicU64,
    connect_retries: AtomicU64,
    source_lost: AtomicU64,
}

impl TcpCounters {
    /// All zero, for one of the workers that share `usage`.
    pub(crate) fn new(usage: Arc<FrontendUse>, totals: Arc<TcpTotals>) -> Self {
        Self { usage, totals: Some(totals), ..Self::default() }
    }

    /// What all workers together have of the frontend.
    pub fn usage(&self) -> &Arc<FrontendUse> {
        &self.usage
    }

    /// Connections accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that ended for this reason.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize].load(Ordering::Relaxed)
    }

    /// Bytes passed on from clients to endpoints.
    pub fn client_bytes(&self) -> u64 {
        self.client_bytes.load(Ordering::Relaxed)
    }

    /// Bytes passed on from endpoints to clients.
    pub fn endpoint_bytes(&self) -> u64 {
        self.endpoint_bytes.load(Ordering::Relaxed)
    }

    /// Times that a further endpoint was tried after one could not be connected.
    pub fn connect_retries(&self) -> u64 {
        self.connect_retries.load(Ordering::Relaxed)
    }

    /// Connections whose endpoint was to see the client's address, but sees the gateway's.
    pub fn source_lost(&self) -> u64 {
        self.source_lost.load(Ordering::Relaxed)
    }

    pub(super) fn add_accepted(&self) {
        self.add(|it| &it.accepted, 1);
        self.usage.add_open();
    }

    pub(super) fn add_closed(&self, reason: CloseReason) {
        self.add(|it| &it.closed[reason as usize], 1);
        self.usage.subtract_open();
    }

    pub(super) fn add_bytes(&self, from_client: u64, from_endpoint: u64) {
        if from_client > 0 {
            self.add(|it| &it.client_bytes, from_client);
        }
        if from_endpoint > 0 {
            self.add(|it| &it.endpoint_bytes, from_endpoint);
        }
    }

    pub(super) fn add_connect_retry(&self) {
        self.add(|it| &it.connect_retries, 1);
    }

    pub(super) fn add_source_lost(&self) {
        self.add(|it| &it.source_lost, 1);
    }

    /// An endpoint has answered.
    pub(super) fn add_connected(&self, took: Duration) {
        if let Some(totals) = &self.totals {
            totals.connect_times.record(took);
        }
    }

    fn add(&self, counter: impl Fn(&Self) -> &AtomicU64, count: u64) {
        increase(counter(self), count);
        if let Some(totals) = &self.totals {
            increase(counter(&totals.counters), count);
        }
    }
}
