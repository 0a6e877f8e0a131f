//! `Cluster` (`cluster.karmada.io/v1alpha1`): a member of the fleet. Served by an aggregated API server, which may fail alone.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize};

use super::lenient;

/// Where ServiceExports are served, as `apiEnablements` have it.
const EXPORT_VERSION: &str = "multicluster.x-k8s.io/v1alpha1";
const EXPORT_KIND: &str = "ServiceExport";
/// The condition that says whether the list of APIs is whole (karmada pkg/apis/cluster/v1alpha1,
/// `ClusterConditionCompleteAPIEnablements`).
const COMPLETE: &str = "CompleteAPIEnablements";

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
    /// Which APIs it serves; of these only that of ServiceExports is kept, for each cluster has hundreds. Written every ten
    /// seconds, so that a new API shows late.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "exports_alone")]
    pub api_enablements: Vec<ApiEnablement>,
}

/// A version of a group that a cluster serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiEnablement {
    /// As `apps/v1`.
    pub group_version: String,
    /// The kinds.
    pub resources: Vec<EnabledKind>,
}

/// A kind that a cluster serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnabledKind {
    /// The plural.
    pub name: String,
    /// As manifests have it.
    pub kind: String,
}

impl Cluster {
    /// Whether Karmada's scheduler takes it for a cluster that ServiceExports can go to; `None` where its list of APIs is not
    /// whole, so that what lacks says nothing.
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

super::resource!(Cluster, "cluster.karmada.io", "v1alpha1", "clusters", Cluster);

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
