//! Marks that Sheave left on a Service or MultiClusterService. No I/O.

use std::fmt;

use k8s_openapi::api::core::v1::LoadBalancerIngress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Value, json};
use sheave_model::FrontendSource;

use crate::api::store::ServiceKey;
use crate::controller::ownership::Ownership;
use crate::controller::service_object::ServiceObject;

/// Marks on a Service or MultiClusterService. Displays as text for users.
#[derive(Clone, Debug, PartialEq)]
pub struct Leftover {
    /// The marked object.
    pub service: ServiceKey,
    /// Addresses that we published.
    addresses: Vec<String>,
    /// Types of the conditions that we published.
    conditions: Vec<String>,
    /// Whether the status has any field of ours, even an empty list.
    pub(super) status: bool,
    /// Finalizers to remove, with their indexes in the list.
    finalizers: Vec<(usize, String)>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Leftover {
    /// The marks on the object, if any. The server's record of managers decides which fields are ours, never their contents. The
    /// shared finalizer is removed if we set it, or if `names` include it and our own finalizer is present.
    pub(super) fn of(object: &ServiceObject, names: &Ownership) -> Option<Self> {
        let metadata = object.metadata();
        let entries = metadata.managed_fields.iter().flatten();
        let owned: Vec<&Value> = entries.filter_map(|entry| status_fields(entry, names)).collect();
        let finalizers = finalizers(object, names);
        if owned.is_empty() && finalizers.is_empty() {
            return None;
        }
        let owns_ingress = owned.iter().any(|it| it.pointer("/f:loadBalancer/f:ingress").is_some());
        Some(Self {
            service: object.key(),
            addresses: if owns_ingress { addresses(object.ingress()) } else { Vec::new() },
            conditions: owned.iter().flat_map(|it| conditions(it)).collect(),
            status: !owned.is_empty(),
            finalizers,
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        })
    }

    /// An apply with our field manager that removes only the fields that no other manager owns. The uid protects a new Service
    /// with the same name.
    pub(super) fn empty_status(&self) -> Value {
        let ServiceKey { namespace, name, source } = &self.service;
        let (api_version, kind) = ServiceObject::type_names(*source);
        let mut body = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"namespace": &**namespace, "name": &**name, "uid": self.uid},
            "status": {},
        });
        if *source == FrontendSource::MultiClusterService {
            // The API server does not check the uid of a custom resource.
            body["metadata"]["resourceVersion"] = json!(self.resource_version);
        }
        body
    }

    /// A JSON patch that removes the finalizers, if there are any. A failed `test` results in a 422; the resource version makes
    /// it a 409 if only something else changed.
    pub(super) fn without_finalizers(&self) -> Option<Value> {
        if self.finalizers.is_empty() {
            return None;
        }
        let mut steps = vec![
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": self.resource_version}),
        ];
        // From the end, so that the other indexes stay valid.
        for (place, finalizer) in self.finalizers.iter().rev() {
            let path = format!("/metadata/finalizers/{place}");
            steps.push(json!({"op": "test", "path": path, "value": finalizer}));
            steps.push(json!({"op": "remove", "path": path}));
        }
        Some(Value::Array(steps))
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let finalizers: Vec<_> = self.finalizers.iter().map(|(_, it)| it.clone()).collect();
        for (what, which) in
            [("address", &self.addresses), ("condition", &self.conditions), ("finalizer", &finalizers)]
        {
            parts.extend(which.iter().map(|it| format!("{what} {it}")));
        }
        if parts.is_empty() {
            parts.push("empty status".to_owned());
        }
        if self.service.source == FrontendSource::MultiClusterService {
            f.write_str("MultiClusterService ")?;
        }
        write!(f, "{}: {}", self.service, parts.join(", "))
    }
}

/// The status fields that we applied and still own. After an empty apply the server keeps an entry without fields.
fn status_fields<'e>(entry: &'e ManagedFieldsEntry, names: &Ownership) -> Option<&'e Value> {
    let ours = entry.manager.as_deref() == Some(names.field_manager())
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref() == Some("status");
    let fields = entry.fields_v1.as_ref().filter(|_| ours)?.0.get("f:status")?;
    fields.as_object().is_some_and(|it| !it.is_empty()).then_some(fields)
}

/// The condition types in keys like `k:{"type":"sheave.dev/Programmed"}`.
fn conditions(status: &Value) -> Vec<String> {
    let keys = status.get("f:conditions").and_then(Value::as_object).into_iter().flatten();
    keys.filter_map(|(key, _)| {
        let key: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
        Some(key.get("type")?.as_str()?.to_owned())
    })
    .collect()
}

fn addresses(ingress: &[LoadBalancerIngress]) -> Vec<String> {
    ingress.iter().filter_map(|it| it.ip.clone().or_else(|| it.hostname.clone())).collect()
}

