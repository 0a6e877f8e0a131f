//! `ResourceBinding` (`work.karmada.io/v1alpha2`): the clusters that a Service is scheduled to, and its status in each.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::lenient;

/// Binds a resource template to clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceBinding {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// Scheduling result.
    pub spec: ResourceBindingSpec,
    /// Status in the clusters.
    pub status: BindingStatus,
}

/// Which resource runs in which clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingSpec {
    /// Reference to the template.
    pub resource: ResourceReference,
    /// Clusters that it was scheduled to, in no order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
    /// Resources that depend on it, with the clusters that they were scheduled to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_by: Vec<RequiredBy>,
    /// Clusters that it is being moved away from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub graceful_eviction_tasks: Vec<EvictionTask>,
}

/// A template on the Karmada API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceReference {
    /// API version, for example `v1`.
    pub api_version: String,
    /// Kind, for example `Service`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// One cluster of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetCluster {
    /// The cluster's name.
    pub name: String,
}

/// A binding that this one follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequiredBy {
    /// Clusters that the other binding was scheduled to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
}

/// An eviction of the resource from a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionTask {
    /// The cluster's name.
    pub from_cluster: String,
}

/// Status of the resource in its clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingStatus {
    /// One per cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aggregated_status: Vec<AggregatedStatus>,
    /// Only the condition `Scheduled` is kept.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "scheduled_alone")]
    pub conditions: Vec<Condition>,
}

/// The condition that the scheduler writes (karmada pkg/apis/work/v1alpha2, `Scheduled`).
const SCHEDULED: &str = "Scheduled";

fn scheduled_alone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let mut all: Vec<Condition> = lenient::list(deserializer)?;
    all.retain(|it| it.type_ == SCHEDULED);
    Ok(all)
}

/// Status of the resource in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregatedStatus {
    /// The cluster's name.
    pub cluster_name: String,
    /// The part of the object's status that Karmada collects; for a LoadBalancer Service `{"loadBalancer": …}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
}

impl ResourceBinding {
    /// Clusters that have the resource, including those that it is being evicted from. An empty set means not scheduled yet, not
    /// absent everywhere.
    pub fn clusters(&self) -> BTreeSet<&str> {
        let spec = &self.spec;
        let required = spec.required_by.iter().flat_map(|it| &it.clusters);
        let scheduled = spec.clusters.iter().chain(required).map(|it| it.name.as_str());
        let mut names: BTreeSet<&str> = scheduled.filter(|name| !name.is_empty()).collect();
        if !names.is_empty() {
            names.extend(spec.graceful_eviction_tasks.iter().map(|it| it.from_cluster.as_str()));
        }
        names
    }

    /// The scheduler's message if it found no cluster for the resource.
    pub fn unscheduled(&self) -> Option<&str> {
        let condition =
            self.status.conditions.iter().find(|it| it.type_ == SCHEDULED && it.status == "False");
        condition.map(|it| it.message.as_str()).filter(|message| !message.is_empty())
    }
}

crate::api::resource::resource!(
    ResourceBinding,
    "work.karmada.io",
    "v1alpha2",
    "resourcebindings",
    NamespaceResourceScope
);
