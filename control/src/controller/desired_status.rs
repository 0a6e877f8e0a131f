//! What the controller wants to be true of one Service or MultiClusterService in its API.

use k8s_openapi::api::core::v1::LoadBalancerIngress;
use sheave_model::FrontendAddr;

use super::port_errors::{PortFailure, port_statuses};
use super::service_object::ServiceObject;
use crate::api::problem::Problem;
use crate::net;
use crate::projection::{FleetStatus, Ingress, NodeFamilies};

/// The desired state of one Service in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// It is ours: finalizer, ingress and conditions. While it is being deleted this means the same as `Released`.
    Published(DesiredStatus),
    /// It is not ours, or not any longer: nothing of ours is left on it.
    Released,
}

/// The desired status of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredStatus {
    /// One entry per address, each with every port of the Service.
    pub ingress: Vec<Ingress>,
    /// What is wrong with this Service.
    pub problems: Vec<Problem>,
    /// How many gateways count as serving it.
    pub gateways: usize,
    /// There are none because those that are ready do not answer the controller.
    pub silent: bool,
    /// Frontends without an endpoint that could serve.
    pub without_endpoints: Vec<FrontendAddr>,
    /// Ports on which gateways could not listen.
    pub failed_ports: Vec<PortFailure>,
    /// The clusters behind it, of a MultiClusterService.
    pub fleet: Option<FleetStatus>,
    /// The families in which it has addresses of gateway nodes; `None` = no condition about it.
    pub node_families: Option<NodeFamilies>,
}

impl DesiredStatus {
    /// The desired `status.loadBalancer.ingress` of the object.
    pub(super) fn ingress_of(&self, object: &ServiceObject) -> Vec<LoadBalancerIngress> {
        let entries = self.ingress.iter().map(|entry| {
            let ports = port_statuses(object, entry, &self.failed_ports);
            LoadBalancerIngress {
                ip: Some(entry.ip.to_string()),
                ip_mode: Some("Proxy".into()),
                // What others wrote there is kept, unless Karmada would refuse the object for it.
                hostname: entry.hostname.clone().filter(|name| net::is_host_name(name)),
                // API servers do not store an empty list, so it would always differ.
                ports: (!ports.is_empty()).then_some(ports),
            }
        });
        entries.collect()
    }
}
