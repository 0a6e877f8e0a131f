//! How endpoints of one Service are judged, and what that means for new traffic.

use std::sync::Arc;
use std::time::Duration;

/// The rules by which a Service's endpoints get new traffic or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthPolicy {
    /// In percent: below this part of healthy endpoints, the unhealthy ones are used as well. 0 = never while any is healthy.
    pub panic_threshold: u8,
    /// The active check of each endpoint; `None` = only failed connections count.
    pub check: Option<Check>,
    /// How long a new or returned endpoint takes to get its full share, except by hash; zero = it gets that at once.
    pub slow_start: Duration,
}

impl Default for HealthPolicy {
    /// Half of the endpoints must be healthy, as in Envoy.
    fn default() -> Self {
        Self { panic_threshold: 50, check: None, slow_start: Duration::ZERO }
    }
}

/// An active check of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// What counts as success.
    pub kind: CheckKind,
    /// The port to check; `None` = the endpoint's own.
    pub port: Option<u16>,
    /// From one check to the next; at least 1 s.
    pub interval: Duration,
    /// How long a check may take; no longer than `interval`, and at most 10 s.
    pub timeout: Duration,
    /// Consecutive failures that make the endpoint unhealthy.
    pub failures: u8,
    /// Consecutive successes that make it healthy again.
    pub successes: u8,
}

/// What counts as success.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// The endpoint accepts a connection.
    Tcp,
    /// It answers `GET` with a status from 200 to 399.
    Http {
        /// Begins with `/`.
        path: Arc<str>,
    },
    /// It answers gRPC's health check, over HTTP/2 without TLS, with `SERVING`.
    Grpc {
        /// Empty = the server as a whole.
        service: Arc<str>,
    },
    /// It answers a datagram.
    Udp {
        /// The datagram.
        payload: Arc<[u8]>,
        /// How the answer begins.
        answer: Arc<[u8]>,
    },
}
