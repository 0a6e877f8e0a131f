//! What is published: a Service's `status.loadBalancer`, and the state of a MultiClusterService's clusters. Plain values.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::allocator::NodeFamilies;
use crate::api::store::ServiceKey;

/// What would be published for one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerStatus {
    /// Whose status.
    pub service: ServiceKey,
    /// One entry per address; empty while it has none.
    pub ingress: Vec<Ingress>,
    /// The families of which the addresses are those of gateway nodes. A controller that starts could not know it otherwise.
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

/// The text of `ports[].error` for a reason. Names without a prefix are for Kubernetes' own (core/v1, `PortStatus.error`).
pub fn port_error(reason: &str) -> String {
    format!("sheave.dev/{reason}")
}

/// The clusters behind one MultiClusterService, and whether everything that it names exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetStatus {
    /// The clusters that it may use, by name; empty while it is not served.
    pub clusters: Vec<MemberClusterStatus>,
    /// What it refers to.
    pub resolved: ResolvedRefs,
    /// Everything that it refers to may exist, but it is unknown where it runs: no EndpointSlice was collected from any
    /// cluster, and no address of a cluster's Service is known.
    pub nothing_collected: bool,
    /// As in [`crate::projection::FleetOptions`].
    pub export_services: bool,
}

/// One cluster behind a MultiClusterService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberClusterStatus {
    /// The cluster's name.
    pub name: Arc<str>,
    /// Whether new traffic may go there.
    pub state: ClusterState,
    /// Distinct addresses of endpoints that are ready.
    pub ready: u32,
    /// Distinct addresses of endpoints, those included that do not serve at present.
    pub total: u32,
    /// Its share, as in [`sheave_model::Backend::weight`].
    pub weight: u16,
    /// Its tier; 0 is used first.
    pub priority: u32,
    /// Why there is none, where `total` is 0.
    pub lack: Option<NoEndpoints>,
}

/// Why no endpoint of a cluster is known. Prints as it stands behind a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEndpoints {
    /// Karmada does not schedule the Service, with its message.
    NotScheduled(String),
    /// Karmada does not list the API of ServiceExports among those of the cluster, so no ServiceExport goes there.
    NoExports,
    /// Karmada has collected no EndpointSlice, and knows no address of the cluster's Service.
    NotCollected,
    /// Its Service's addresses are to be used, and none is known.
    NoIngress,
    /// EndpointSlices were collected, and no endpoint of the Service's ports is in them.
    Empty,
}

impl fmt::Display for NoEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotScheduled(message) => message,
            Self::NoExports => {
                "Karmada does not list ServiceExport (multicluster.x-k8s.io/v1alpha1) among the cluster's APIs yet, and collects \
                 nothing there until it does"
            }
            Self::NotCollected => "Karmada has collected no EndpointSlice from it",
            Self::NoIngress => "no address of its Service is known, which sheave.dev/cluster-endpoints asks for",
            Self::Empty => "its EndpointSlices list none",
        })
    }
}

/// What a MultiClusterService refers to, and whether it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedRefs {
    /// Its Service on the Karmada API server exists.
    pub template: bool,
    /// Clusters that it names and that do not exist, by name.
    pub unknown_clusters: Vec<String>,
    /// Entries of `spec.ports` that its Service has no port for, as `name:port` or `port`, in their order.
    pub unmatched_ports: Vec<String>,
}

/// Whether new traffic may go to a cluster. Prints as it stands behind a cluster's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// Karmada reports it as ready.
    Ready,
    /// Nothing is known of it: the API that serves clusters may be away. It is used.
    Unknown,
    /// Karmada does not reach its API server. What runs there is used as long as it answers.
    NotReady,
    /// As `NotReady`, for longer than the configuration lets it get new traffic.
    HeldOff,
    /// It is being left: what is open goes on, nothing new goes there.
    Draining(DrainReason),
    /// The Service is not scheduled to it: whatever is left of it there is stale.
    NotBound,
}

impl ClusterState {
    /// Whether its endpoints are candidates.
    pub fn takes_new(&self) -> bool {
        matches!(self, Self::Ready | Self::Unknown | Self::NotReady)
    }
}

impl fmt::Display for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Unknown => f.write_str("not known"),
            Self::NotReady => f.write_str("not ready"),
            Self::HeldOff => f.write_str("not ready for too long"),
            Self::Draining(why) => write!(f, "draining: {why}"),
            Self::NotBound => f.write_str("without the Service: it is not scheduled there"),
        }
    }
}

/// Why a cluster is being left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainReason {
    /// The MultiClusterService asks for it.
    Asked,
    /// An annotation on the Cluster asks for it.
    Annotated,
    /// The Cluster is being deleted.
    Deleted,
    /// The Cluster has a `NoExecute` taint with this key.
    Taint(String),
    /// The Service is being moved away from it.
    Evicted,
    /// Karmada's Remedy keeps traffic away.
    TrafficControl,
}

impl fmt::Display for DrainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("the annotation sheave.dev/drain names it"),
            Self::Annotated => f.write_str("its Cluster has the annotation sheave.dev/drain"),
            Self::Deleted => f.write_str("its Cluster is being deleted"),
            Self::Taint(key) => write!(f, "its Cluster has the NoExecute taint {key}"),
            Self::Evicted => f.write_str("the Service is being moved away from it"),
            Self::TrafficControl => f.write_str("a Remedy asks for TrafficControl"),
        }
    }
}
