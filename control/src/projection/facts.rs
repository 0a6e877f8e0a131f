//! What Nodes tell the projection: the gateway's own zone and addresses, and who is a client inside the cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use sheave_dataplane::address_set::AddressSet;

use super::Options;
use crate::ip::{self, Family};
use crate::problem::{ObjectRef, Problem};
use crate::report::Report;

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// What is known of the gateway's node and of the cluster's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The gateway's node; empty if it has none.
    pub(super) node: String,
    /// The node's zone; empty if unknown.
    pub(super) zone: String,
    /// All addresses of the node.
    pub(super) addresses: Vec<IpAddr>,
    /// The node's own addresses to serve on, at most one of each family.
    pub(super) own: Vec<IpAddr>,
    /// Pod CIDRs, addresses of Nodes and what the configuration adds.
    pub(super) internal: Arc<AddressSet>,
}

impl Facts {
    /// The node's own address of a family.
    pub(super) fn own(&self, family: Family) -> Option<IpAddr> {
        self.own.iter().copied().find(|ip| Family::of(*ip) == family)
    }
}

/// Reads all Nodes.
pub(super) fn gather(options: &Options, nodes: &BTreeMap<Arc<str>, Arc<Node>>) -> (Facts, Vec<Problem>) {
    let mut internal = options.internal_cidrs.clone();
    let mut facts = Facts { node: options.node.clone(), ..Facts::default() };
    let mut problems = Vec::new();
    for (name, node) in nodes {
        let object = ObjectRef { kind: "Node", namespace: "".into(), name: name.clone() };
        let mut report = Report::about(object);
        pod_cidrs(node, &mut internal, &mut report);
        let addresses = addresses(node, &mut report);
        internal.extend(addresses.iter().map(|(_, ip)| IpNet::from(*ip)));
        if **name == *options.node {
            facts.zone = node
                .metadata
                .labels
                .as_ref()
                .and_then(|all| all.get(ZONE_LABEL))
                .cloned()
                .unwrap_or_default();
            facts.own = own(&addresses);
            facts.addresses = addresses.into_iter().map(|(_, ip)| ip).collect();
        }
        problems.extend(report.into_problems());
    }
    facts.internal = Arc::new(AddressSet::from_cidrs(&internal));
    (facts, problems)
}

fn pod_cidrs(node: &Node, internal: &mut Vec<IpNet>, report: &mut Report) {
    let Some(spec) = &node.spec else { return };
    let listed = spec.pod_cidrs.as_deref().unwrap_or_default();
    let single =
        spec.pod_cidr.iter().filter(|_| listed.is_empty()).map(|cidr| ("spec.podCIDR".to_owned(), cidr));
    let listed = listed.iter().enumerate().map(|(index, cidr)| (format!("spec.podCIDRs[{index}]"), cidr));
    for (field, cidr) in single.chain(listed) {
        match cidr.trim().parse::<IpNet>() {
            Ok(cidr) => internal.push(cidr),
            Err(_) => {
                let message =
                    format!("{cidr:?} is not a CIDR; its Pods count as clients outside the cluster");
                report.invalid(field, message);
            }
        }
    }
}

/// The kind of a Node's address that is one of the network; names are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    External,
    Internal,
}

fn addresses(node: &Node, report: &mut Report) -> Vec<(Reach, IpAddr)> {
    let listed = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let mut addresses = Vec::with_capacity(listed.len());
    for (index, listed) in listed.iter().enumerate() {
        let reach = match listed.type_.as_str() {
            "ExternalIP" => Reach::External,
            "InternalIP" => Reach::Internal,
            _ => continue,
        };
        match ip::parse(&listed.address) {
            Ok(ip) => addresses.push((reach, ip)),
            Err(why) => {
                let message = format!("{:?} {why}; the address is not used", listed.address);
                report.invalid(format!("status.addresses[{index}].address"), message);
            }
        }
    }
    addresses
}

/// Per family the first ExternalIP, else the first InternalIP.
fn own(addresses: &[(Reach, IpAddr)]) -> Vec<IpAddr> {
    let first = |reach, family| {
        addresses.iter().find(|(kind, ip)| *kind == reach && Family::of(*ip) == family).map(|(_, ip)| *ip)
    };
    let best = |family| first(Reach::External, family).or_else(|| first(Reach::Internal, family));
    Family::ALL.into_iter().filter_map(best).collect()
}
