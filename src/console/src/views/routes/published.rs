//! Status that the controller would publish for each Service, and health check node ports. The `ingress` list has the form
//! of the API (`status.loadBalancer.ingress`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sheave_control::api::problem::reason;
use sheave_control::projection::{HealthCheck, IP_MODE, Ingress, LoadBalancerStatus, PortStatus, port_error};
use sheave_model::{FrontendAddr, Protocol};

use super::source_name;

/// Published status of one Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedView {
    /// `namespace/name`.
    pub service: String,
    /// Kind of the object.
    pub source: String,
    /// One entry per address; empty if there is none.
    pub ingress: Vec<IngressView>,
}

/// Published address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressView {
    /// The address.
    pub ip: String,
    /// Host name from an earlier status, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Always `Proxy`.
    pub ip_mode: String,
    /// Empty if all ports are served, else one entry per port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortStatusView>,
}

/// One port of the Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatusView {
    /// Port number, as in the Service.
    pub port: u16,
    /// Protocol, as in the Service.
    pub protocol: String,
    /// `sheave.dev/` and a CamelCase reason, if the port is not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One health check node port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheckView {
    /// `namespace/name`.
    pub service: String,
    /// `spec.healthCheckNodePort`.
    pub port: u16,
    /// Number of ready endpoints on this node, by family.
    pub local_endpoints: BTreeMap<String, usize>,
}

impl PublishedView {
    /// Builds the view; `failed` is true for frontends that could not be opened here.
    pub(super) fn new(status: &LoadBalancerStatus, failed: impl Fn(FrontendAddr) -> bool) -> Self {
        Self {
            service: status.service.to_string(),
            source: source_name(status.service.source).to_owned(),
            ingress: status.ingress.iter().map(|ingress| IngressView::new(ingress, &failed)).collect(),
        }
    }
}

impl IngressView {
    fn new(ingress: &Ingress, failed: impl Fn(FrontendAddr) -> bool) -> Self {
        let port = |status: &PortStatus| {
            let addr = |protocol| FrontendAddr { ip: ingress.ip, port: status.port, protocol };
            let unopened = Protocol::named(status.protocol).is_some_and(|protocol| failed(addr(protocol)));
            let error = status.error.or(unopened.then_some(reason::BIND_FAILED));
            PortStatusView {
                port: status.port,
                protocol: status.protocol.to_owned(),
                error: error.map(port_error),
            }
        };
        let mut ports: Vec<PortStatusView> = ingress.ports.iter().map(port).collect();
        // The API requires entries for all ports or none.
        if ports.iter().all(|port| port.error.is_none()) {
            ports.clear();
        }
        Self {
            ip: ingress.ip.to_string(),
            hostname: ingress.hostname.clone(),
            ip_mode: IP_MODE.to_owned(),
            ports,
        }
    }
}

impl From<&HealthCheck> for HealthCheckView {
    fn from(check: &HealthCheck) -> Self {
        let counts = [("IPv4", check.local_v4), ("IPv6", check.local_v6)];
        let counts = counts.into_iter().filter_map(|(family, count)| Some((family.to_owned(), count?)));
        Self { service: check.service.to_string(), port: check.port, local_endpoints: counts.collect() }
    }
}
