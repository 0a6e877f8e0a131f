//! What a Service's `status.loadBalancer` is to say: the addresses that serve it, and each port's trouble. It must not know
//! how or by whom it is written.

use std::net::IpAddr;

use super::addresses::Placed;
use super::exposure::Exposure;
use super::plan::Plan;
use crate::allocator::NodeFamilies;
use crate::api::problem::reason;
use crate::api::store::ServiceKey;

/// What would be published for one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerStatus {
    /// Whose status.
    pub service: ServiceKey,
    /// One entry per address; empty while it has none.
    pub ingress: Vec<Ingress>,
    /// The families of which the addresses are those of gateway nodes. Whoever starts anew could not know it.
    pub node_families: NodeFamilies,
}

/// One address. Its `ipMode` is `Proxy`, always: by `VIP`, the default, kube-proxy on this node would take the traffic
/// before our sockets see it (KEP-1860).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Where the Service is served.
    pub ip: IpAddr,
    /// The name that the status already had for this address.
    pub hostname: Option<String>,
    /// Every port of the Service that the API can name here.
    pub ports: Vec<PortStatus>,
}

/// One port of the Service on one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// As in the Service.
    pub port: u16,
    /// As in the Service; not only those that we forward.
    pub protocol: &'static str,
    /// Why it is not served, as a reason of [`crate::api::problem::reason`]; see [`port_error`].
    pub error: Option<&'static str>,
}

impl LoadBalancerStatus {
    /// Of an object that has no address.
    pub fn empty(service: &ServiceKey) -> Self {
        Self { service: service.clone(), ingress: Vec::new(), node_families: NodeFamilies::default() }
    }

    /// Of an object that keeps these addresses, though nothing is served there.
    pub(super) fn reserving(service: &ServiceKey, addresses: &[IpAddr], node_families: NodeFamilies) -> Self {
        let ingress = addresses.iter().map(|&ip| Ingress { ip, hostname: None, ports: Vec::new() });
        Self { service: service.clone(), ingress: ingress.collect(), node_families }
    }
}

/// What `ports[].error` says for a reason. Names without a prefix are for Kubernetes' own (core/v1, `PortStatus.error`).
pub fn port_error(reason: &str) -> String {
    format!("sheave.dev/{reason}")
}

/// The status of a Service that has these load balancer addresses, and these frontends.
pub(super) fn of(plan: &Plan, placed: &Placed, frontends: &[Exposure]) -> LoadBalancerStatus {
    let ingress = placed.addresses.iter().map(|&ip| Ingress {
        ip,
        hostname: plan.wishes.hostnames.get(&ip).cloned(),
        ports: ports(plan, ip, frontends),
    });
    LoadBalancerStatus {
        service: plan.key().clone(),
        ingress: ingress.collect(),
        node_families: placed.node_families,
    }
}

fn ports(plan: &Plan, ip: IpAddr, frontends: &[Exposure]) -> Vec<PortStatus> {
    let served = |port: u16, protocol: &str| {
        frontends.iter().any(|Exposure { addr, .. }| {
            addr.ip == ip && addr.port == port && addr.protocol.name() == protocol
        })
    };
    let status = plan.listed_ports.iter().map(|listed| {
        let (port, protocol) = (listed.port.port, listed.port.protocol);
        let lost = (!served(port, protocol)).then_some(reason::ADDRESS_IN_USE);
        PortStatus { port, protocol, error: listed.refused.or(lost) }
    });
    status.collect()
}
