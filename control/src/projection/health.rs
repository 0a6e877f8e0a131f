//! What load balancers in front are told when they probe: which Services have endpoints on this node
//! (`healthCheckNodePort`), and whether the node is to get traffic at all. It must not know HTTP.

use crate::store::ServiceKey;

/// One Service's health check node port (pkg/proxy/healthcheck/service_health.go). Each family is counted, and answered,
/// by itself, as kube-proxy's two proxiers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Whose port.
    pub service: ServiceKey,
    /// `spec.healthCheckNodePort`.
    pub port: u16,
    /// Distinct addresses of ready endpoints on this node; `None` if the Service has no IPv4 side.
    pub local_v4: Option<usize>,
    /// The same for IPv6.
    pub local_v6: Option<usize>,
}
