//! Published state: a Service's `status.loadBalancer`, and the state of a MultiClusterService's clusters. Plain values.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::allocator::NodeFamilies;
use crate::api::store::ServiceKey;

/// The status to publish for a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerStatus {
    /// The Service.
    pub service: ServiceKey,
    /// One entry for each address; empty while it has none.
    pub ingress: Vec<Ingress>,
    /// Families in which the addresses are those of gateway nodes. A controller that starts has no other source for this.
    pub node_families: NodeFamilies,
}

/// `ipMode` of every address: with `VIP`, the default, kube-proxy on this node would intercept the traffic
/// before our sockets get it (KEP-1860).
pub const IP_MODE: &str = "Proxy";

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Address where the Service is served.
    pub ip: IpAddr,
    /// Hostname that the status already has for this address.
    pub hostname: Option<String>,
    /// All ports of the Service that the API can list here.
    pub ports: Vec<PortStatus>,
    /// Whether every port here is its own, apart from those with an error: which it has is unknown while it is not served.
    pub whole: bool,
}

/// A port of the Service at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Port, as in the Service.
    pub port: u16,
    /// Protocol, as in the Service, including protocols that are not forwarded.
    pub protocol: &'static str,
    /// Why it is not served, as a reason from [`crate::api::problem::reason`]; see [`port_error`].
    pub error: Option<&'static str>,
}

impl LoadBalancerStatus {
    /// The status of an object without addresses.
    pub fn empty(service: &ServiceKey) -> Self {
        Self { service: service.clone(), ingress: Vec::new(), node_families: NodeFamilies::default() }
    }
}

/// The text of `ports[].error` for a reason. Names without a prefix are reserved for Kubernetes (core/v1, `PortStatus.error`).
pub fn port_error(reason: &str) -> String {
    format!("sheave.dev/{reason}")
}

/// Member clusters of a MultiClusterService, and whether everything that it references exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultiClusterStatus {
    /// Clusters that it may use, by name; empty while it is not served.
    pub clusters: Vec<MemberClusterStatus>,
    /// Result of resolving its references.
    pub resolved: ResolvedRefs,
    /// Whether the clusters that run it are unknown, although all references may exist: no EndpointSlice was collected from any
    /// cluster, and no address of a cluster's Service is known.
    pub nothing_collected: bool,
    /// See [`crate::projection::KarmadaOptions`].
    pub export_services: bool,
}

/// A member cluster of a MultiClusterService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberClusterStatus {
    /// Name of the cluster.
    pub name: Arc<str>,
    /// State, which decides whether it gets new traffic.
    pub state: ClusterState,
    /// Number of distinct addresses of ready endpoints.
    pub ready: u32,
    /// Number of distinct addresses of endpoints, including those that currently do not serve.
    pub total: u32,
    /// Weight; see [`sheave_model::Backend::weight`].
    pub weight: u16,
    /// Tier; 0 is used first.
    pub priority: u32,
    /// Why it has no endpoint, if `total` is 0.
    pub lack: Option<NoEndpoints>,
}

/// Reason why no endpoint of a cluster is known. Displays as the text after a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEndpoints {
    /// Karmada does not schedule the Service; holds its message.
    NotScheduled(String),
    /// The cluster does not serve the API of ServiceExports according to Karmada, so no ServiceExport goes there.
    NoExports,
    /// Karmada has collected no EndpointSlice and knows no address of the cluster's Service.
    NotCollected,
    /// The addresses of its Service should be used, and none is known.
    NoIngress,
    /// EndpointSlices were collected, but they have no endpoint for the Service's ports.
    Empty,
    /// Their endpoints are left out; holds what is wrong with the address of the first one.
    LeftOut(&'static str),
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
            Self::LeftOut(why) => return write!(f, "each one is left out, the first because its address {why}"),
        })
    }
}

/// References of a MultiClusterService that do or do not resolve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedRefs {
    /// Whether its Service exists on the Karmada API server.
    pub template: bool,
    /// Referenced clusters that do not exist, by name.
    pub unknown_clusters: Vec<String>,
    /// Entries of `spec.ports` without a port of the Service, as `name:port` or `port`, in their order.
    pub unmatched_ports: Vec<String>,
}

/// State of a cluster, which decides whether it gets new traffic. Displays as the text after a cluster's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// Karmada reports it as ready.
    Ready,
    /// Its state is unknown, because the API that serves clusters may be unavailable. It is used.
    Unknown,
    /// Karmada cannot reach its API server. Its endpoints are used as long as they answer.
    NotReady,
    /// `NotReady` for longer than the configuration permits new traffic.
    HeldOff,
    /// Draining: open connections continue, and there are no new ones.
    Draining(DrainReason),
    /// The Service is not scheduled to it: any remaining objects there are stale.
    NotBound,
}

impl ClusterState {
    /// Whether its endpoints can get new connections.
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

/// Reason why a cluster is being drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainReason {
    /// The MultiClusterService requests it.
    Asked,
    /// An annotation on the Cluster requests it.
    Annotated,
    /// The Cluster is being deleted.
    Deleted,
    /// The Cluster has a `NoExecute` taint with this key.
    Taint(String),
    /// The Service is being evicted from it.
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
