//! How traffic is spread over the clusters of a frontend, when it fails over to the next, and how endpoints are checked.

use std::sync::Arc;
use std::time::Duration;

/// The rules between the backends of one frontend.
///
/// Backends of equal priority form one tier. A tier takes as much traffic as its health times the overprovisioning factor
/// allows; the rest spills over to the next tier (the model of Envoy's priority levels).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// What determines the shares inside a tier.
    pub spread: Spread,
    /// In percent, at least 100: with 140 a tier carries all of its traffic while 1/1.4 = 72 % of it is healthy.
    pub overprovisioning: u16,
    /// In percent: below this health, and with too little health in all tiers, a tier uses its unhealthy endpoints as well.
    /// 0 = never.
    pub panic_threshold: u8,
    /// The active check of remote endpoints; `None` = only failed connections count.
    pub check: Option<Check>,
}

/// What determines the share of a backend inside its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Weight times the number of eligible endpoints: with equal weights every endpoint gets the same.
    Endpoints,
    /// Weight alone, however many endpoints there are.
    Backends,
}

/// An active check of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What counts as success.
    pub kind: CheckKind,
    /// The port to check; `None` = the endpoint's own.
    pub port: Option<u16>,
    /// From one check to the next; at least 1 s.
    pub interval: Duration,
    /// How long a check may take; no longer than `interval`.
    pub timeout: Duration,
    /// Consecutive failures that make the endpoint unhealthy.
    pub failures: u8,
    /// Consecutive successes that make it healthy again.
    pub successes: u8,
}

/// What counts as success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// The endpoint accepts a connection.
    Tcp,
    /// It answers `GET` with a status from 200 to 399.
    Http {
        /// Begins with `/`.
        path: Arc<str>,
    },
}
