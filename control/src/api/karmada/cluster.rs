//! `Cluster` (`cluster.karmada.io/v1alpha1`): a member of the fleet. An aggregated API server serves it and can fail alone.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize};

use super::lenient;

/// API version of ServiceExports in `apiEnablements`.
const EXPORT_VERSION: &str = "multicluster.x-k8s.io/v1alpha1";
const EXPORT_KIND: &str = "ServiceExport";
/// Condition that is true while the list of APIs is complete (karmada pkg/apis/cluster/v1alpha1,
/// `ClusterConditionCompleteAPIEnablements`).
const COMPLETE: &str = "CompleteAPIEnablements";

/// A member cluster. A field that cannot be parsed counts as absent, because the cluster exists all the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Standard metadata, of which labels and annotations are used.
    pub metadata: ObjectMeta,
    /// Location and taints.
    pub spec: ClusterSpec,
    /// Conditions and APIs.
    pub status: ClusterStatus,
}

/// Location of a cluster, and the taints that keep traffic away from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSpec {
    /// The cluster's region; empty if unknown.
    #[serde(deserialize_with = "lenient::text")]
    pub region: String,
    /// The cluster's zones.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    pub zones: Vec<String>,
    /// Taints, set by users and by Karmada.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    pub taints: Vec<Taint>,
}

/// Conditions of a cluster, and the APIs that it serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Conditions. `Ready` covers only the cluster's API server, not the workloads there.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    pub conditions: Vec<Condition>,
    /// Actions that Karmada's Remedy requests: `TrafficControl` keeps traffic away.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    pub remedy_actions: Vec<String>,
    /// APIs that the cluster serves. Only ServiceExport is kept, because a cluster has hundreds of APIs. Karmada writes the list
    /// every ten seconds, so a new API appears with a delay.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "exports_alone")]
    pub api_enablements: Vec<ApiEnablement>,
}

/// A version of a group that a cluster serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiEnablement {
    /// Group and version, for example `apps/v1`.
    pub group_version: String,
    /// Kinds in this group and version.
    pub resources: Vec<EnabledKind>,
}

/// A kind that a cluster serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnabledKind {
    /// Plural name.
    pub name: String,
    /// Kind, as in manifests.
    pub kind: String,
}

impl Cluster {
    /// Whether Karmada's scheduler considers the cluster able to take ServiceExports; `None` if its list of APIs is incomplete,
    /// so that a missing API proves nothing.
    pub fn serves_exports(&self) -> Option<bool> {
        if !self.status.api_enablements.is_empty() {
            return Some(true);
        }
        let mut conditions = self.status.conditions.iter();
        conditions.any(|it| it.type_ == COMPLETE && it.status == "True").then_some(false)
    }
}

fn exports_alone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ApiEnablement>, D::Error> {
    let mut all: Vec<ApiEnablement> = lenient::list(deserializer)?;
    all.retain_mut(|it| {
        it.resources.retain(|resource| resource.kind == EXPORT_KIND);
        it.group_version == EXPORT_VERSION && !it.resources.is_empty()
    });
    Ok(all)
}

crate::api::resource::resource!(Cluster, "cluster.karmada.io", "v1alpha1", "clusters", ClusterResourceScope);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn serves(status: &Value) -> Option<bool> {
        serde_json::from_value::<Cluster>(json!({"status": status})).unwrap().serves_exports()
    }

    #[test]
    fn what_lacks_in_a_list_that_is_not_whole_is_not_known_to_lack() {
        let complete = |status: &str| {
            json!({"type": "CompleteAPIEnablements", "status": status, "reason": "R", "message": "",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let export = json!({"groupVersion": "multicluster.x-k8s.io/v1alpha1", "resources": [
            {"name": "serviceimports", "kind": "ServiceImport"}, {"name": "serviceexports", "kind": "ServiceExport"}]});
        let apps =
            json!({"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]});
        let newer =
            json!({"groupVersion": "multicluster.x-k8s.io/v1beta1", "resources": export["resources"]});
        let imports = json!({"groupVersion": export["groupVersion"], "resources": [export["resources"][0]]});
        for status in ["True", "False"] {
            let with = json!({"apiEnablements": [apps, export], "conditions": [complete(status)]});
            assert_eq!(serves(&with), Some(true));
        }
        for others in [json!([apps]), json!([newer]), json!([imports]), json!([]), json!("x"), Value::Null] {
            assert_eq!(
                serves(&json!({"apiEnablements": others, "conditions": [complete("True")]})),
                Some(false)
            );
            assert_eq!(serves(&json!({"apiEnablements": others, "conditions": [complete("False")]})), None);
            assert_eq!(serves(&json!({"apiEnablements": others})), None);
        }
    }

    #[test]
    fn of_its_apis_only_that_of_exports_is_kept() {
        let status = json!({"region": "", "apiEnablements": [
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
            {"groupVersion": "multicluster.x-k8s.io/v1alpha1", "resources": [
                {"name": "serviceexports", "kind": "ServiceExport"}, {"name": "serviceimports", "kind": "ServiceImport"}]}]});
        let cluster: Cluster = serde_json::from_value(json!({"status": status})).unwrap();
        let kept = json!([{"groupVersion": "multicluster.x-k8s.io/v1alpha1",
                           "resources": [{"name": "serviceexports", "kind": "ServiceExport"}]}]);
        let again = serde_json::to_value(&cluster).unwrap();
        assert_eq!(again["status"]["apiEnablements"], kept);
        assert_eq!(serde_json::from_value::<Cluster>(again).unwrap(), cluster, "a snapshot keeps it");
    }
}
