//! Options of the projection from the configuration, and the role in which it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use sheave_model::{AddressSet, FrontendKind, HealthPolicy, LogSample, Path, PathChoice, ServiceLimits};

use super::absent::AbsentEndpoints;
use crate::api::names;
use crate::api::store::ServiceKey;

/// Ports that no Service gets at an address of a node itself, unless configured otherwise: those that Kubernetes and its networks
/// need to reach the node (sshd, BGP, etcd, the API server, VXLAN, Geneve, Flannel's VXLAN, the kubelet and the control plane's
/// components, WireGuard).
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

/// Ports of Sheave itself and of a routing daemon (BFD: RFC 5881 and 5883) that no Service gets at an address of a node, whatever
/// the configuration. Without them a gateway could not be probed or send heartbeats, and would lose its addresses.
pub(super) const OWN_PORTS: [RangeInclusive<u16>; 3] = [3784..=3785, 4784..=4784, 9841..=9846];

/// Options of the projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of the Node that this gateway runs on. It defines which endpoints are local, and the zone. Empty means none.
    pub node: String,
    /// Name of the cluster that the objects come from.
    pub cluster: String,
    /// The `loadBalancerClass` of the Services to serve.
    pub load_balancer_class: String,
    /// Whether to serve LoadBalancer Services without a class as well.
    pub handle_unclassified: bool,
    /// Kinds of frontends to create.
    pub frontends: BTreeSet<FrontendKind>,
    /// Networks of internal clients, in addition to pod CIDRs and Node addresses.
    pub internal_cidrs: Vec<IpNet>,
    /// Networks of `spec.externalIPs` that Services may claim; empty means none (CVE-2020-8554).
    pub external_ips_allow: Vec<IpNet>,
    /// Peers that Services may trust to send client addresses in PROXY headers.
    pub accept_proxy_allow: Vec<IpNet>,
    /// Networks of node addresses on which to serve node ports; empty means the primary address of each family.
    pub node_port_addresses: Vec<IpNet>,
    /// Ports that no Service gets at an address of a node itself, in addition to those that Sheave uses by default.
    pub reserved_ports: Vec<RangeInclusive<u16>>,
    /// UDP port of heartbeats, on which this gateway listens on every address.
    pub heartbeat_port: Option<u16>,
    /// Limits of each Service on a gateway, unless its annotations override them.
    pub limits: ServiceLimits,
    /// Share of each Service's TCP connections to log, unless its annotation overrides it.
    pub logged: LogSample,
    /// Health policy of endpoints, unless a Service's annotations override it.
    pub health: Arc<HealthPolicy>,
    /// Data path of each Service, unless its annotation overrides it.
    pub path: PathChoice,
    /// Role of this process in the allocation of load balancer addresses.
    pub role: Role,
    /// `controllerName` of the GatewayClasses to serve; `None` serves no Gateways.
    pub gateway_controller: Option<Arc<str>>,
    /// Options for MultiClusterServices.
    pub fleet: KarmadaOptions,
    /// Endpoints that a preview takes out. Empty in a gateway.
    pub absent: Arc<AbsentEndpoints>,
}

/// Default of [`Options::gateway_controller`].
pub const GATEWAY_CONTROLLER: &str = names::OUR_GATEWAY_CONTROLLER;

/// Options for MultiClusterServices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KarmadaOptions {
    /// Whether to serve MultiClusterServices without a class. Their API has no field for one.
    pub handle_unclassified: bool,
    /// MultiClusterServices that this process decides about.
    pub authority: Authority,
    /// Whether Karmada is requested to collect the endpoints of our MultiClusterServices.
    pub export_services: bool,
    /// Whether to read the Works that bring Services to clusters, which show the changes of OverridePolicies.
    pub service_works: bool,
    /// How long a cluster that is not Ready gets new traffic; `None` means as long as its endpoints answer.
    pub not_ready_hold: Option<Duration>,
    /// Paths to the endpoints of clusters. Clusters without an entry use the default path.
    pub paths: BTreeMap<Arc<str>, Path>,
    /// Networks in which the endpoints of a cluster must be. For clusters without an entry, they may be anywhere but in the
    /// networks of the gateways' own cluster.
    pub allowed: BTreeMap<Arc<str>, Arc<AddressSet>>,
    /// See [`sheave_model::Failover`].
    pub overprovisioning: u16,
}

impl Default for KarmadaOptions {
    fn default() -> Self {
        Self {
            handle_unclassified: true,
            authority: Authority::ALL,
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
            path: PathChoice::Proxy,
            health: Arc::default(),
            role: Role::Standalone,
            gateway_controller: Some(GATEWAY_CONTROLLER.into()),
            fleet: KarmadaOptions::default(),
            absent: Arc::default(),
        }
    }
}

/// Role of a process in the allocation of load balancer addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Without a controller: addresses come from the status, else from pools, else the node's own.
    Standalone,
    /// A gateway with a controller: addresses come from the status.
    Gateway,
    /// The controller: addresses come from pools, and the status holds earlier allocations.
    Controller {
        /// The headless Service whose endpoints are the gateways.
        gateways: ServiceKey,
        /// Node of a gateway in this process, which needs no endpoint.
        own_gateway: Option<Arc<str>>,
    },
}

impl Role {
    /// Whether a change of these Services or their slices may concern the gateways.
    pub(super) fn depends_on(&self, changed: &BTreeSet<ServiceKey>) -> bool {
        matches!(self, Self::Controller { gateways, .. } if changed.contains(gateways))
    }
}

/// MultiClusterServices that a controller decides about. Of several installations that share a Karmada control plane, only one
/// decides about each; gateways follow its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// MultiClusterServices of its class, and those without a class that it has taken.
    pub own: bool,
    /// MultiClusterServices without a class that no installation has taken yet.
    pub untaken: bool,
}

impl Authority {
    /// All MultiClusterServices, as if there were no other installation.
    pub const ALL: Self = Self { own: true, untaken: true };
    /// No MultiClusterServices: another installation decides, or it is unknown which one does.
    pub const NONE: Self = Self { own: false, untaken: false };
}

/// Largest limit of connections. No machine has memory for more, so a larger value is a typing error.
pub const LARGEST_CONNECTION_LIMIT: u32 = 10_000_000;

/// Largest rate limit. No machine accepts more in a second.
pub const LARGEST_RATE_LIMIT: u32 = 1_000_000;
