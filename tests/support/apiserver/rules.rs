//! Side effects of storing objects of some kinds, and what the server's own controllers would add to them.
//!
//! Each rule names the file of Kubernetes that it follows. `write` decides what a write may do.

pub(super) mod definition;
pub(super) mod event;
pub(super) mod multi_cluster_service;
pub(super) mod namespace;
pub(super) mod scheduler;

use serde_json::{Value, json};

use super::write::WriteRequest;

/// Completes the object of a write.
pub(super) fn complete(request: &WriteRequest<'_>, live: Option<&Value>, object: &mut Value) {
    let kind = request.kind;
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::complete(object, &request.now),
        ("", "namespaces") => namespace::complete(object),
        _ => {}
    }
    count_generation(request, live, object);
}

/// Counts the generation of kinds that are stored as sent: changes of everything except metadata and status.
fn count_generation(request: &WriteRequest<'_>, live: Option<&Value>, object: &mut Value) {
    let counted = [
        "clusters",
        "customresourcedefinitions",
        "daemonsets",
        "deployments",
        "networkpolicies",
        "poddisruptionbudgets",
    ];
    if request.kind.custom || !counted.contains(&request.kind.plural.as_str()) {
        return;
    }
    let wanted = |object: &Value| {
        let mut wanted = object.clone();
        if let Some(map) = wanted.as_object_mut() {
            map.remove("metadata");
            map.remove("status");
        }
        wanted
    };
    let generation = match live {
        None => 1,
        Some(live) => {
            let before = live["metadata"]["generation"].as_i64().unwrap_or(1);
            let being_deleted = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
            let changed = wanted(live) != wanted(object) || being_deleted(live) != being_deleted(object);
            before + i64::from(changed)
        }
    };
    object["metadata"]["generation"] = json!(generation);
}
