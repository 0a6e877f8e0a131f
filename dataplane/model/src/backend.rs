//! Backends: the endpoints of one Service port in one cluster.

use std::sync::Arc;

use crate::endpoint::{Endpoint, EndpointAddr, Weight};

/// The endpoints of one Service port in one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The cluster's name; the gateway's own is `local` unless configured otherwise.
    pub cluster: Arc<str>,
    /// Share among the backends of equal priority.
    pub weight: Weight,
    /// Lower values are preferred: 0 is used first.
    pub priority: u32,
    /// Number of endpoints in the cluster, including those that serve nothing at present. [`Failover`](crate::Failover)
    /// measures the cluster's health against this number, or against the number of `endpoints` if that is larger.
    pub capacity: u32,
    /// Whether the cluster gets no new connections, for example while it drains. Its endpoints keep those that they have.
    pub closed: bool,
    /// Every endpoint that still serves, sorted by address and port. [`Route`](crate::Route) lists those that may be picked.
    pub endpoints: Vec<Endpoint>,
    /// Endpoints that are neither Ready nor Terminating but still serve existing flows. They get no new traffic but keep
    /// their flows: kube-proxy, too, keeps UDP flows by `serving`, not by `ready` (pkg/proxy/conntrack/cleanup.go).
    pub lingering: Vec<EndpointAddr>,
}
