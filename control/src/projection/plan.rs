//! The plan of one Service: everything that it asks for, read and checked once. It needs neither addresses nor endpoints.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::annotations::client_address::ClientAddress;
use super::class::FrontendKinds;
use super::eligibility::{ClusterScope, TrafficPolicies};
use super::families::Families;
use super::ports::{ListedPort, PlannedPort};
use super::requests::Requests;
use super::source_ranges::FamilyRanges;
use super::status::FleetStatus;
use crate::api::problem::{ObjectRef, Problem};
use crate::api::store::ServiceKey;

use sheave_model::{
    AddressSet, Affinity, Algorithm, Failover, FrontendKind, FrontendSource, HealthPolicy, LogSample, Path,
    ServiceLimits, ServiceTimeouts, Weight,
};

/// A Service's slices by name.
pub(super) type Slices = BTreeMap<Arc<str>, Arc<EndpointSlice>>;

/// What a Service that is ours asks for.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) rank: Rank,
    pub(super) uid: Option<String>,
    pub(super) kinds: FrontendKinds,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) families: Families,
    /// Of load balancer addresses; none for a Service that is not ours as a load balancer.
    pub(super) requests: Requests,
    /// Addresses that the spec names.
    pub(super) addresses: SpecAddresses,
    pub(super) ports: Vec<PlannedPort>,
    /// Every port that the API can name in a status, in the order of the spec.
    pub(super) listed_ports: Vec<ListedPort>,
    pub(super) affinity: Affinity,
    /// `None` = the default of each port's protocol.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) ranges: FamilyRanges,
    pub(super) policies: TrafficPolicies,
    pub(super) client_address: ClientAddress,
    pub(super) limits: ServiceLimits,
    pub(super) timeouts: ServiceTimeouts,
    pub(super) logged: LogSample,
    pub(super) health: Arc<HealthPolicy>,
    pub(super) health_check_port: Option<u16>,
    /// The clusters that it is served from; `None` = the gateway's own.
    pub(super) fleet: Option<FleetPlan>,
    /// Another installation decides about it, or it is not known who does: it keeps what it has, its ports included, and is not
    /// served from here.
    pub(super) suspended: bool,
    /// What was wrong with the Service itself.
    pub(super) problems: Vec<Problem>,
}

/// How a Service is planned.
#[derive(Debug)]
#[must_use]
pub(super) enum Planned {
    /// Not ours.
    Foreign,
    /// Asks for us, but cannot be served.
    Refused(Vec<Problem>),
    /// To be served as planned.
    Ours(Box<Plan>),
}

/// How Problems name a Service.
pub(super) fn service_ref(key: &ServiceKey) -> ObjectRef {
    key.object()
}

impl Plan {
    pub(super) fn key(&self) -> &ServiceKey {
        &self.rank.key
    }

    /// Whether it has, or wants, load balancer addresses from us.
    pub(super) fn is_load_balancer(&self) -> bool {
        self.kinds.contains(&FrontendKind::LoadBalancer)
    }

    /// The clusters that it is served from; `slices` are those of its own name in the cluster `own`.
    pub(super) fn members(&self, slices: Option<&Slices>, own: &Arc<str>) -> Cow<'_, [ClusterMember]> {
        match &self.fleet {
            Some(fleet) => Cow::Borrowed(&fleet.members),
            None => {
                Cow::Owned(vec![ClusterMember::alone(own, slices.into_iter().flat_map(BTreeMap::values))])
            }
        }
    }

    /// How Problems name a field of the Service that it was read from.
    pub(super) fn field(&self, field: String) -> String {
        service_field(self.key(), field)
    }
}

/// From which clusters something is served, and by which rules between them.
#[derive(Debug)]
pub(super) struct FleetPlan {
    /// By name. A cluster that has nothing, or whose endpoints do not count, is none.
    pub(super) members: Vec<ClusterMember>,
    pub(super) failover: Failover,
    pub(super) status: FleetStatus,
    /// Slices that were found and do not count.
    pub(super) left: Vec<UncountedSlice>,
}

/// How Problems of `key` name a field of the Service that it was read from.
pub(super) fn service_field(key: &ServiceKey, field: String) -> String {
    match key.source {
        FrontendSource::Service => field,
        FrontendSource::MultiClusterService => format!("Service.{field}"),
    }
}

/// One cluster, and its weight among others.
#[derive(Clone, Debug)]
pub(super) struct ClusterMember {
    pub(super) cluster: Arc<str>,
    pub(super) path: Path,
    /// Within which its endpoints have to be, if the configuration says.
    pub(super) allowed: Option<Arc<AddressSet>>,
    pub(super) weight: Weight,
    pub(super) priority: u32,
    pub(super) scope: ClusterScope,
    /// The gateway's own cluster: nodes, zones and hints mean something.
    pub(super) own: bool,
    pub(super) slices: Vec<ListedSlice>,
}

/// A slice, and where it was found.
#[derive(Clone, Debug)]
pub(super) struct ListedSlice {
    pub(super) slice: Arc<EndpointSlice>,
    pub(super) origin: SliceOrigin,
}

/// Where a slice was found.
#[derive(Clone, Debug)]
pub(super) enum SliceOrigin {
    /// It is an object of its own.
    Object,
    /// It is an object made after one in another cluster: what is nearer to that one wins.
    Copy,
    /// It is part of this object, in this field.
    Within(ObjectRef, String),
}

impl ClusterMember {
    /// The gateway's own cluster alone.
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

/// Why a slice does not count, although it is about the Service. Prints as a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotCounted {
    /// No member cluster has this name.
    Unregistered,
    /// The MultiClusterService names other clusters.
    NotNamed,
    /// The Service is not scheduled to its cluster.
    Stale,
    /// It is a copy for consumers.
    Dispatched,
    /// It is a copy of a slice that a Work has.
    Imported,
    /// Nobody collected it: it is on its way to the cluster.
    NotCollected,
    /// The addresses of the cluster's Service count.
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

/// A slice that does not count.
#[derive(Clone, Debug)]
pub(super) struct UncountedSlice {
    pub(super) cluster: Arc<str>,
    pub(super) slice: Arc<EndpointSlice>,
    pub(super) why: NotCounted,
}

/// A Service's rank among others: by creation, then by namespace and name. Without a creation time (a manifest that
/// no API server has seen) it stands behind all that have one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    undated: bool,
    created: Option<Timestamp>,
    pub(super) key: ServiceKey,
}

impl Rank {
    pub(super) fn new(key: &ServiceKey, metadata: &ObjectMeta) -> Self {
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self { undated: created.is_none(), created, key: key.clone() }
    }
}

/// The addresses that a Service's spec names, as far as it is served there.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecAddresses {
    pub(super) cluster: Vec<IpAddr>,
    pub(super) external: Vec<IpAddr>,
}
