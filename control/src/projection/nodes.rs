//! Inputs of the projection from Nodes: the gateway's own zone and addresses, the clients that are inside the cluster, and the
//! Nodes with a gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use sheave_model::AddressSet;
use sheave_model::{FrontendAddr, FrontendKind, Protocol};

use super::absent::AbsentEndpoints;
use super::allocator::NodeAddress;
use super::options::{OWN_PORTS, Options, Role};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::api::store::{Objects, is_ready};
use crate::net;
use crate::net::Family;

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Label that keeps load balancers off a node (k8s.io/cloud-provider, service controller).
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Taint of a node that the cluster autoscaler is about to remove.
const LEAVING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// The gateway's node and the cluster's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterContext {
    /// Name of the gateway's node; empty if it has none.
    pub(super) node: String,
    /// Zone of the node; empty if unknown.
    pub(super) zone: String,
    /// All addresses of the node.
    pub(super) addresses: Vec<IpAddr>,
    /// All addresses of all nodes.
    pub(super) of_all_nodes: Arc<BTreeSet<IpAddr>>,
    /// Addresses of the node on which to serve, at most one for each family.
    pub(super) own: Vec<IpAddr>,
    /// Addresses of gateway nodes that pools may allocate, ordered by node. In a gateway, only those of this node.
    pub(super) gateway_nodes: Vec<NodeAddress>,
    /// Nodes of all ready gateways; only in the controller.
    pub(super) gateways: BTreeSet<Arc<str>>,
    /// Whether gateway nodes are known: some gateway is ready, and some Node is known.
    pub(super) gateways_known: bool,
    /// Addresses of the node on which to serve node ports.
    pub(super) node_port_addresses: Vec<IpAddr>,
    /// Ports that no Service gets at an address of a node itself.
    pub(super) reserved_ports: Vec<RangeInclusive<u16>>,
    /// UDP port of heartbeats, which no Service gets at any address.
    pub(super) heartbeat_port: Option<u16>,
    /// Whether load balancers may send traffic to the node.
    pub(super) eligible: bool,
    /// Whether objects may be handwritten for a single machine, with loopback addresses as endpoints of simulated clusters.
    pub(super) by_hand: bool,
    /// Pod CIDRs and addresses of Nodes, at which the default path reaches no endpoint of another cluster.
    pub(super) own_networks: Arc<AddressSet>,
    /// Networks of internal clients: pod CIDRs, addresses of Nodes and those in the configuration. Endpoints of other clusters are not
    /// there either.
    pub(super) internal: Arc<AddressSet>,
    /// Endpoints that a preview takes out.
    pub(super) absent: Arc<AbsentEndpoints>,
}

impl ClusterContext {
    /// Whether all Services have the same result as with `before`. Internal clients, eligibility for probes and the nodes' own
    /// addresses affect only the table.
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
            absent,
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
            && *absent == before.absent
    }

    /// The node's own address of a family.
    pub(super) fn own(&self, family: Family) -> Option<IpAddr> {
        self.own.iter().copied().find(|ip| Family::of(*ip) == family)
    }

    /// The reservation of an address and port, if there is one. Otherwise a user with write access to a Service could take over
    /// the node's sshd or kubelet, or the port of heartbeats between gateways.
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

/// Owner of a reserved address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortReservation {
    /// The node whose address it is.
    Node,
    /// Heartbeats of gateways, whose socket is bound on every address.
    Heartbeats,
}

