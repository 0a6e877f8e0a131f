//! Addresses of Services that nodes forward themselves (with kube-proxy or a replacement): cluster addresses, and node ports at
//! the addresses of nodes. They may lead back to a gateway, so they are not used as endpoints.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use sheave_model::{FrontendAddr, Protocol};

use super::families;
use crate::api::store::ServiceKey;
use crate::net;

type NodePort = (u16, Protocol);

/// Addresses and node ports of all Services, ours or not.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceAddresses {
    of_services: HashMap<ServiceKey, (Vec<IpAddr>, Vec<NodePort>)>,
    cluster: HashMap<IpAddr, usize>,
    node_ports: HashMap<NodePort, usize>,
}

/// Addresses and node ports that came or went.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceAddressChanges {
    pub(super) cluster: BTreeSet<IpAddr>,
    pub(super) node_ports: BTreeSet<NodePort>,
}

impl ServiceAddressChanges {
    /// Whether nothing changed.
    pub(super) fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.node_ports.is_empty()
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
        let new =
            service.map(read).filter(|(cluster, node_ports)| !cluster.is_empty() || !node_ports.is_empty());
        if self.of_services.get(key) == new.as_ref() {
            return;
        }
        let old = match new.clone() {
            Some(new) => self.of_services.insert(key.clone(), new),
            None => self.of_services.remove(key),
        };
        let ((old_cluster, old_ports), (cluster, ports)) = (old.unwrap_or_default(), new.unwrap_or_default());
        replace(&mut self.cluster, &old_cluster, &cluster, &mut changes.cluster);
        replace(&mut self.node_ports, &old_ports, &ports, &mut changes.node_ports);
    }

    /// Whether a node would forward traffic to this address.
    pub(super) fn have(&self, addr: FrontendAddr, nodes: &BTreeSet<IpAddr>) -> bool {
        self.cluster.contains_key(&addr.ip)
            || self.node_ports.contains_key(&(addr.port, addr.protocol)) && nodes.contains(&addr.ip)
    }
}

/// Replaces `old` by `new` in the counts, and records values that appeared or disappeared.
fn replace<T: Copy + Ord + Hash>(
    counts: &mut HashMap<T, usize>,
    old: &[T],
    new: &[T],
    changed: &mut BTreeSet<T>,
) {
    for one in new {
        let count = counts.entry(*one).or_default();
        *count += 1;
        if *count == 1 {
            changed.insert(*one);
        }
    }
    for one in old {
        if let Some(count) = counts.get_mut(one) {
            *count -= 1;
            if *count == 0 {
                counts.remove(one);
                changed.insert(*one);
            }
        }
    }
}

fn read(service: &Service) -> (Vec<IpAddr>, Vec<NodePort>) {
    let Some(spec) = &service.spec else { return Default::default() };
    let cluster = families::cluster_ips(spec).filter_map(|(_, ip)| net::parse_ip(ip).ok()).collect();
    (cluster, spec.ports.iter().flatten().filter_map(node_port).collect())
}

fn node_port(port: &ServicePort) -> Option<NodePort> {
    let protocol = match port.protocol.as_deref() {
        None | Some("") => Protocol::Tcp,
        Some(name) => Protocol::named(name)?,
    };
    let number = u16::try_from(port.node_port?).ok().filter(|number| *number != 0)?;
    Some((number, protocol))
}
