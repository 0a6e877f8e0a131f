//! `MultiClusterService` (`networking.karmada.io/v1alpha1`), including fields of v1.8 to v1.10 that current Karmada ignores.

use k8s_openapi::api::core::v1::ServiceStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Exposes the Service with the same name and namespace, as it runs in the member clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MultiClusterService {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired exposure.
    #[serde(default)]
    pub spec: MultiClusterServiceSpec,
    /// Observed state, with the type of a Service's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ServiceStatus>,
}

/// Desired exposure of a MultiClusterService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiClusterServiceSpec {
    /// Exposure types: `LoadBalancer` or `CrossCluster`.
    pub types: Vec<String>,
    /// Exposed ports of the Service; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ExposurePort>,
    /// Clusters that the Service is exposed in (v1.8 to v1.10).
    pub range: ExposureRange,
    /// Clusters that provide endpoints (v1.8).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_provision_clusters: Vec<String>,
    /// Clusters that consume the Service, for `CrossCluster` only (v1.8).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_consumption_clusters: Vec<String>,
    /// Clusters that provide endpoints; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provider_clusters: Vec<ClusterSelector>,
    /// Clusters that consume the Service, for `CrossCluster` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consumer_clusters: Vec<ClusterSelector>,
}

/// One exposed port. It has no protocol: the number applies to all protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExposurePort {
    /// Name of the Service's port; empty selects by number alone.
    pub name: String,
    /// Number of the Service's port.
    pub port: i32,
}

/// Clusters by name. Existing objects often carry it empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExposureRange {
    /// Names of the clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}

/// Selects one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSelector {
    /// Name of the cluster.
    pub name: String,
}

crate::api::resource::resource!(
    MultiClusterService,
    "networking.karmada.io",
    "v1alpha1",
    "multiclusterservices",
    NamespaceResourceScope
);
