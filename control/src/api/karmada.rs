//! Karmada's API objects, as far as Sheave reads them. The types decode leniently and are never written back whole. A write is a
//! patch of its own: webhooks marshal typed objects again, and an older one strips fields that it does not know.

mod binding;
mod cluster;
pub(crate) mod lenient;
mod multi_cluster_service;
mod work;

pub use self::binding::{
    AggregatedStatus, BindingStatus, EvictionTask, RequiredBy, ResourceBinding, ResourceBindingSpec,
    ResourceReference, TargetCluster,
};
pub use self::cluster::{ApiEnablement, Cluster, ClusterSpec, ClusterStatus, EnabledKind};
pub use self::multi_cluster_service::{
    ClusterSelector, ExposurePort, ExposureRange, MultiClusterService, MultiClusterServiceSpec,
};
pub use self::work::{Manifest, ManifestIdentifier, ManifestStatus, Work};

/// Prefix of the namespace that holds a member cluster's Works; the rest is the cluster's name (karmada pkg/util/names,
/// `GenerateExecutionSpaceName`).
pub const EXECUTION_SPACE_PREFIX: &str = "karmada-es-";

/// Label of a Work that carries an EndpointSlice collected from a member cluster, with any value. Dispatched copies do not have
/// it (karmada.io constants, `EndpointSliceWorkManagedByLabel`).
pub const COLLECTED_LABEL: &str = "endpointslice.karmada.io/managed-by";

/// Name of the member cluster that an execution space belongs to.
pub fn cluster_of_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(EXECUTION_SPACE_PREFIX).filter(|name| !name.is_empty())
}
