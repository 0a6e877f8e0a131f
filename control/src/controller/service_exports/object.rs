//! The two objects that make Karmada collect a Service's endpoints: their names and contents. No I/O.

use std::collections::BTreeSet;

use k8s_openapi::Resource as _;
use kube::core::{ApiResource, DynamicObject};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::karmada::MultiClusterService;
use crate::api::names::{COLLECTOR_TERM, MANAGED_BY};
use crate::api::store::ServiceKey;

/// Name prefix of our policies, because users may have policies named like their Services.
const POLICY_PREFIX: &str = "sheave-export-";

/// A kind of export object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExportObject {
    /// The ServiceExport: requests Karmada to collect the endpoints of the Service with its name in its cluster.
    Export,
    /// The PropagationPolicy: brings the ServiceExport to the clusters.
    Policy,
}

/// Desired contents of both objects for a MultiClusterService.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Uid of the MultiClusterService, by which the garbage collector knows when to remove both.
    pub(super) owner_uid: String,
    /// Clusters where the Service may run and ServiceExports are served.
    pub(super) clusters: BTreeSet<String>,
    /// Clusters where it may run but ServiceExports are not served yet. Karmada's scheduler skips these and retries only when the
    /// policy changes, so they are left out of it until they serve the API.
    pub(super) waiting: BTreeSet<String>,
    /// Clusters where it may run but whose list of APIs is incomplete. Karmada's scheduler leaves them unchanged, and so does the
    /// policy.
    pub(super) unsure: BTreeSet<String>,
    /// The term of Karmada's leader that the ServiceExport must name; `None` while it is unknown.
    pub(super) collector: Option<String>,
}

impl Export {
    /// Resolves uncertain clusters as the existing `policy` has them.
    pub(super) fn settled(&self, policy: Option<&DynamicObject>) -> Self {
        let listed = policy.map(affinity).filter(|it| it.exclude.is_empty());
        let is_listed = |name: &String| {
            // Earlier versions wrote no name at all, which stands for all clusters.
            listed.as_ref().is_some_and(|it| it.cluster_names.is_empty() || it.cluster_names.contains(name))
        };
        let (kept, waiting): (BTreeSet<_>, BTreeSet<_>) = self.unsure.iter().cloned().partition(is_listed);
        Self {
            owner_uid: self.owner_uid.clone(),
            clusters: &self.clusters | &kept,
            waiting: &self.waiting | &waiting,
            unsure: BTreeSet::new(),
            collector: self.collector.clone(),
        }
    }

    /// An empty list of names would stand for all clusters.
    fn affinity(&self) -> Affinity {
        if self.clusters.is_empty() {
            return Affinity { cluster_names: self.waiting.clone(), exclude: self.waiting.clone() };
        }
        Affinity { cluster_names: self.clusters.clone(), exclude: BTreeSet::new() }
    }
}

/// Cluster affinity of a policy.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    cluster_names: BTreeSet<String>,
    exclude: BTreeSet<String>,
}

fn affinity(policy: &DynamicObject) -> Affinity {
    serde_json::from_value(policy.data["spec"]["placement"]["clusterAffinity"].clone()).unwrap_or_default()
}

impl ExportObject {
    pub(in crate::controller) const ALL: [Self; 2] = [Self::Export, Self::Policy];