/// Reads all Nodes. `gateways` are the Nodes with a ready gateway, for the controller.
pub(super) fn read(
    options: &Options,
    nodes: &BTreeMap<Arc<str>, Arc<Node>>,
    gateways: &BTreeSet<Arc<str>>,
) -> (ClusterContext, Vec<Problem>) {
    let mut internal = Vec::new();
    // Without any Node, nothing is known about this one; if others exist, a missing Node is gone.
    let mut context = ClusterContext {
        node: options.node.clone(),
        eligible: nodes.is_empty(),
        by_hand: options.role == Role::Standalone,
        gateways: gateways.clone(),
        reserved_ports: [&OWN_PORTS[..], &options.reserved_ports].concat(),
        heartbeat_port: options.heartbeat_port,
        absent: Arc::clone(&options.absent),
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
    problems.extend(unknown_pod_networks(options, nodes));
    context.own_networks = Arc::new(AddressSet::from_cidrs(&internal));
    internal.extend(&options.internal_cidrs);
    context.internal = Arc::new(AddressSet::from_cidrs(&internal));
    context.of_all_nodes = Arc::new(of_all_nodes);
    (context, problems)
}

/// Adds the Node's pod networks to `internal`.
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

/// Type of a Node's address. Names are left out.
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

/// For each family, the first address of the first type, else of the second.
fn per_family(addresses: &[(AddressType, IpAddr)], ways: [AddressType; 2]) -> Vec<IpAddr> {
    let first = |reach, family| {
        addresses.iter().find(|(kind, ip)| *kind == reach && Family::of(*ip) == family).map(|(_, ip)| *ip)
    };
    let best = |family| ways.into_iter().find_map(|reach| first(reach, family));
    Family::ALL.into_iter().filter_map(best).collect()
}

/// Node addresses for node ports, as with kube-proxy's `--nodeport-addresses`: those in the CIDRs, or without any CIDR `primary`,
/// the default of nftables mode (GetNodeHostIPs in pkg/util/node: InternalIP before ExternalIP).
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

/// The Problem of a gateway that cannot tell a Pod's address when a trusted peer claims one. Nodes that are written by hand have no Pods, and
/// controllers present no addresses.
fn unknown_pod_networks(options: &Options, nodes: &BTreeMap<Arc<str>, Arc<Node>>) -> Option<Problem> {
    let claims = options.role == Role::Gateway && !options.accept_proxy_allow.is_empty();
    let mut lacking = nodes.iter().filter(|(_, node)| !has_pod_cidr(node)).map(|(name, _)| name);
    let first = lacking.next().filter(|_| claims && options.internal_cidrs.is_empty())?;
    let mut report = Report::about(ObjectRef { kind: "Node", namespace: "".into(), name: first.clone() });
    let others = match lacking.count() {
        0 => String::new(),
        1 => ", nor does another Node".to_owned(),
        more => format!(", nor do {more} other Nodes"),
    };
    let message = format!(
        "it does not say where its Pods are{others}, so a peer within acceptProxy.allow may claim a Pod's address, which endpoints may see as \
         the source of packets; list the networks of Pods in internalCIDRs of the configuration"
    );
    report.add(reason::POD_NETWORKS_UNKNOWN, "spec.podCIDRs", None, message);
    report.into_problems().pop()
}

fn has_pod_cidr(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let one = spec.and_then(|spec| spec.pod_cidr.as_ref());
    one.into_iter()
        .chain(spec.into_iter().flat_map(|spec| spec.pod_cidrs.iter().flatten()))
        .any(|cidr| !cidr.is_empty())
}

/// Whether the node may get new traffic, by the rule of kube-proxy's health server (pkg/proxy/healthcheck, pkg/proxy/node.go):
/// not if it is going away.
fn eligible(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    node.metadata.deletion_timestamp.is_none() && !taints.iter().any(|taint| taint.key == LEAVING_TAINT)
}

/// Whether the label excludes the node. Like newer cloud controllers, any value but "false" excludes it.
fn excluded(node: &Node) -> bool {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(EXCLUDE_LABEL));
    label.is_some_and(|value| value != "false")
}

/// Nodes with a ready gateway; empty unless this is the controller.
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

/// Nodes with an endpoint that gets traffic under the policy `Local`: a ready one, or if there is none, one that terminates but
/// still serves.
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
