//! What the projection reads from Nodes: the gateway's own zone and addresses, who is a client inside the cluster, and which Nodes have
//! a gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use sheave_model::AddressSet;
use sheave_model::{FrontendAddr, FrontendKind, Protocol};

use super::allocator::NodeAddress;
use super::options::{OWN_PORTS, Options, Role};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::api::store::{Objects, is_ready};
use crate::net;
use crate::net::Family;

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Set to keep load balancers off a node (k8s.io/cloud-provider, service controller).
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Set by the cluster autoscaler on a node that it is about to remove.
const LEAVING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// What is known of the gateway's node and of the cluster's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterContext {
    /// The gateway's node; empty if it has none.
    pub(super) node: String,
    /// The node's zone; empty if unknown.
    pub(super) zone: String,
    /// All addresses of the node.
    pub(super) addresses: Vec<IpAddr>,
    /// All addresses of all nodes.
    pub(super) of_all_nodes: Arc<BTreeSet<IpAddr>>,
    /// The node's own addresses to serve on, at most one of each family.
    pub(super) own: Vec<IpAddr>,
    /// The addresses of gateway nodes that pools may give, ordered by node. In a gateway, those of this node.
    pub(super) gateway_nodes: Vec<NodeAddress>,
    /// The Nodes of all gateways that are ready, for the controller.
    pub(super) gateways: BTreeSet<Arc<str>>,
    /// Whether anything is known of gateway nodes: some gateway is ready, and some Node known.
    pub(super) gateways_known: bool,
    /// The node's addresses to serve node ports on.
    pub(super) node_port_addresses: Vec<IpAddr>,
    /// The ports that no Service gets at an address of a node itself.
    pub(super) reserved_ports: Vec<RangeInclusive<u16>>,
    /// The UDP port of heartbeats, which no Service gets at any address.
    pub(super) heartbeat_port: Option<u16>,
    /// Whether load balancers may send traffic to the node.
    pub(super) eligible: bool,
    /// Objects may be written by hand for one machine, and its loopback addresses be endpoints of pretended clusters.
    pub(super) by_hand: bool,
    /// Pod CIDRs and addresses of Nodes: where nothing of another cluster is reached by the default path.
    pub(super) own_networks: Arc<AddressSet>,
    /// Pod CIDRs, addresses of Nodes and what the configuration adds.
    pub(super) internal: Arc<AddressSet>,
}

impl ClusterContext {
    /// Whether every Service gives the same result with these. Only the table depends on who is a client inside the cluster, whether
    /// the node gets traffic by probes, and which addresses are nodes' own.
    pub(super) fn suffice(&self, before: &Self) -> bool {
        let Self {
            node,
            zone,
            addresses,
            of_all_nodes: _,
            own,
            gateway_nodes,
            gateways,
            gateways_known,
            node_port_addresses,
            reserved_ports,
            heartbeat_port,
            eligible: _,
            by_hand,
            own_networks: _,
            internal: _,
        } = self;
        *node == before.node
            && *zone == before.zone
            && *addresses == before.addresses
            && *own == before.own
            && *gateway_nodes == before.gateway_nodes
            && *gateways == before.gateways
            && *gateways_known == before.gateways_known
            && *node_port_addresses == before.node_port_addresses
            && *reserved_ports == before.reserved_ports
            && *heartbeat_port == before.heartbeat_port
            && *by_hand == before.by_hand
    }

    /// The node's own address of a family.
    pub(super) fn own(&self, family: Family) -> Option<IpAddr> {
        self.own.iter().copied().find(|ip| Family::of(*ip) == family)
    }

    /// For whom the place is reserved, if it is. Whoever may write a Service could else take the node's sshd or kubelet, or the port by
    /// which gateways hear one another.
    pub(super) fn reserves(&self, addr: FrontendAddr) -> Option<PortReservation> {
        let is_nodes =
            || self.addresses.contains(&addr.ip) || self.gateway_nodes.iter().any(|node| node.ip == addr.ip);
        if addr.protocol == Protocol::Udp && self.heartbeat_port == Some(addr.port) {
            return Some(PortReservation::Heartbeats);
        }
        let reserved = self.reserved_ports.iter().any(|ports| ports.contains(&addr.port));
        (reserved && is_nodes()).then_some(PortReservation::Node)
    }
}

