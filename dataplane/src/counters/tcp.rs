//! Counters of one TCP frontend on one worker.

use std::sync::Arc;
use std::time::Duration;

use super::counter::{CoarseHistogram, Counter, FineHistogram, labelled};
use super::shed::FrontendUse;

labelled! {
    /// Reason why a connection ended.
    pub enum CloseReason {
        /// Both sides finished.
        Finished = "finished",
        /// The client reset the connection or vanished.
        ClientReset = "client_reset",
        /// The endpoint reset the connection or vanished.
        EndpointReset = "endpoint_reset",
        /// There was no traffic for the idle timeout.
        Idle = "idle",
        /// The connection exceeded the maximum age that its Service sets.
        MaxAge = "max_age",
        /// Its frontend left the table and the drain timeout passed, or its endpoint left and the grace period that its Service sets for
        /// this passed.
        Removed = "removed",
        /// No endpoint could be connected.
        ConnectFailed = "connect_failed",
        /// The table had no endpoint for this client.
        NoEndpoint = "no_endpoint",
        /// The part of a split that was chosen for this connection has no backend that can be served.
        InvalidBackend = "invalid_backend",
        /// The source ranges exclude this client, and the kernel could not detect that: a PROXY protocol header named the client, or the
        /// ranges were narrowed meanwhile.
        Denied = "denied",
        /// A trusted proxy did not send a complete and valid PROXY protocol header in time.
        BadProxyHeader = "bad_proxy_header",
        /// A client of a frontend with server names did not send a whole and valid TLS ClientHello in time.
        BadClientHello = "bad_client_hello",
        /// The ClientHello names no server, or what it names is no host name.
        NoServerName = "no_server_name",
        /// No destination has the server name of the ClientHello.
        NoRoute = "no_route",
        /// The client that a PROXY protocol header named exceeded a limit.
        OverLimit = "over_limit",
        /// Peers left too much data unread while memory had run out.
        Memory = "memory",
        /// The gateway stopped while the connection was open.
        Aborted = "aborted",
    }
}

/// Totals of one worker over all TCP frontends, including those that have left. They are written all the time, so they share no cache line
/// with another worker's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct TcpTotals {
    /// Sums; their usage belongs to no frontend.
    pub counters: TcpCounters,
    /// Connect times of endpoints, in finer buckets than those of each frontend.
    pub connect_times: FineHistogram,
}

/// Counters of one TCP frontend on one worker.
#[derive(Debug, Default)]
pub struct TcpCounters {
    usage: Arc<FrontendUse>,
    /// The worker's totals of all frontends; `None` in the totals themselves.
    totals: Option<Arc<TcpTotals>>,
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections that the kernel has forwarded, whose ends are not known. Written by the thread that reads what the kernel counts, and not
    /// by the worker.
    pub carried: Counter,
    closed: [Counter; CloseReason::ALL.len()],
    /// Bytes forwarded from clients to endpoints.
    pub client_bytes: Counter,
    /// Bytes forwarded from endpoints to clients.
    pub endpoint_bytes: Counter,
    /// Number of retries after an endpoint could not be connected.
    pub connect_retries: Counter,
    /// Connections whose endpoint should see the client's address but sees the gateway's.
    pub source_lost: Counter,
    /// Connect times of endpoints; empty in the totals, which have finer buckets.
    pub connect_times: CoarseHistogram,
}

impl TcpCounters {
    /// Counters of zero for one of the workers that share `usage`.
    pub(crate) fn new(usage: Arc<FrontendUse>, totals: Arc<TcpTotals>) -> Self {
        Self { usage, totals: Some(totals), ..Self::default() }
    }

    /// Use of the frontend over all workers.
    pub fn usage(&self) -> &Arc<FrontendUse> {
        &self.usage
    }

    /// Number of connections that ended for this reason.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize].get()
    }

    /// Number of connections opened, on either path.
    pub fn opened(&self) -> u64 {
        self.accepted.get() + self.carried.get()
    }

    pub(crate) fn add_accepted(&self) {
        self.add(|it| &it.accepted, 1);
        self.usage.add_open();
    }

    pub(crate) fn add_closed(&self, reason: CloseReason) {
        self.add(|it| &it.closed[reason as usize], 1);
        self.usage.subtract_open();
    }

    pub(crate) fn add_bytes(&self, from_client: u64, from_endpoint: u64) {
        if from_client > 0 {
            self.add(|it| &it.client_bytes, from_client);
        }
        if from_endpoint > 0 {
            self.add(|it| &it.endpoint_bytes, from_endpoint);
        }
    }

    /// Records the time in which an endpoint was connected.
    pub(crate) fn add_connected(&self, took: Duration) {
        self.connect_times.record(took);
        if let Some(totals) = &self.totals {
            totals.connect_times.record(took);
        }
    }

    pub(crate) fn add(&self, counter: impl Fn(&Self) -> &Counter, amount: u64) {
        counter(self).add(amount);
        if let Some(totals) = &self.totals {
            counter(&totals.counters).add(amount);
        }
    }
}
