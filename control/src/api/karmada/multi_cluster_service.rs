//! `MultiClusterService` (`networking.karmada.io/v1alpha1`), with the fields of v1.8 to v1.10 that today's Karmada ignores.

use k8s_openapi::api::core::v1::ServiceStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Exposes the Service of its own name and namespace, as it runs in the member clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MultiClusterService {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: MultiClusterServiceSpec,
    /// What is so; the same type as a Service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ServiceStatus>,
}

/// What a MultiClusterService asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiClusterServiceSpec {
    /// `LoadBalancer` or `CrossCluster`.
    pub types: Vec<String>,
    /// The Service's ports that are exposed; empty = all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ExposurePort>,
    /// Of v1.8 to v1.10: where the Service is exposed.
    pub range: ExposureRange,
    /// Of v1.8: the clusters whose endpoints count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_provision_clusters: Vec<String>,
    /// Of v1.8: for `CrossCluster` alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_consumption_clusters: Vec<String>,
    /// The clusters whose endpoints count; empty = all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provider_clusters: Vec<ClusterSelector>,
    /// For `CrossCluster` alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consumer_clusters: Vec<ClusterSelector>,
}

/// One port that is exposed. It has no protocol: the number stands for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExposurePort {
    /// The name of the Service's port; empty = by number alone.
    pub name: String,
    /// The number of the Service's port.
    pub port: i32,
}

/// Clusters by name. Objects in the wild carry it empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExposureRange {
    /// The clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSelector {
    /// Its name.
    pub name: String,
}

super::resource!(MultiClusterService, "networking.karmada.io", "v1alpha1", "multiclusterservices", Namespace);
