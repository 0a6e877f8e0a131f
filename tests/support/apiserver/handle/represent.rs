//! Representation of stored objects in answers: whole or metadata only, as items or alone, and Events in the shape of
//! either group.

use serde_json::{Map, Value, json};

use super::super::kind::registry::Served;
use super::super::rules::event;
use super::super::store::Entry;
use super::negotiate::Form;

/// Appends an object with `apiVersion` and `kind`.
pub(super) fn whole(served: &Served, form: Form, entry: &Entry, out: &mut Vec<u8>) {
    match form {
        Form::Metadata => write(out, &metadata(served, entry)),
        Form::Whole if served.reshapes_events() => write(out, &object(served, entry)),
        Form::Whole => entry.write_whole(&served.kind, out),
    }
}

/// Appends an object as an item of a list. Items of built-in kinds lack `apiVersion` and `kind`.
pub(super) fn item(served: &Served, form: Form, entry: &Entry, out: &mut Vec<u8>) {
    match form {
        Form::Whole if served.kind.custom => entry.write_whole(&served.kind, out),
        Form::Whole if served.reshapes_events() => {
            let mut object = object(served, entry);
            let map = object.as_object_mut().expect("an object");
            map.remove("apiVersion");
            map.remove("kind");
            write(out, &object);
        }
        Form::Whole => entry.write_bare(out),
        Form::Metadata => whole(served, form, entry, out),
    }
}

/// The parsed object in the shape of the requested kind.
pub(super) fn object(served: &Served, entry: &Entry) -> Value {
    let object = entry.object(&served.kind);
    if served.reshapes_events() { event::from_core(object) } else { object }
}

/// Object of a bookmark: a zero value of its kind with a revision.
pub(super) fn bookmark(served: &Served, form: Form, revision: u64, initial_end: bool) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if initial_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    if form == Form::Metadata {
        return json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
    }
    let mut object =
        json!({"kind": served.kind.kind, "apiVersion": served.kind.api_version(), "metadata": metadata});
    let zero: &[(&str, Value)] = match served.shelf.as_str() {
        "services" => &[("spec", json!({})), ("status", json!({"loadBalancer": {}}))],
        "endpointslices.discovery.k8s.io" => {
            &[("addressType", json!("")), ("endpoints", Value::Null), ("ports", Value::Null)]
        }
        "namespaces" | "nodes" | "pods" => &[("spec", json!({})), ("status", json!({}))],
        "leases.coordination.k8s.io" => &[("spec", json!({}))],
        _ => &[],
    };
    let fields: Map<String, Value> =
        zero.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    object.as_object_mut().expect("an object").extend(fields);
    object
}

fn metadata(served: &Served, entry: &Entry) -> Value {
    let object = entry.object(&served.kind);
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn write(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("JSON serialises");
}
