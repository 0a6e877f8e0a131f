//! `ServiceImport` (`multicluster.x-k8s.io`, KEP-1645): a Service of several clusters, as an implementation of the Multi-Cluster
//! Services API imports it.

use k8s_openapi::api::core::v1::SessionAffinityConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// API group of ServiceImports.
pub const GROUP: &str = "multicluster.x-k8s.io";

/// A Service of several clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceImport {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Ports and affinity.
    #[serde(default)]
    pub spec: ServiceImportSpec,
}

/// Ports and affinity of a ServiceImport. Its addresses are not read: Sheave reaches the endpoints themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceImportSpec {
    /// The union of the ports of all clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ImportedPort>,
    /// `ClusterSetIP` or `Headless`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `None` or `ClientIP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
    /// Timeout of the affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// Families of the Service's addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_families: Option<Vec<String>>,
}

/// A port of a ServiceImport.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImportedPort {
    /// Name, which selects the ports of EndpointSlices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `TCP` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// 1 to 65535.
    pub port: i32,
}

crate::api::resource::resource!(
    ServiceImport,
    "multicluster.x-k8s.io",
    "v1beta1",
    "serviceimports",
    NamespaceResourceScope
);