    /// Group, version, kind and plural.
    const fn names(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Export => ("multicluster.x-k8s.io", "v1alpha1", "ServiceExport", "serviceexports"),
            Self::Policy => ("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies"),
        }
    }

    pub(super) fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = self.names();
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: format!("{group}/{version}"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        }
    }

    pub(in crate::controller) fn kind(self) -> &'static str {
        self.names().2
    }

    /// Name of the CustomResourceDefinition, which RBAC rules split into two fields.
    pub(in crate::controller) fn definition(self) -> String {
        let (group, _, _, plural) = self.names();
        format!("{plural}.{group}")
    }

    /// Name of the object for this MultiClusterService.
    pub(in crate::controller) fn name(self, key: &ServiceKey) -> String {
        match self {
            Self::Export => key.name.to_string(),
            Self::Policy => format!("{POLICY_PREFIX}{}", key.name),
        }
    }

    /// The MultiClusterService that an object with this name is for; `None` if the name is not ours.
    pub(super) fn key(self, object: &DynamicObject) -> Option<ServiceKey> {
        let name = object.metadata.name.as_deref()?;
        let name = match self {
            Self::Export => name,
            Self::Policy => name.strip_prefix(POLICY_PREFIX)?,
        };
        Some(ServiceKey::multi_cluster(object.metadata.namespace.as_deref()?, name))
    }

    /// The object to apply. It lists every field that we own, so that nothing of earlier contents remains.
    pub(in crate::controller) fn body(self, key: &ServiceKey, export: &Export, manager: &str) -> Value {
        let (group, version, kind, _) = self.names();
        let mut body = json!({
            "apiVersion": format!("{group}/{version}"),
            "kind": kind,
            "metadata": {
                "name": self.name(key),
                "namespace": &*key.namespace,
                "labels": {MANAGED_BY: manager},
                "ownerReferences": [{
                    "apiVersion": MultiClusterService::API_VERSION,
                    "kind": MultiClusterService::KIND,
                    "name": &*key.name,
                    "uid": export.owner_uid,
                }],
            },
        });
        if let (Self::Export, Some(term)) = (self, &export.collector) {
            body["metadata"]["annotations"] = json!({COLLECTOR_TERM: term});
        }
        if self == Self::Policy {
            body["spec"] = json!({
                "resourceSelectors": selectors(key),
                "placement": {
                    "clusterAffinity": export.affinity(),
                    "clusterTolerations": [tolerates_all()],
                },
            });
        }
        body
    }

    /// Whether the object has the contents of [`Self::body`]. Additions of others and of Karmada's webhook are ignored.
    pub(super) fn matches(self, object: &DynamicObject, key: &ServiceKey, export: &Export) -> bool {
        let owners = object.metadata.owner_references.iter().flatten();
        let owned = owners.into_iter().any(|owner| owner.uid == export.owner_uid);
        owned
            && match self {
                Self::Export => names_term(object, export.collector.as_deref()),
                Self::Policy => {
                    let spec = &object.data["spec"];
                    let tolerations = spec["placement"]["clusterTolerations"].as_array();
                    spec["resourceSelectors"] == selectors(key)
                        // Karmada's webhook may add its own.
                        && tolerations.is_some_and(|all| all.contains(&tolerates_all()))
                        && affinity(object) == export.affinity()
                }
            }
    }
}

/// Whether the ServiceExport names the current term; true while the term is unknown.
fn names_term(export: &DynamicObject, term: Option<&str>) -> bool {
    let annotations = export.metadata.annotations.as_ref();
    let named = annotations.and_then(|all| all.get(COLLECTOR_TERM)).map(String::as_str);
    term.is_none() || named == term
}

/// Toleration of every taint. Whether a tainted cluster gets new traffic is decided elsewhere (`projection::multi_cluster`). An
/// export that a taint evicts removes the collected endpoints with it, so that open connections lose them, and does not return
/// with the cluster.
fn tolerates_all() -> Value {
    json!({"operator": "Exists"})
}

/// Selects only the ServiceExport.
fn selectors(key: &ServiceKey) -> Value {
    let (group, version, kind, _) = ExportObject::Export.names();
    json!([{
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "namespace": &*key.namespace,
        "name": ExportObject::Export.name(key),
    }])
}

