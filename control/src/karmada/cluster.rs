//! `Cluster` (`cluster.karmada.io/v1alpha1`): a member of the fleet. Served by an aggregated API server, which may fail alone.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::lenient;

/// A member cluster. A field that cannot be read counts as not given: the cluster is there all the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Standard metadata; labels and annotations count.
    pub metadata: ObjectMeta,
    /// What is known of it.
    pub spec: ClusterSpec,
    /// How it is.
    pub status: ClusterStatus,
}

/// Where a cluster is, and what keeps traffic away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSpec {
    /// The cluster's region; empty if unknown.
    #[serde(deserialize_with = "lenient::text")]
    pub region: String,
    /// The cluster's zones.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    pub zones: Vec<String>,
    /// Set by people and by Karmada.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    pub taints: Vec<Taint>,
}

/// How a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// `Ready` is about the cluster's API server alone, not about what runs there.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    pub conditions: Vec<Condition>,
    /// What Karmada's Remedy asks for: `TrafficControl` keeps traffic away.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    pub remedy_actions: Vec<String>,
}

super::resource!(Cluster, "cluster.karmada.io", "v1alpha1", "clusters", Cluster);
