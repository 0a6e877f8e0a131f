//! What one worker counts for one TCP frontend.

use std::sync::Arc;
use std::time::Duration;

use super::counter::{CoarseHistogram, Counter, FineHistogram, labelled};
use super::shed::FrontendUse;

labelled! {
    /// Why a connection ended.
    pub enum CloseReason {
        /// Both sides finished.
        Finished = "finished",
        /// The client reset it or vanished.
        ClientReset = "client_reset",
        /// The endpoint reset it or vanished.
        EndpointReset = "endpoint_reset",
        /// Nothing moved for the idle timeout.
        Idle = "idle",
        /// It was older than its Service lets connections become.
        MaxAge = "max_age",
        /// Its frontend had left the table, and the time of a drain was over; or its endpoint had left, and so was the time that its Service
        /// gives for that.
        Removed = "removed",
        /// No endpoint could be connected.
        ConnectFailed = "connect_failed",
        /// The table had no endpoint for this client.
        NoEndpoint = "no_endpoint",
        /// The source ranges exclude this client, and the kernel could not know: a PROXY protocol header named it, or the ranges
        /// were narrowed meanwhile.
        Denied = "denied",
        /// A trusted proxy sent no complete PROXY protocol header in time, or something else.
        BadProxyHeader = "bad_proxy_header",
        /// The client that a PROXY protocol header named had as many connections as it may.
        OverLimit = "over_limit",
        /// Too much waited for peers that did not read, and memory had run out.
        Memory = "memory",
        /// The gateway stopped while it was open.
        Aborted = "aborted",
    }
}

/// What one worker has counted for all TCP frontends together, including those that have left. It is written all the time, so
/// it shares no cache line with another worker's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct TcpTotals {
    /// Sums; their usage belongs to no frontend.
    pub counters: TcpCounters,
    /// How long endpoints took to answer connects, in finer buckets than those of each frontend.
    pub connect_times: FineHistogram,
}

/// Counters of one TCP frontend on one worker.
#[derive(Debug, Default)]
pub struct TcpCounters {
    usage: Arc<FrontendUse>,
    /// Where the worker counts the same for all frontends; none in the totals themselves.
    totals: Option<Arc<TcpTotals>>,
    /// Connections accepted.
    pub accepted: Counter,
    closed: [Counter; CloseReason::ALL.len()],
    /// Bytes passed on from clients to endpoints.
    pub client_bytes: Counter,
    /// Bytes passed on from endpoints to clients.
    pub endpoint_bytes: Counter,
    /// Times that a further endpoint was tried after one could not be connected.
    pub connect_retries: Counter,
    /// Connections whose endpoint should see the client's address, but sees the gateway's.
    pub source_lost: Counter,
    /// How long endpoints took to answer connects; nothing in the totals, which have finer buckets.
    pub connect_times: CoarseHistogram,
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

    /// Connections that ended for this reason.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize].get()
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

    /// An endpoint answered a connect.
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
