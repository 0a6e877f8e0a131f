//! The options of the projection, from the configuration, and the role in which it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use sheave_model::{AddressSet, FrontendKind, HealthPolicy, LogSample, Path, ServiceLimits};

use crate::api::store::ServiceKey;

/// Ports that no Service gets at an address of a node itself, unless configured otherwise: what Kubernetes and
/// its networks need to reach the node (sshd, BGP, etcd, the API server, VXLAN, Geneve, Flannel's VXLAN, the kubelet and the
/// control plane's components, WireGuard).
pub const RESERVED_PORTS: [RangeInclusive<u16>; 9] = [
    22..=22,
    179..=179,
    2379..=2381,
    4789..=4789,
    6081..=6081,
    6443..=6443,
    8472..=8472,
    10_248..=10_260,
    51_820..=51_821,
];

/// Ports of Sheave itself and of a routing daemon beside it (BFD: RFC 5881 and 5883), which no Service gets at an address of a node
/// whatever else is configured: without them a gateway is neither probed nor heard, and its addresses go.
pub(super) const OWN_PORTS: [RangeInclusive<u16>; 3] = [3784..=3785, 4784..=4784, 9841..=9846];

/// Options of the projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The Node that this gateway runs on: its endpoints are local, its zone is ours. Empty = none.
    pub node: String,
    /// The name of the cluster that the objects are from.
    pub cluster: String,
    /// Services with this `loadBalancerClass` are ours.
    pub load_balancer_class: String,
    /// LoadBalancer Services without a class are ours as well.
    pub handle_unclassified: bool,
    /// Which kinds of frontends Services get; those that are not given here are not made.
    pub frontends: BTreeSet<FrontendKind>,
    /// Clients inside the cluster, in addition to pod CIDRs and Node addresses.
    pub internal_cidrs: Vec<IpNet>,
    /// The `spec.externalIPs` that Services may claim; empty = none (CVE-2020-8554).
    pub external_ips_allow: Vec<IpNet>,
    /// Peers that Services may trust to name their clients in PROXY headers.
    pub accept_proxy_allow: Vec<IpNet>,
    /// Addresses of the node on which node ports are served; empty = its primary address of each family.
    pub node_port_addresses: Vec<IpNet>,
    /// Ports that no Service gets at an address of a node itself, besides those that Sheave uses by default.
    pub reserved_ports: Vec<RangeInclusive<u16>>,
    /// The UDP port of heartbeats, at which this gateway listens on every address.
    pub heartbeat_port: Option<u16>,
    /// What each Service may take of a gateway, unless its annotations say otherwise.
    pub limits: ServiceLimits,
    /// Which part of each Service's TCP connections is logged, unless its annotation says otherwise.
    pub logged: LogSample,
    /// How endpoints' health counts, unless a Service's annotations say otherwise.
    pub health: Arc<HealthPolicy>,
    /// Who decides about load balancer addresses.
    pub role: Role,
    /// What concerns MultiClusterServices alone.
    pub fleet: FleetOptions,
}

/// Options that concern MultiClusterServices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetOptions {
    /// Those for which nothing names a class are ours: their API has no field for one.
    pub handle_unclassified: bool,
    /// Which of them this process decides about.
    pub authority: Authority,
    /// The fields of v1.8 to v1.10 that name clusters count.
    pub legacy_clusters: bool,
    /// Karmada is asked to collect the endpoints of MultiClusterServices that are ours.
    pub export_services: bool,
    /// The Works that bring Services to clusters are read, which show what an OverridePolicy has changed there.
    pub service_works: bool,
    /// How long a cluster that is not Ready gets new traffic; `None` = as long as its endpoints answer.
    pub not_ready_hold: Option<Duration>,
    /// By which path the endpoints of a cluster are reached; those not given here by the default path.
    pub paths: BTreeMap<Arc<str>, Path>,
    /// Within which networks the endpoints of a cluster have to be; of those not given here, anywhere but in the networks of the
    /// gateways' own cluster.
    pub allowed: BTreeMap<Arc<str>, Arc<AddressSet>>,
    /// As in [`sheave_model::Failover`].
    pub overprovisioning: u16,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            handle_unclassified: true,
            authority: Authority::ALL,
            legacy_clusters: true,
            export_services: false,
            service_works: false,
            not_ready_hold: None,
            paths: BTreeMap::new(),
            allowed: BTreeMap::new(),
            overprovisioning: 140,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: String::new(),
            cluster: "local".to_owned(),
            load_balancer_class: "sheave.dev/l4".to_owned(),
            handle_unclassified: false,
            frontends: BTreeSet::from([FrontendKind::LoadBalancer]),
            internal_cidrs: Vec::new(),
            external_ips_allow: Vec::new(),
            accept_proxy_allow: Vec::new(),
            node_port_addresses: Vec::new(),
            reserved_ports: RESERVED_PORTS.to_vec(),
            heartbeat_port: None,
            limits: ServiceLimits::default(),
            logged: LogSample::NONE,
            health: Arc::default(),
            role: Role::Standalone,
            fleet: FleetOptions::default(),
        }
    }
}

/// Who decides about load balancer addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// No controller runs: what the status publishes, else pools, else the node's own.
    Standalone,
    /// The controller has decided: what the status publishes.
    Gateway,
    /// This is the controller: pools decide, and the status holds what they gave before.
    Controller {
        /// The headless Service whose endpoints are the gateways.
        gateways: ServiceKey,
        /// The Node of a gateway that runs in this process, and so needs no endpoint.
        own_gateway: Option<Arc<str>>,
    },
}

impl Role {
    /// Whether a change of these Services or their slices may be one of the gateways.
    pub(super) fn depends_on(&self, changed: &BTreeSet<ServiceKey>) -> bool {
        matches!(self, Self::Controller { gateways, .. } if changed.contains(gateways))
    }
}

/// Which MultiClusterServices a controller decides about: of several installations that see the same Karmada control plane one
/// does. Gateways follow what that one publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Those of its class, and those without one that it has taken.
    pub own: bool,
    /// Those without a class that no installation has taken yet.
    pub untaken: bool,
}

impl Authority {
    /// All of them, as if there were no other installation.
    pub const ALL: Self = Self { own: true, untaken: true };
    /// None: another installation does, or who does is not known.
    pub const NONE: Self = Self { own: false, untaken: false };
}

/// More connections than any machine has memory for are a slip of the finger.
pub const LARGEST_CONNECTION_LIMIT: u32 = 10_000_000;

/// More a second than any machine accepts.
pub const LARGEST_RATE_LIMIT: u32 = 1_000_000;