/// Whether the installation with this field manager created the object.
pub(super) fn is_ours(object: &DynamicObject, manager: &str) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|value| value == manager)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ServiceKey {
        ServiceKey::multi_cluster("shop", "web")
    }

    fn export(clusters: &[&str]) -> Export {
        Export { owner_uid: "u1".into(), clusters: names(clusters), ..Export::default() }
    }

    fn names(clusters: &[&str]) -> BTreeSet<String> {
        clusters.iter().map(ToString::to_string).collect()
    }

    fn object(body: Value) -> DynamicObject {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn the_objects_are_these() {
        assert_eq!(
            ExportObject::Export.body(&key(), &export(&[]), "sheave"),
            json!({
                "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
                "metadata": {
                    "name": "web", "namespace": "shop", "labels": {"sheave.dev/managed-by": "sheave"},
                    "ownerReferences": [{"apiVersion": "networking.karmada.io/v1alpha1",
                                         "kind": "MultiClusterService", "name": "web", "uid": "u1"}],
                },
            })
        );
        let policy = ExportObject::Policy.body(&key(), &export(&["b", "a"]), "sheave");
        assert_eq!(policy["apiVersion"], "policy.karmada.io/v1alpha1");
        assert_eq!(policy["metadata"]["name"], "sheave-export-web");
        assert_eq!(
            policy["spec"],
            json!({
                "resourceSelectors": [{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
                                       "namespace": "shop", "name": "web"}],
                "placement": {"clusterAffinity": {"clusterNames": ["a", "b"], "exclude": []},
                              "clusterTolerations": [{"operator": "Exists"}]},
            })
        );
    }

    #[test]
    fn what_is_applied_says_what_it_should_whatever_others_add() {
        for part in ExportObject::ALL {
            let mut body = part.body(&key(), &export(&["a"]), "sheave");
            body["metadata"]["labels"]["permanent-id"] = json!("1");
            body["spec"]["conflictResolution"] = json!("Abort");
            let object = object(body);
            assert!(is_ours(&object, "sheave") && !is_ours(&object, "sheave-bf9cf968"));
            assert_eq!(part.key(&object), Some(key()));
            assert!(part.matches(&object, &key(), &export(&["a"])), "{part:?}");
            assert_eq!(part.matches(&object, &key(), &export(&["b"])), part == ExportObject::Export);
            let other = Export { owner_uid: "u2".into(), ..export(&["a"]) };
            assert!(!part.matches(&object, &key(), &other), "it belongs to one that is gone: {part:?}");
        }
    }

    #[test]
    fn an_export_names_the_term_of_karmadas_leader_once_that_is_known() {
        let of = |term: Option<&str>| Export { collector: term.map(Into::into), ..export(&["a"]) };
        let object = object(ExportObject::Export.body(&key(), &of(Some("u/3")), "sheave"));
        let annotations = object.metadata.annotations.clone().unwrap();
        assert_eq!(annotations[COLLECTOR_TERM], "u/3");
        for (term, matches) in [(None, true), (Some("u/3"), true), (Some("u/4"), false)] {
            assert_eq!(ExportObject::Export.matches(&object, &key(), &of(term)), matches, "{term:?}");
        }
        let policy = ExportObject::Policy.body(&key(), &of(Some("u/3")), "sheave");
        assert_eq!(
            policy["metadata"]["annotations"],
            Value::Null,
            "Karmada schedules anew when a policy changes"
        );
    }

    /// An older version of Sheave tolerated no taint, and Karmada's webhook adds its defaults.
    #[test]
    fn a_policy_tolerates_every_taint_whatever_else_it_tolerates() {
        let mut body = ExportObject::Policy.body(&key(), &export(&["a"]), "sheave");
        let all = json!({"operator": "Exists"});
        let defaulted = json!({"key": "cluster.karmada.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                               "tolerationSeconds": 300});
        for (tolerations, matches) in
            [(Value::Null, false), (json!([defaulted]), false), (json!([all, defaulted]), true)]
        {
            body["spec"]["placement"]["clusterTolerations"] = tolerations.clone();
            assert_eq!(
                ExportObject::Policy.matches(&object(body.clone()), &key(), &export(&["a"])),
                matches,
                "{tolerations}"
            );
        }
    }

    /// Karmada's webhook drops empty lists, and users can write anything there.
    #[test]
    fn a_policy_may_come_back_without_its_empty_lists() {
        let mut body = ExportObject::Policy.body(&key(), &export(&["a"]), "sheave");
        body["spec"]["placement"]["clusterAffinity"] = json!({"clusterNames": ["a"]});
        assert!(ExportObject::Policy.matches(&object(body.clone()), &key(), &export(&["a"])));
        for odd in [json!({}), json!({"clusterNames": 1}), Value::Null] {
            body["spec"]["placement"]["clusterAffinity"] = odd;
            assert!(!ExportObject::Policy.matches(&object(body.clone()), &key(), &export(&["a"])));
        }
    }

    #[test]
    fn a_policy_without_a_cluster_that_can_be_had_is_for_none_and_changes_when_there_is_one() {
        let waiting = Export { waiting: names(&["a", "b"]), ..export(&[]) };
        let body = ExportObject::Policy.body(&key(), &waiting, "sheave");
        let affinity = &body["spec"]["placement"]["clusterAffinity"];
        assert_eq!(*affinity, json!({"clusterNames": ["a", "b"], "exclude": ["a", "b"]}));
        let there = object(body);
        assert!(ExportObject::Policy.matches(&there, &key(), &waiting));
        let one = Export { waiting: names(&["a"]), ..export(&["b"]) };
        assert!(!ExportObject::Policy.matches(&there, &key(), &one));
        let affinity =
            &ExportObject::Policy.body(&key(), &one, "sheave")["spec"]["placement"]["clusterAffinity"];
        assert_eq!(*affinity, json!({"clusterNames": ["b"], "exclude": []}));
    }

    #[test]
    fn clusters_of_which_it_is_not_known_stay_as_they_are() {
        let unsure = Export { unsure: names(&["b", "c"]), ..export(&["a"]) };
        let policy = |of: &Export| object(ExportObject::Policy.body(&key(), of, "sheave"));
        let settled = |policy: Option<&DynamicObject>| {
            let Export { clusters, waiting, unsure, .. } = unsure.settled(policy);
            assert!(unsure.is_empty());
            (clusters, waiting)
        };
        assert_eq!(settled(None), (names(&["a"]), names(&["b", "c"])));
        assert_eq!(settled(Some(&policy(&export(&["b", "d"])))), (names(&["a", "b"]), names(&["c"])));
        let none = Export { waiting: names(&["b", "c"]), ..export(&[]) };
        assert_eq!(settled(Some(&policy(&none))), (names(&["a"]), names(&["b", "c"])));
    }

    #[test]
    fn policies_of_other_names_are_for_none() {
        let policy = json!({"metadata": {"name": "web", "namespace": "shop"}});
        assert_eq!(ExportObject::Policy.key(&object(policy)), None);
    }
}