fn finalizers(object: &ServiceObject, names: &Ownership) -> Vec<(usize, String)> {
    let all = object.metadata().finalizers.iter().flatten().enumerate();
    all.filter(|(_, it)| names.goes(object, it)).map(|(place, it)| (place, it.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::names::{FIELD_MANAGER, FINALIZER, OUR_CLASS, SHARED_FINALIZER};

    fn object(finalizers: &[&str], manager: &str, operation: &str, status: &Value) -> Value {
        json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "7", "finalizers": finalizers,
                "managedFields": [
                    {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}},
                    {"manager": manager, "operation": operation, "subresource": "status",
                     "fieldsV1": {"f:status": status}},
                ],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.10", "ipMode": "Proxy"}]}},
        })
    }

    fn service(finalizers: &[&str], manager: &str, operation: &str, status: &Value) -> ServiceObject {
        let object = object(finalizers, manager, operation, status);
        ServiceObject::Service(Arc::new(serde_json::from_value(object).unwrap()))
    }

    fn all() -> Value {
        json!({
            "f:conditions": {"k:{\"type\":\"sheave.dev/Programmed\"}": {".": {}, "f:status": {}}},
            "f:loadBalancer": {"f:ingress": {}},
        })
    }

    fn names(shared: bool) -> Ownership {
        Ownership::new(OUR_CLASS, shared)
    }

    fn text(service: &ServiceObject, shared: bool) -> Option<String> {
        Leftover::of(service, &names(shared)).map(|it| it.to_string())
    }

    #[test]
    fn what_we_applied_and_our_finalizer_is_found() {
        let left =
            Leftover::of(&service(&["a", FINALIZER], FIELD_MANAGER, "Apply", &all()), &names(false)).unwrap();
        assert_eq!(
            left.to_string(),
            "shop/web: address 203.0.113.10, condition sheave.dev/Programmed, \
             finalizer sheave.dev/load-balancer-cleanup"
        );
        assert_eq!(
            left.without_finalizers().unwrap(),
            json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "test", "path": "/metadata/finalizers/1", "value": FINALIZER},
                {"op": "remove", "path": "/metadata/finalizers/1"},
            ])
        );
        assert_eq!(left.empty_status()["metadata"]["uid"], "u");
    }

    #[test]
    fn of_a_multi_cluster_service_the_shared_finalizer_stays() {
        let object = object(&[SHARED_FINALIZER, FINALIZER], FIELD_MANAGER, "Apply", &all());
        let object = ServiceObject::MultiClusterService(Arc::new(serde_json::from_value(object).unwrap()));
        let left = Leftover::of(&object, &names(true)).unwrap();
        assert_eq!(
            left.to_string(),
            "MultiClusterService shop/web: address 203.0.113.10, condition sheave.dev/Programmed, \
             finalizer sheave.dev/load-balancer-cleanup"
        );
        assert_eq!(
            left.empty_status(),
            json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
                   "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "7"}, "status": {}})
        );
    }

    #[test]
    fn what_others_wrote_is_none_of_ours() {
        for (manager, operation) in [("metallb", "Apply"), (FIELD_MANAGER, "Update")] {
            assert_eq!(text(&service(&[], manager, operation, &all()), true), None);
            let left = text(&service(&[FINALIZER], manager, operation, &all()), true).unwrap();
            assert_eq!(left, "shop/web: finalizer sheave.dev/load-balancer-cleanup");
        }
    }

    #[test]
    fn what_another_installation_left_is_none_of_ours() {
        let left = service(&[FINALIZER, SHARED_FINALIZER], FIELD_MANAGER, "Apply", &all());
        assert_eq!(Leftover::of(&left, &Ownership::new("example.com/inside", true)), None);
        let theirs = Ownership::new("example.com/inside", false);
        let left = service(&[theirs.finalizer()], theirs.field_manager(), "Apply", &all());
        assert_eq!(text(&left, true), None);
        assert!(Leftover::of(&left, &theirs).is_some());
    }

    #[test]
    fn an_empty_apply_leaves_nothing_to_do() {
        assert_eq!(text(&service(&[], FIELD_MANAGER, "Apply", &json!({})), true), None);
    }

    #[test]
    fn the_shared_finalizer_goes_where_we_set_it_whatever_the_configuration_says_now() {
        let set_by = |manager: &str, finalizers: &[&str]| {
            let mut object = object(finalizers, "x", "Apply", &json!({}));
            let key = format!("v:\"{SHARED_FINALIZER}\"");
            object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Update",
                "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, key: {}}}}}]);
            ServiceObject::Service(Arc::new(serde_json::from_value(object).unwrap()))
        };
        let left = |it: &ServiceObject| {
            let left = Leftover::of(it, &names(false));
            left.map(|it| it.finalizers.into_iter().map(|(place, _)| place).collect::<Vec<_>>())
        };
        assert_eq!(left(&set_by(FIELD_MANAGER, &[SHARED_FINALIZER, "b", FINALIZER])), Some(vec![0, 2]));
        assert_eq!(
            left(&set_by(FIELD_MANAGER, &["b", SHARED_FINALIZER])),
            Some(vec![1]),
            "ours is gone already"
        );
        assert_eq!(left(&set_by("cloud", &[SHARED_FINALIZER, FINALIZER])), Some(vec![1]));
        assert_eq!(left(&set_by("cloud", &[SHARED_FINALIZER])), None);
    }

    #[test]
    fn the_shared_finalizer_goes_only_beside_ours_and_only_if_we_set_it() {
        let both = service(&[SHARED_FINALIZER, "b", FINALIZER], "x", "Apply", &json!({}));
        let places = |it: &ServiceObject, shared| {
            Leftover::of(it, &names(shared))
                .map(|it| it.finalizers.into_iter().map(|(place, _)| place).collect::<Vec<_>>())
        };
        assert_eq!(places(&both, true), Some(vec![0, 2]));
        assert_eq!(places(&both, false), Some(vec![2]));
        assert_eq!(places(&service(&[SHARED_FINALIZER], "x", "Apply", &json!({})), true), None);
        let steps = Leftover::of(&both, &names(true)).unwrap().without_finalizers().unwrap();
        assert_eq!(
            (&steps[1]["path"], &steps[3]["path"]),
            (&json!("/metadata/finalizers/2"), &json!("/metadata/finalizers/0"))
        );
    }
}
