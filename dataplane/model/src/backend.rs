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
    /// 0 is used first.
    pub priority: u32,
    /// How many endpoints the cluster has, including those that serve nothing at present: [`Failover`](crate::Failover)
    /// measures its health by this, or by the number of `endpoints` if that is larger.
    pub capacity: u32,
    /// Every endpoint that still serves, sorted by address and port. [`Route`](crate::Route) lists those that may be chosen.
    pub endpoints: Vec<Endpoint>,
    /// Endpoints that are neither Ready nor Terminating but still serve existing flows: never chosen, but their flows stay
    /// (kube-proxy keeps UDP flows by `serving`, not by `ready`: pkg/proxy/conntrack/cleanup.go).
    pub lingering: Vec<EndpointAddr>,
}
