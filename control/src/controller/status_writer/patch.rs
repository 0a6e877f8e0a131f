//! Bodies of the writes. Each names the uid: a write for a Service that was deleted must not reach the next one of its name.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::conditions;
use crate::controller::desired_status::DesiredStatus;
use crate::controller::ownership::Rest;
use crate::controller::service_object::ServiceObject;

/// A merge patch replaces the list, which is safe because the resourceVersion names the list that it was made from.
pub(super) fn finalizers(object: &ServiceObject, finalizers: &[String]) -> Value {
    let metadata = object.metadata();
    json!({"metadata": {
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "finalizers": finalizers,
    }})
}

/// As [`finalizers`]: whole lists, made from the object that the resourceVersion names.
pub(super) fn rest(object: &ServiceObject, rest: &Rest<'_>) -> Value {
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

/// An empty ingress is sent as an empty list: left out, that of another manager would stay.
pub(super) fn status(object: &ServiceObject, desired_status: &DesiredStatus, now: Timestamp) -> Value {
    let before = object.conditions();
    let generation = object.metadata().generation;
    let conditions: Vec<_> = conditions::of(desired_status)
        .into_iter()
        .map(|condition| condition.stamped(before, generation, now))
        .chain(desired_status.announcement.kept(before).cloned())
        .collect();
    let ingress = desired_status.ingress_of(object);
    apply(object, &json!({"loadBalancer": {"ingress": ingress}, "conditions": conditions}))
}

/// Whatever a manager leaves out of what it applied before is removed, unless others hold it too.
pub(super) fn cleared(object: &ServiceObject) -> Value {
    apply(object, &json!({}))
}

/// The status of a custom resource is written into the object that is there, whatever uid the body has (apiextensions
/// `statusStrategy.PrepareForUpdate`): there the resourceVersion, which no other object ever had, keeps it from another.
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