/// For whom a place is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortReservation {
    /// The node, whose own address it is.
    Node,
    /// The heartbeats of gateways, whose socket is on every address.
    Heartbeats,
}

/// Reads all Nodes. `gateways` are the Nodes with a ready gateway, for the controller.
pub(super) fn read(
    options: &Options,
    nodes: &BTreeMap<Arc<str>, Arc<Node>>,
    gateways: &BTreeSet<Arc<str>>,
) -> (ClusterContext, Vec<Problem>) {
    let mut internal = Vec::new();
    // Without any Node nothing is known of this one; a Node that is missing among others is gone.
    let mut context = ClusterContext {
        node: options.node.clone(),
        eligible: nodes.is_empty(),
        by_hand: options.role == Role::Standalone,
        gateways: gateways.clone(),
        reserved_ports: [&OWN_PORTS[..], &options.reserved_ports].concat(),
        heartbeat_port: options.heartbeat_port,
        ..ClusterContext::default()
    };
    context.gateways_known = match options.role {
        Role::Standalone | Role::Gateway => true,
        Role::Controller { .. } => !gateways.is_empty() && !nodes.is_empty(),
    };
    let (mut problems, mut of_all_nodes) = (Vec::new(), BTreeSet::new());
    for (name, node) in nodes {
        let object = ObjectRef { kind: "Node", namespace: "".into(), name: name.clone() };
        let mut report = Report::about(object);
        pod_cidrs(node, &mut internal, &mut report);
        let addresses = addresses(node, &mut report);
        internal.extend(addresses.iter().map(|(_, ip)| IpNet::from(*ip)));
        of_all_nodes.extend(addresses.iter().map(|(_, ip)| *ip));
        let serves = match options.role {
            Role::Standalone => **name == *options.node,
            Role::Gateway => **name == *options.node && !excluded(node),
            Role::Controller { .. } => gateways.contains(name) && eligible(node) && !excluded(node),
        };
        if serves {
            let own = per_family(&addresses, [AddressType::External, AddressType::Internal]);
            context.gateway_nodes.extend(own.into_iter().map(|ip| NodeAddress { node: name.clone(), ip }));
        }
        if **name == *options.node {
            context.zone = node
                .metadata
                .labels
                .as_ref()
                .and_then(|all| all.get(ZONE_LABEL))
                .cloned()
                .unwrap_or_default();
            context.own = per_family(&addresses, [AddressType::External, AddressType::Internal]);
            context.node_port_addresses = node_port_addresses(&addresses, &options.node_port_addresses);
            context.eligible = eligible(node);
            context.addresses = addresses.into_iter().map(|(_, ip)| ip).collect();
        }
        problems.extend(report.into_problems());
    }
    if options.frontends.contains(&FrontendKind::NodePort) && context.node_port_addresses.is_empty() {
        problems.push(no_node_ports(options));
    }
    context.own_networks = Arc::new(AddressSet::from_cidrs(&internal));
    internal.extend(&options.internal_cidrs);
    context.internal = Arc::new(AddressSet::from_cidrs(&internal));
    context.of_all_nodes = Arc::new(of_all_nodes);
    (context, problems)
}

