//! Bodies of the writes. Each names the uid: a write that was meant for a Service that has gone must not reach the one that
//! now has its name. It must not know when they are written.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::{Statement, marks};
use crate::controller::conditions;

/// A merge patch replaces the list, which is safe because the resourceVersion says from which list it was made.
pub(super) fn finalizers(service: &Service, finalizers: &[String]) -> Value {
    let metadata = &service.metadata;
    json!({"metadata": {
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "finalizers": finalizers,
    }})
}

/// As [`finalizers`]: all conditions, made from the object that the resourceVersion names.
pub(super) fn conditions(service: &Service, conditions: &[&Condition]) -> Value {
    let metadata = &service.metadata;
    json!({
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": {"conditions": conditions},
    })
}

/// An empty ingress is said as such: left out, that of another manager would stay.
pub(super) fn status(service: &Service, statement: &Statement, now: Timestamp) -> Value {
    let before = marks::conditions(service);
    let generation = service.metadata.generation;
    let conditions = conditions::of(statement).map(|said| said.stamped(before, generation, now));
    let ingress = marks::desired_ingress(statement);
    apply(service, &json!({"loadBalancer": {"ingress": ingress}, "conditions": conditions}))
}

/// Whatever a manager leaves out of what it applied before is removed, unless others hold it too.
pub(super) fn cleared(service: &Service) -> Value {
    apply(service, &json!({}))
}

fn apply(service: &Service, status: &Value) -> Value {
    let metadata = &service.metadata;
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "status": status,
    })
}
