//! Health policy of one Service: how its endpoints are checked, and how health affects new traffic.

use std::sync::Arc;
use std::time::Duration;

/// Rules that decide which of a Service's endpoints get new traffic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthPolicy {
    /// Percentage of healthy endpoints below which unhealthy ones are used as well. 0 = never while any is healthy.
    pub panic_threshold: u8,
    /// The active check of each endpoint; `None` = only failed connections count.
    pub check: Option<Check>,
    /// How long a new or recovered endpoint takes to reach its full share, except with Maglev; zero = no slow start.
    pub slow_start: Duration,
}

impl Default for HealthPolicy {
    /// A panic threshold of 50 %, as in Envoy; no active check and no slow start.
    fn default() -> Self {
        Self { panic_threshold: 50, check: None, slow_start: Duration::ZERO }
    }
}

/// Active health check of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// Kind of check, with what it requires of the endpoint.
    pub kind: CheckKind,
    /// The port to check; `None` = the endpoint's own.
    pub port: Option<u16>,
    /// Time from one check to the next; at least 1 s.
    pub interval: Duration,
    /// Timeout of one check; no longer than `interval`, and at most 10 s.
    pub timeout: Duration,
    /// Consecutive failures after which the endpoint is unhealthy.
    pub failures: u8,
    /// Consecutive successes after which an unhealthy endpoint is healthy again.
    pub successes: u8,
}

/// Kind of check, and when it succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// The endpoint accepts a connection.
    Tcp,
    /// The endpoint answers `GET` with a status from 200 to 399.
    Http {
        /// Path of the request; begins with `/`.
        path: Arc<str>,
    },
    /// The endpoint answers the gRPC health check, over HTTP/2 without TLS, with `SERVING`.
    Grpc {
        /// Service to check; empty = the server as a whole.
        service: Arc<str>,
    },
    /// The endpoint answers a datagram.
    Udp {
        /// Datagram to send.
        payload: Arc<[u8]>,
        /// Prefix that the answer must have.
        answer: Arc<[u8]>,
    },
}
