//! Plan of a Service: everything that it requests, read and validated once. It needs neither addresses nor endpoints.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::age::Age;
use super::annotations::client_address::ClientAddress;
use super::class::FrontendKinds;
use super::eligibility::{ClusterScope, TrafficPolicies};
use super::families::Families;
use super::gateway_api::listener_inputs::ListenerInputs;
use super::gateway_api::outcome::GatewayOutcome;
use super::ports::{ListedPort, PlannedPort};
use super::requests::Requests;
use super::source_ranges::FamilyRanges;
use super::status::MultiClusterStatus;
use crate::api::gateway_api::ListenerSet;
use crate::api::owners::is_imported;
use crate::api::problem::{ObjectRef, Problem};
use crate::api::store::ServiceKey;

use sheave_model::{
    AddressSet, Affinity, Algorithm, Failover, FrontendKind, FrontendSource, HealthPolicy, LogSample, Path,
    PathChoice, RefusedPart, ServerNamePattern, ServiceLimits, ServiceTimeouts, Weight,
};

/// Slices of a Service, by name.
pub(super) type Slices = BTreeMap<Arc<str>, Arc<EndpointSlice>>;

/// Requests of a Service that is ours.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) rank: Rank,
    pub(super) uid: Option<String>,
    pub(super) kinds: FrontendKinds,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) families: Families,
    /// Requests of load balancer addresses; empty for a Service that is not ours as a load balancer.
    pub(super) requests: Requests,
    /// Addresses in the spec.
    pub(super) addresses: SpecAddresses,
    pub(super) ports: Vec<PlannedPort>,
    /// All ports that the API can list in a status, in the order of the spec.
    pub(super) listed_ports: Vec<ListedPort>,
    pub(super) affinity: Affinity,
    /// `None` means the default of each port's protocol.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) path: PathChoice,
    pub(super) ranges: FamilyRanges,
    pub(super) policies: TrafficPolicies,
    pub(super) client_address: ClientAddress,
    pub(super) limits: ServiceLimits,
    pub(super) timeouts: ServiceTimeouts,
    pub(super) logged: LogSample,
    pub(super) health: Arc<HealthPolicy>,
    pub(super) health_check_port: Option<u16>,
    /// See [`sheave_model::ServicePort::settings_of`].
    pub(super) settings_of: Option<Arc<str>>,
    /// Clusters that serve it; `None` means only the gateway's own.
    pub(super) fleet: Option<MultiClusterPlan>,
    /// Listeners, if it is a Gateway.
    pub(super) gateway: Option<Box<GatewayPlan>>,
    /// Whether another installation decides about it, or it is unknown which one does. It keeps its addresses and ports and is
    /// not served from here.
    pub(super) suspended: bool,
    /// Problems of the Service itself.
    pub(super) problems: Vec<Problem>,
}

/// Result of planning a Service.
#[derive(Debug)]
#[must_use]
pub(super) enum Planned {
    /// The Service is not ours.
    Foreign,
    /// The Service is for this installation but cannot be served.
    Refused(Vec<Problem>),
    /// The Service is served according to the plan.
    Ours(Box<Plan>),
}

/// The reference to a Service in Problems.
pub(super) fn service_ref(key: &ServiceKey) -> ObjectRef {
    key.object()
}

impl Plan {
    pub(super) fn key(&self) -> &ServiceKey {
        &self.rank.key
    }

    /// Whether it has, or requests, load balancer addresses from us.
    pub(super) fn is_load_balancer(&self) -> bool {
        self.kinds.contains(&FrontendKind::LoadBalancer)
    }

    /// Clusters that serve it; `slices` are those of the Service with its name in the cluster `own`.
    pub(super) fn members(&self, slices: Option<&Slices>, own: &Arc<str>) -> Cow<'_, [ClusterMember]> {
        match &self.fleet {
            Some(fleet) => Cow::Borrowed(&fleet.members),
            None => {
                Cow::Owned(vec![ClusterMember::alone(own, slices.into_iter().flat_map(BTreeMap::values))])
            }
        }
    }

    /// The object that has a port, as Problems name it: the listeners of a Gateway may be those of a ListenerSet.
    pub(super) fn port_object(&self, port: &PlannedPort) -> ObjectRef {
        let of_set = port.name.split_once('/').filter(|_| self.key().source == FrontendSource::Gateway);
        let set = of_set.and_then(|(namespace, rest)| Some((namespace, rest.split_once('/')?.0)));
        match set {
            Some((namespace, name)) => ListenerSet::object(&(namespace.into(), name.into())),
            None => self.key().object(),
        }
    }

    /// The field of a port in Problems.
    pub(super) fn port_field(&self, port: &PlannedPort) -> String {
        match self.key().source {
            FrontendSource::Gateway => format!("spec.listeners[{}]", port.index),
            FrontendSource::Service | FrontendSource::MultiClusterService => {
                self.field(format!("spec.ports[{}]", port.index))
            }
        }
    }

    /// Another object in Problems of a port. Who may read a Gateway, or a ListenerSet, may not know what other namespaces contain.
    pub(super) fn name_of_other(&self, other: &ServiceKey, port: &PlannedPort) -> String {
        let is_secret = self.key().source == FrontendSource::Gateway
            && other.namespace != self.port_object(port).namespace;
        if is_secret { "an object of another namespace".to_owned() } else { other.object().to_string() }
    }

    /// The name of a field in Problems, relative to the object that the Service was read from.
    pub(super) fn field(&self, field: String) -> String {
        service_field(self.key(), field)
    }
}

