//! How traffic is spread over the clusters of a frontend, and when it spills over to the next. Values only; what they come to
//! is `balance::failover`'s to say, and who is healthy `health`'s.

use std::sync::Arc;
use std::time::Duration;

/// The rules between the backends of one frontend.
///
/// Backends of equal priority are one tier. A tier takes as much of the traffic as its health, multiplied by the
/// overprovisioning, allows; the rest spills over to the next tier (the model of Envoy's priority levels).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// What the shares inside a tier are measured by.
    pub spread: Spread,
    /// In percent, 100 and more: 140 says that a tier carries all of its traffic while 1/1.4 = 72 % of it is healthy.
    pub overprovisioning: u16,
    /// In percent: below so much health, and with too little everywhere, a tier's unhealthy endpoints are used as well. 0 = never.
    pub panic_threshold: u8,
    /// How endpoints of remote backends are asked whether they serve; `None` = only real connections tell.
    pub check: Option<Check>,
}

/// What the share of a backend inside its tier is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Weight times the number of endpoints that may be chosen: with equal weights every endpoint gets the same.
    Endpoints,
    /// Weight alone, however many endpoints there are.
    Backends,
}

/// How an endpoint is asked whether it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What counts as an answer.
    pub kind: CheckKind,
    /// The port to ask on; `None` = the endpoint's own.
    pub port: Option<u16>,
    /// From one question to the next; at least 1 s.
    pub interval: Duration,
    /// How long an answer may take; no longer than `interval`.
    pub timeout: Duration,
    /// So many failures in a row make it unhealthy.
    pub failures: u8,
    /// So many answers in a row make it healthy again.
    pub successes: u8,
}

/// What counts as an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// The endpoint takes a connection.
    Tcp,
    /// It answers `GET` with a status from 200 to 399.
    Http {
        /// Begins with `/`.
        path: Arc<str>,
    },
}
