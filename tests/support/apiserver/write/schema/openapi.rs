//! Schemas from the `openAPIV3Schema` of a CustomResourceDefinition.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Field, ListKey, ListKind, Presence, Schema, Struct, builtin::object_meta};

/// Schema of a custom resource. `metadata`, `apiVersion` and `kind` are those of every object.
pub(crate) fn from_openapi(root: &Value) -> Schema {
    let mut schema = translate(root);
    if let Schema::Struct(known) = &mut schema {
        let as_sent = |schema| Field { schema, presence: Presence::AsSent };
        known.fields.insert("metadata".to_owned(), as_sent(object_meta()));
        known.fields.insert("apiVersion".to_owned(), as_sent(Schema::Text));
        known.fields.insert("kind".to_owned(), as_sent(Schema::Text));
    }
    schema
}

fn translate(schema: &Value) -> Schema {
    if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true) && schema["properties"].is_null() {
        return Schema::Opaque;
    }
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        return Schema::IntOrText;
    }
    match schema["type"].as_str() {
        Some("string") => Schema::Text,
        Some("boolean") => Schema::Flag,
        Some("integer") => Schema::Int64,
        Some("array") => Schema::List(Box::new(translate(&schema["items"])), list_kind(schema)),
        Some("object") => object(schema),
        _ => Schema::Opaque,
    }
}

fn object(schema: &Value) -> Schema {
    let atomic = schema["x-kubernetes-map-type"] == "atomic";
    if let Some(properties) = schema["properties"].as_object() {
        let fields: BTreeMap<_, _> = properties
            .iter()
            .map(|(name, schema)| {
                (name.clone(), Field { schema: translate(schema), presence: Presence::AsSent })
            })
            .collect();
        let open = schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true);
        return Schema::Struct(Struct { go_name: "", fields, atomic, open });
    }
    match &schema["additionalProperties"] {
        Value::Object(_) => {
            Schema::Map { values: Box::new(translate(&schema["additionalProperties"])), atomic }
        }
        Value::Bool(true) => Schema::Map { values: Box::new(Schema::Opaque), atomic },
        _ => Schema::Struct(Struct { go_name: "", fields: BTreeMap::new(), atomic, open: false }),
    }
}

fn list_kind(schema: &Value) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys: Vec<ListKey> = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(|name| {
                    let default = schema["items"]["properties"][name].get("default").cloned();
                    ListKey { name: name.to_owned(), default }
                })
                .collect();
            let patch_key = keys.first().map(|key| key.name.clone()).unwrap_or_default();
            ListKind::Keyed { keys, patch_key }
        }
        _ => ListKind::Atomic,
    }
}