/// Clusters that serve a Service, and the rules between them.
#[derive(Debug)]
pub(super) struct MultiClusterPlan {
    /// Members by name. A cluster without usable slices is not a member.
    pub(super) members: Vec<ClusterMember>,
    pub(super) failover: Failover,
    pub(super) status: MultiClusterStatus,
    /// Slices that were found but are not used.
    pub(super) left: Vec<UncountedSlice>,
}

/// The name of a Service field in Problems of `key`.
pub(super) fn service_field(key: &ServiceKey, field: String) -> String {
    match key.source {
        FrontendSource::Service | FrontendSource::Gateway => field,
        FrontendSource::MultiClusterService => format!("Service.{field}"),
    }
}

/// A cluster, and its weight among others.
#[derive(Clone, Debug)]
pub(super) struct ClusterMember {
    pub(super) cluster: Arc<str>,
    pub(super) path: Path,
    /// Networks in which its endpoints must be, if configured.
    pub(super) allowed: Option<Arc<AddressSet>>,
    pub(super) weight: Weight,
    pub(super) priority: u32,
    pub(super) scope: ClusterScope,
    /// Whether it is the gateway's own cluster, whose nodes, zones and hints are meaningful here.
    pub(super) own: bool,
    pub(super) slices: Vec<ListedSlice>,
}

/// A slice, and its origin.
#[derive(Clone, Debug)]
pub(super) struct ListedSlice {
    pub(super) slice: Arc<EndpointSlice>,
    pub(super) origin: SliceOrigin,
}

/// Origin of a slice.
#[derive(Clone, Debug)]
pub(super) enum SliceOrigin {
    /// An object of its own.
    Object,
    /// An object that was copied from one in another cluster. Something closer to the original takes precedence.
    Copy,
    /// A part of this object, in this field.
    Within(ObjectRef, String),
}

impl ClusterMember {
    /// The gateway's own cluster as the only member.
    pub(super) fn alone<'a>(
        cluster: &Arc<str>,
        slices: impl IntoIterator<Item = &'a Arc<EndpointSlice>>,
    ) -> Self {
        let listed =
            |slice: &Arc<EndpointSlice>| ListedSlice { slice: slice.clone(), origin: SliceOrigin::Object };
        Self {
            cluster: cluster.clone(),
            path: Path::DEFAULT,
            allowed: None,
            weight: Weight::default(),
            priority: 0,
            scope: ClusterScope::Own,
            own: true,
            slices: slices.into_iter().map(listed).collect(),
        }
    }
}

/// Reason why a slice of the Service is not used. Displays as text for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotCounted {
    /// No member cluster has this name.
    Unregistered,
    /// The MultiClusterService names only other clusters.
    NotNamed,
    /// The Service is not scheduled to its cluster.
    Stale,
    /// The slice is a copy for consumers.
    Dispatched,
    /// The slice is a copy of one in a Work.
    Imported,
    /// The Work was not collected from the cluster but carries the slice to it.
    NotCollected,
    /// The addresses of the cluster's Service are used instead.
    IngressCounts,
}

impl fmt::Display for NotCounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unregistered => "no member cluster has the name of its cluster",
            Self::NotNamed => "the MultiClusterService names other clusters",
            Self::Stale => {
                "its ResourceBinding says that the Service is not scheduled to its cluster: it is stale"
            }
            Self::Dispatched => "its slice is a copy that Karmada made for consumers",
            Self::Imported => "its slice is a copy of one that a Work has",
            Self::NotCollected => "its slice was not collected from the cluster, but is applied there",
            Self::IngressCounts => {
                "sheave.dev/cluster-endpoints is ingress: the addresses of the cluster's Service count"
            }
        })
    }
}

