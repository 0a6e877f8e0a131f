//! Past traffic of a gateway for `/api/history` and the status page. JSON keys may be added, but are never renamed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::View;

/// Traffic of the last hour and the last day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryView {
    /// Node of the gateway.
    pub(crate) node: String,
    /// `namespace/name`, for a listener `namespace/gateway/listener`; null for all traffic.
    pub(crate) service: Option<String>,
    /// Time of the answer. The last samples ended at most one sample earlier.
    pub(crate) end: Timestamp,
    /// Samples of the last hour. With thousands of busy Services it is less.
    pub(crate) recent: SamplesView,
    /// Samples of the last day. With thousands of busy Services it is less.
    pub(crate) day: SamplesView,
}

/// Samples of one length, oldest first, in lists of the same length. A process begins without samples. Counts above 2,047 are rounded to a
/// tenth of a percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SamplesView {
    /// Seconds of each sample.
    pub(crate) seconds: u32,
    /// TCP connections and UDP flows opened in the sample.
    pub(crate) opened: Vec<u64>,
    /// TCP connections and UDP flows open at its end.
    pub(crate) open: Vec<u64>,
    /// Bytes from clients to endpoints.
    pub(crate) client_bytes: Vec<u64>,
    /// Bytes from endpoints to clients.
    pub(crate) endpoint_bytes: Vec<u64>,
    /// Failed connections, dropped datagrams, and what was refused because of a limit.
    pub(crate) errors: Vec<u64>,
    /// Upper bound in seconds of the time in which half of the endpoints were connected; null if none was, -1 beyond the last bound.
    pub(crate) connect_p50: Vec<Option<f64>>,
    /// Same for 99 of 100.
    pub(crate) connect_p99: Vec<Option<f64>>,
}

impl View for HistoryView {}
