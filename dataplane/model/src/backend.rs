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
    /// How many endpoints the cluster has here, those included that serve nothing at present: what [`Failover`] measures
    /// its health by. The number of `endpoints` counts where that is more.
    pub capacity: u32,
    /// Another cluster than the gateway's own: what the API says of its endpoints arrives late.
    pub remote: bool,
    /// Every endpoint that still serves, sorted by address and port. What may be chosen is said by [`Route`].
    pub endpoints: Vec<Endpoint>,
    /// Endpoints that are neither Ready nor Terminating but serve what they have: never chosen, but their flows stay
    /// (kube-proxy keeps UDP flows by `serving`, not by `ready`: pkg/proxy/conntrack/cleanup.go).
    pub lingering: Vec<EndpointAddr>,
}
