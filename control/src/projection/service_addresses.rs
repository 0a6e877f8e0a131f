//! Addresses of Services that nodes forward themselves (with kube-proxy or a replacement): cluster addresses, node ports at the
//! addresses of nodes, `externalIPs`, and load balancer addresses whose `ipMode` is not Proxy. They may lead back to a gateway, so
//! they are not used as endpoints, and a frontend on another Service's node port may never see its clients.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use sheave_model::{FrontendAddr, Protocol};

use super::families;
use crate::api::store::ServiceKey;
use crate::net;

type NodePort = (u16, Protocol);

/// Addresses and ports of all Services, ours or not, that nodes forward.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceAddresses {
    of_services: HashMap<ServiceKey, Forwarded>,
    cluster: HashMap<IpAddr, usize>,
    node_ports: HashMap<NodePort, usize>,
    external: HashMap<FrontendAddr, usize>,
}

/// Addresses and ports of one Service that nodes forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Forwarded {
    cluster: Vec<IpAddr>,
    node_ports: Vec<NodePort>,
    /// `externalIPs` and load balancer addresses, with each port.
    external: Vec<FrontendAddr>,
}

/// Addresses and ports that a Service got or lost, whether or not another one has them as well.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceAddressChanges {
    pub(super) cluster: BTreeSet<IpAddr>,
    pub(super) node_ports: BTreeSet<NodePort>,
    pub(super) external: BTreeSet<FrontendAddr>,
}

impl ServiceAddressChanges {
    /// Whether nothing changed.
    pub(super) fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.node_ports.is_empty() && self.external.is_empty()
    }
}

impl ServiceAddresses {
    /// Replaces those of a Service; `None` removes them.
    pub(super) fn set(
        &mut self,
        key: &ServiceKey,
        service: Option<&Service>,
        changes: &mut ServiceAddressChanges,
    ) {
        let new = service.map(Forwarded::by_nodes).filter(|new| *new != Forwarded::default());
        if self.of_services.get(key) == new.as_ref() {
            return;
        }
        let old = match new.clone() {
            Some(new) => self.of_services.insert(key.clone(), new),
            None => self.of_services.remove(key),
        };
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        replace(&mut self.cluster, &old.cluster, &new.cluster, &mut changes.cluster);
        replace(&mut self.node_ports, &old.node_ports, &new.node_ports, &mut changes.node_ports);
        replace(&mut self.external, &old.external, &new.external, &mut changes.external);
    }

    /// Whether a node would forward traffic to this address.
    pub(super) fn have(&self, addr: FrontendAddr, nodes: &BTreeSet<IpAddr>) -> bool {
        self.cluster.contains_key(&addr.ip)
            || self.external.contains_key(&addr)
            || self.node_ports.contains_key(&(addr.port, addr.protocol)) && nodes.contains(&addr.ip)
    }

    /// The first Service other than `key` that has this port as its node port.
    pub(super) fn other_with_node_port(
        &self,
        key: &ServiceKey,
        (port, protocol): (u16, Protocol),
    ) -> Option<&ServiceKey> {
        if !self.node_ports.contains_key(&(port, protocol)) {
            return None;
        }
        let others = self.of_services.iter().filter(|(other, _)| *other != key);
        others.filter(|(_, it)| it.node_ports.contains(&(port, protocol))).map(|(other, _)| other).min()
    }
}

/// Replaces `old` by `new` in the counts, and records what differs. Which Services have an address matters, too, since Problems name them.
fn replace<T: Copy + Ord + Hash>(
    counts: &mut HashMap<T, usize>,
    old: &[T],
    new: &[T],
    changed: &mut BTreeSet<T>,
) {
    for one in new {
        *counts.entry(*one).or_default() += 1;
    }
    for one in old {
        if let Some(count) = counts.get_mut(one) {
            *count -= 1;
            if *count == 0 {
                counts.remove(one);
            }
        }
    }
    changed.extend(new.iter().filter(|one| !old.contains(one)));
    changed.extend(old.iter().filter(|one| !new.contains(one)));
}

impl Forwarded {
    /// Addresses and ports of a Service that nodes forward.
    fn by_nodes(service: &Service) -> Self {
        let Some(spec) = &service.spec else { return Self::default() };
        let ports = || spec.ports.iter().flatten();
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
        // Those with another mode are left to the load balancer (KEP-1860).
        let balanced = ingress.iter().filter(|it| it.ip_mode.as_deref().is_none_or(|mode| mode == "VIP"));
        let balanced = balanced.filter_map(|it| it.ip.as_ref());
        let ips = spec.external_ips.iter().flatten().chain(balanced).filter_map(|ip| net::parse_ip(ip).ok());
        let at = |ip: IpAddr| {
            let ports = ports().filter_map(|it| Some((protocol(it)?, number(Some(it.port))?)));
            ports.map(move |(protocol, port)| FrontendAddr { ip, port, protocol })
        };
        Self {
            cluster: families::cluster_ips(spec).filter_map(|(_, ip)| net::parse_ip(ip).ok()).collect(),
            node_ports: ports().filter_map(|it| Some((number(it.node_port)?, protocol(it)?))).collect(),
            external: ips.flat_map(at).collect(),
        }
    }
}

fn protocol(port: &ServicePort) -> Option<Protocol> {
    match port.protocol.as_deref() {
        None | Some("") => Some(Protocol::Tcp),
        Some(name) => Protocol::named(name),
    }
}

fn number(port: Option<i32>) -> Option<u16> {
    u16::try_from(port?).ok().filter(|number| *number != 0)
}
