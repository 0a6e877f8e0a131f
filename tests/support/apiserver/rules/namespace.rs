//! Namespaces: they must exist before objects are created in them, and are deleted in two steps.
//!
//! There is no namespace controller, as in the recordings: a deleted namespace stays in `Terminating`.

use serde_json::{Value, json};

use crate::apiserver::kind::registry::Served;
use crate::apiserver::shared::World;
use crate::apiserver::status::{Cause, Status};
use crate::apiserver::write::{Deletion, WriteRequest};

/// Admission plugin NamespaceLifecycle.
pub(crate) fn admit(world: &mut World, request: &WriteRequest<'_>, name: &str) -> Result<(), Status> {
    let Some(namespace) = request.namespace else { return Ok(()) };
    let kind = request.kind;
    let served = world.registry.find("", "v1", "namespaces").expect("a built-in kind");
    let Some(entry) = world.store.get(&served, namespace) else {
        return Err(Status::not_found(&served.kind, namespace));
    };
    if entry.object(&served.kind)["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let text = format!("{} \"{name}\" is forbidden: {why}", kind.qualified_plural());
    let told = format!("namespace {namespace} is being terminated");
    Err(Status::new(403, "Forbidden", text).about(name, &kind.group, &kind.plural).because(&[Cause::new(
        "NamespaceTerminating",
        "metadata.namespace",
        told,
    )]))
}

/// Completes fields that every namespace has.
pub(super) fn complete(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    if object["spec"]["finalizers"].is_null() && object["metadata"]["deletionTimestamp"].is_null() {
        object["spec"]["finalizers"] = json!(["kubernetes"]);
    }
    if object["status"]["phase"].is_null() {
        object["status"]["phase"] = json!("Active");
    }
}

/// Deletion of a namespace; `None` for other kinds.
pub(crate) fn delete(served: &Served, live: &Value, now: &str) -> Option<Deletion> {
    if served.shelf != "namespaces" {
        return None;
    }
    if live["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
        return Some(Deletion::Removed);
    }
    let mut object = live.clone();
    if object["metadata"]["deletionTimestamp"].is_null() {
        object["metadata"]["deletionTimestamp"] = json!(now);
        object["status"]["phase"] = json!("Terminating");
    }
    Some(Deletion::Marked(object))
}