/// A slice that is not used.
#[derive(Clone, Debug)]
pub(super) struct UncountedSlice {
    pub(super) cluster: Arc<str>,
    pub(super) slice: Arc<EndpointSlice>,
    pub(super) why: NotCounted,
}

/// Rank of a Service: by age, then by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    age: Age,
    pub(super) key: ServiceKey,
}

impl Rank {
    pub(super) fn new(key: &ServiceKey, metadata: &ObjectMeta) -> Self {
        Self { age: Age::of(metadata), key: key.clone() }
    }
}

/// Addresses in a Service's spec on which it is served.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecAddresses {
    pub(super) cluster: Vec<IpAddr>,
    pub(super) external: Vec<IpAddr>,
}

/// Plan of a Gateway.
#[derive(Debug)]
pub(super) struct GatewayPlan {
    pub(super) outcome: Arc<GatewayOutcome>,
    /// One for each of the plan's ports.
    pub(super) listeners: Vec<Arc<ListenerPlan>>,
}

impl GatewayPlan {
    /// The Services that its listeners send traffic to, sorted.
    pub(super) fn backends(&self) -> Vec<ServiceKey> {
        let mut backends: Vec<ServiceKey> =
            self.listeners.iter().flat_map(|listener| listener.backends()).cloned().collect();
        backends.sort_unstable();
        backends.dedup();
        backends
    }
}

/// Plan of a listener.
#[derive(Debug)]
pub(super) struct ListenerPlan {
    /// The listener as a Service of its one port.
    pub(super) plan: Box<Plan>,
    /// Name of the route that serves it.
    pub(super) route: Option<Arc<str>>,
    /// Number of attached routes that do not serve it.
    pub(super) superseded: u32,
    /// Backends of its route; empty without one.
    pub(super) parts: Vec<PartPlan>,
    /// Targets of its server names; `None` unless it is a listener of TLS. It has no route itself then.
    pub(super) names: Option<NamesPlan>,
    /// Problems of what it was planned from.
    pub(super) problems: Vec<Problem>,
    /// Inputs of the plan, which stays as it is while they do.
    pub(super) inputs: ListenerInputs,
}

impl ListenerPlan {
    /// Problems of what it and the targets of its server names were planned from.
    pub(super) fn all_problems(&self) -> impl Iterator<Item = &Problem> {
        let targets = self.names.iter().flat_map(|names| &names.targets);
        self.problems.iter().chain(targets.flat_map(|target| &target.problems))
    }

    /// The Services that it sends traffic to.
    pub(super) fn backends(&self) -> impl Iterator<Item = &ServiceKey> {
        let targets = self.names.iter().flat_map(|names| &names.targets).flat_map(|target| &target.parts);
        self.parts.iter().chain(targets).filter_map(|part| Some(part.target.as_ref().ok()?.plan.key()))
    }
}

/// Targets of the server names of TLS listeners with one port.
#[derive(Debug)]
pub(super) struct NamesPlan {
    /// Each listener with each of its routes, as if its names were the only ones.
    pub(super) targets: Vec<Arc<ListenerPlan>>,
    /// Index of each name's target; `None` = it leads nowhere.
    pub(super) names: Vec<(ServerNamePattern, Option<usize>)>,
}

impl NamesPlan {
    /// Whether both are the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.names == other.names
            && self.targets.len() == other.targets.len()
            && self.targets.iter().zip(&other.targets).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// A part of a split.
#[derive(Debug)]
pub(super) struct PartPlan {
    pub(super) name: Arc<str>,
    pub(super) weight: u32,
    pub(super) target: Result<BackendPool, RefusedPart>,
}

/// A backend that serves a part.
#[derive(Debug)]
pub(super) struct BackendPool {
    /// The backend as a Service of the one port.
    pub(super) plan: Box<Plan>,
}

impl BackendPool {
    /// Clusters that serve it; `slices` are those of the Service with its name in the cluster `own`. A backendRef of kind Service uses
    /// the cluster's own slices only (GEP-1748).
    pub(super) fn members(&self, slices: Option<&Slices>, own: &Arc<str>) -> Cow<'_, [ClusterMember]> {
        match &self.plan.fleet {
            Some(fleet) => Cow::Borrowed(&fleet.members),
            None => {
                let slices = slices.into_iter().flat_map(BTreeMap::values).filter(|it| !is_imported(it));
                Cow::Owned(vec![ClusterMember::alone(own, slices)])
            }
        }
    }
}