/// The Node's pod networks.
pub(super) fn pod_cidrs(node: &Node, internal: &mut Vec<IpNet>, report: &mut Report) {
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
pub(super) enum AddressType {
    External,
    Internal,
}

/// The Node's addresses, in its own order.
pub(super) fn addresses(node: &Node, report: &mut Report) -> Vec<(AddressType, IpAddr)> {
    let listed = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let mut addresses = Vec::with_capacity(listed.len());
    for (index, listed) in listed.iter().enumerate() {
        let reach = match listed.type_.as_str() {
            "ExternalIP" => AddressType::External,
            "InternalIP" => AddressType::Internal,
            _ => continue,
        };
        match net::parse_ip(&listed.address) {
            Ok(ip) => addresses.push((reach, ip)),
            Err(why) => {
                let message = format!("{:?} {why}; the address is not used", listed.address);
                report.invalid(format!("status.addresses[{index}].address"), message);
            }
        }
    }
    addresses
}

/// Per family the first address that is reached in the first of these ways, else in the second.
fn per_family(addresses: &[(AddressType, IpAddr)], ways: [AddressType; 2]) -> Vec<IpAddr> {
    let first = |reach, family| {
        addresses.iter().find(|(kind, ip)| *kind == reach && Family::of(*ip) == family).map(|(_, ip)| *ip)
    };
    let best = |family| ways.into_iter().find_map(|reach| first(reach, family));
    Family::ALL.into_iter().filter_map(best).collect()
}

/// As kube-proxy's `--nodeport-addresses`: those within the CIDRs; without any, `primary`, which nftables mode defaults to
/// (GetNodeHostIPs in pkg/util/node: InternalIP before ExternalIP).
fn node_port_addresses(addresses: &[(AddressType, IpAddr)], within: &[IpNet]) -> Vec<IpAddr> {
    if within.is_empty() {
        return per_family(addresses, [AddressType::Internal, AddressType::External]);
    }
    let mut chosen: Vec<IpAddr> = Vec::new();
    for (_, ip) in addresses {
        if within.iter().any(|cidr| cidr.contains(ip)) && !chosen.contains(ip) {
            chosen.push(*ip);
        }
    }
    chosen
}

fn no_node_ports(options: &Options) -> Problem {
    let name = options.node.as_str().into();
    let mut report = Report::about(ObjectRef { kind: "Node", namespace: "".into(), name });
    let message = "node ports are served nowhere: the Node is unknown or has no address for them; add status.addresses to \
                   it, or CIDRs of its addresses to nodePortAddresses in the configuration";
    report.add(reason::NO_ADDRESS, "", None, message);
    report.into_problems().remove(0)
}

/// The rule of kube-proxy's health server (pkg/proxy/healthcheck, pkg/proxy/node.go): a node that is going away shall get
/// no new traffic.
fn eligible(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    node.metadata.deletion_timestamp.is_none() && !taints.iter().any(|taint| taint.key == LEAVING_TAINT)
}

/// As newer cloud controllers read it: anything but "false" excludes.
fn excluded(node: &Node) -> bool {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(EXCLUDE_LABEL));
    label.is_some_and(|value| value != "false")
}

/// The Nodes with a ready gateway, as far as the controller needs them.
pub(super) fn gateway_nodes(role: &Role, objects: &Objects) -> BTreeSet<Arc<str>> {
    match role {
        Role::Standalone | Role::Gateway => BTreeSet::new(),
        Role::Controller { gateways, own_gateway } => {
            let slices = objects.slices.get(gateways).into_iter().flat_map(|all| all.values());
            let mut nodes = nodes_of(slices, is_ready);
            nodes.extend(own_gateway.clone());
            nodes
        }
    }
}

/// The Nodes with an endpoint that gets traffic under the policy `Local`: ready, or, in case none is, serving while it
/// terminates.
pub(super) fn nodes_with_local<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
) -> BTreeSet<Arc<str>> {
    nodes_of(slices, |endpoint| {
        let conditions = endpoint.conditions.as_ref();
        let serving = conditions.and_then(|it| it.serving).unwrap_or_else(|| is_ready(endpoint));
        let terminating = conditions.and_then(|it| it.terminating).unwrap_or(false);
        is_ready(endpoint) || (serving && terminating)
    })
}

fn nodes_of<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    counts: impl Fn(&Endpoint) -> bool,
) -> BTreeSet<Arc<str>> {
    let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints
        .filter(|endpoint| counts(endpoint))
        .filter_map(|endpoint| endpoint.node_name.as_deref().map(Arc::from))
        .collect()
}
