//! The two objects that make Karmada collect a Service's endpoints: what they are called and what they say. Pure. It must not
//! know when they are written.

use std::collections::BTreeSet;

use k8s_openapi::Resource as _;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::controller::names::MANAGED_BY;
use crate::karmada::MultiClusterService;
use crate::store::ServiceKey;

/// In front of the names of policies: users have policies of their Services' names.
const POLICY_PREFIX: &str = "sheave-export-";

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    /// Asks Karmada to collect the endpoints of the Service of its name from where it is.
    Export,
    /// Brings the ServiceExport to the clusters.
    Policy,
}

/// What is to be there for a MultiClusterService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The MultiClusterService's, so that the garbage collector knows when both have to go.
    pub(super) owner_uid: String,
    /// Where the Service may run; empty = in all clusters.
    pub(super) clusters: BTreeSet<String>,
}

impl Part {
    pub(super) const ALL: [Self; 2] = [Self::Export, Self::Policy];

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

    pub(super) fn kind(self) -> &'static str {
        self.names().2
    }

    /// As definitions are called, and RBAC rules have it in two fields.
    pub(super) fn definition(self) -> String {
        let (group, _, _, plural) = self.names();
        format!("{plural}.{group}")
    }

    /// What the object for this MultiClusterService is called.
    pub(super) fn name(self, key: &ServiceKey) -> String {
        match self {
            Self::Export => key.name.to_string(),
            Self::Policy => format!("{POLICY_PREFIX}{}", key.name),
        }
    }

    /// For which MultiClusterService the object of this name would be; none if for none.
    pub(super) fn key(self, object: &DynamicObject) -> Option<ServiceKey> {
        let name = object.metadata.name.as_deref()?;
        let name = match self {
            Self::Export => name,
            Self::Policy => name.strip_prefix(POLICY_PREFIX)?,
        };
        Some(ServiceKey::multi_cluster(object.metadata.namespace.as_deref()?, name))
    }

    /// The object as it is applied. All that may be ours is named, so that nothing is left of what it said before.
    pub(super) fn body(self, key: &ServiceKey, export: &Export, manager: &str) -> Value {
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
        if self == Self::Policy {
            body["spec"] = json!({
                "resourceSelectors": selectors(key),
                "placement": {"clusterAffinity": {"clusterNames": export.clusters}},
            });
        }
        body
    }

    /// Whether the object says what [`Self::body`] would. What others and Karmada's webhook add to it does not count.
    pub(super) fn says(self, object: &DynamicObject, key: &ServiceKey, export: &Export) -> bool {
        let owners = object.metadata.owner_references.iter().flatten();
        let owned = owners.into_iter().any(|owner| owner.uid == export.owner_uid);
        owned
            && match self {
                Self::Export => true,
                Self::Policy => {
                    let spec = &object.data["spec"];
                    let names = spec["placement"]["clusterAffinity"]["clusterNames"].as_array();
                    let names = names.into_iter().flatten().filter_map(Value::as_str);
                    spec["resourceSelectors"] == selectors(key)
                        && names.eq(export.clusters.iter().map(String::as_str))
                }
            }
    }
}

/// The ServiceExport, and nothing else.
fn selectors(key: &ServiceKey) -> Value {
    let (group, version, kind, _) = Part::Export.names();
    json!([{
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "namespace": &*key.namespace,
        "name": Part::Export.name(key),
    }])
}

/// Whether the object was made by the installation with this field manager.
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
        Export { owner_uid: "u1".into(), clusters: clusters.iter().map(ToString::to_string).collect() }
    }

    fn object(body: Value) -> DynamicObject {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn the_objects_are_these() {
        assert_eq!(
            Part::Export.body(&key(), &export(&[]), "sheave"),
            json!({
                "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
                "metadata": {
                    "name": "web", "namespace": "shop", "labels": {"sheave.dev/managed-by": "sheave"},
                    "ownerReferences": [{"apiVersion": "networking.karmada.io/v1alpha1",
                                         "kind": "MultiClusterService", "name": "web", "uid": "u1"}],
                },
            })
        );
        let policy = Part::Policy.body(&key(), &export(&["b", "a"]), "sheave");
        assert_eq!(policy["apiVersion"], "policy.karmada.io/v1alpha1");
        assert_eq!(policy["metadata"]["name"], "sheave-export-web");
        assert_eq!(
            policy["spec"],
            json!({
                "resourceSelectors": [{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
                                       "namespace": "shop", "name": "web"}],
                "placement": {"clusterAffinity": {"clusterNames": ["a", "b"]}},
            })
        );
    }

    #[test]
    fn what_is_applied_says_what_it_should_whatever_others_add() {
        for part in Part::ALL {
            let mut body = part.body(&key(), &export(&["a"]), "sheave");
            body["metadata"]["labels"]["permanent-id"] = json!("1");
            body["spec"]["conflictResolution"] = json!("Abort");
            let object = object(body);
            assert!(is_ours(&object, "sheave") && !is_ours(&object, "sheave-bf9cf968"));
            assert_eq!(part.key(&object), Some(key()));
            assert!(part.says(&object, &key(), &export(&["a"])), "{part:?}");
            assert_eq!(part.says(&object, &key(), &export(&["b"])), part == Part::Export);
            let other = Export { owner_uid: "u2".into(), ..export(&["a"]) };
            assert!(!part.says(&object, &key(), &other), "it belongs to one that is gone: {part:?}");
        }
    }

    #[test]
    fn a_policy_for_all_clusters_may_come_back_without_its_empty_list() {
        let mut body = Part::Policy.body(&key(), &export(&[]), "sheave");
        body["spec"]["placement"]["clusterAffinity"] = json!({});
        assert!(Part::Policy.says(&object(body), &key(), &export(&[])));
    }

    #[test]
    fn policies_of_other_names_are_for_none() {
        let policy = json!({"metadata": {"name": "web", "namespace": "shop"}});
        assert_eq!(Part::Policy.key(&object(policy)), None);
    }
}
