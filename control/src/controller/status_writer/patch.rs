//! Request bodies of the writes. Each contains the uid: a write for a deleted Service must not reach a new one with the same
//! name.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::conditions;
use crate::controller::desired_status::DesiredStatus;
use crate::controller::ownership::OutlivedEntries;
use crate::controller::service_object::ServiceObject;

/// Merge patch of the finalizers. It replaces the whole list, which is safe because the resourceVersion identifies the list that
/// it is based on.
pub(super) fn finalizers(object: &ServiceObject, finalizers: &[String]) -> Value {
    let metadata = object.metadata();
    json!({"metadata": {
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "finalizers": finalizers,
    }})
}

/// Merge patch of status lists. Like [`finalizers`], it replaces whole lists of the version that the resourceVersion identifies.
pub(super) fn rest(object: &ServiceObject, rest: &OutlivedEntries<'_>) -> Value {
    let metadata = object.metadata();
    let mut status = json!({});
    if let Some(conditions) = &rest.conditions {
        status["conditions"] = json!(conditions);
    }
    if let Some(ingress) = &rest.ingress {
        status["loadBalancer"] = json!({"ingress": ingress});
    }
    json!({
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": status,
    })
}

/// Apply of the desired status. An empty ingress is sent as an empty list: if the field were absent, another manager's entries
/// would stay.
pub(super) fn status(object: &ServiceObject, desired_status: &DesiredStatus, now: Timestamp) -> Value {
    let before = object.conditions();
    let generation = object.metadata().generation;
    let conditions: Vec<_> = conditions::conditions_for(desired_status)
        .into_iter()
        .map(|condition| condition.stamped(before, generation, now))
        .chain(desired_status.announcement.kept(before).cloned())
        .collect();
    let ingress = desired_status.ingress_of(object);
    apply(object, &json!({"loadBalancer": {"ingress": ingress}, "conditions": conditions}))
}

/// Apply of an empty status. A field that a manager applied before and leaves out now is removed, unless other managers own it,
/// too.
pub(super) fn cleared(object: &ServiceObject) -> Value {
    apply(object, &json!({}))
}

/// Server-side apply. The API server writes the status of a custom resource into the existing object whatever uid the body has
/// (apiextensions `statusStrategy.PrepareForUpdate`), so for these the resourceVersion, which is unique to an object, protects a
/// new one with the same name.
fn apply(object: &ServiceObject, status: &Value) -> Value {
    let metadata = object.metadata();
    let (api_version, kind) = ServiceObject::type_names(object.source());
    let mut body = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "status": status,
    });
    if matches!(object, ServiceObject::MultiClusterService(_)) {
        body["metadata"]["resourceVersion"] = json!(metadata.resource_version);
    }
    body
}
