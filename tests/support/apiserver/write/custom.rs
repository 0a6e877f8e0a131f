//! Custom resources: pruning, defaults and validation by the structural schema of their definition.
//!
//! CEL rules (`x-kubernetes-validations`), `oneOf` and the like are not evaluated, so some objects are accepted that a
//! real server would refuse.

mod validate;

use serde_json::{Map, Value};

pub(super) use validate::{Place, check};

/// Removes fields that are not in the schema, and disallowed nulls. Paths of unknown fields go to `unknown`.
pub(super) fn prune(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    let keeps_unknown = schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true);
    match value {
        Value::Object(fields) => {
            if path.is_empty() {
                prune_fields(schema, fields, path, unknown, &["apiVersion", "kind", "metadata"]);
            } else if !keeps_unknown || schema["properties"].is_object() {
                prune_fields(schema, fields, path, unknown, &[]);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune(&schema["items"], item, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

fn prune_fields(
    schema: &Value,
    fields: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
    always: &[&str],
) {
    let keeps_unknown = schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true);
    let known = |name: &str| -> Option<&Value> {
        schema["properties"].get(name).or_else(|| {
            let free = &schema["additionalProperties"];
            (free.is_object() || free == &Value::Bool(true)).then_some(free)
        })
    };
    let full = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    fields.retain(|name, value| {
        let stays = always.contains(&name.as_str()) || keeps_unknown || known(name).is_some();
        if !stays {
            unknown.push(full(name));
        }
        let nullable = known(name).is_none_or(|schema| schema["nullable"] == Value::Bool(true));
        stays && (nullable || !value.is_null())
    });
    for (name, value) in fields {
        if let Some(schema) = known(name).filter(|_| !always.contains(&name.as_str())) {
            prune(schema, value, &full(name), unknown);
        }
    }
}

/// Sets the schema's defaults, from the outside in.
pub(super) fn set_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if !fields.contains_key(name)
                    && let Some(default) = schema.get("default")
                {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(value) = fields.get_mut(name) {
                    set_defaults(schema, value);
                }
            }
            if schema["additionalProperties"].is_object() {
                fields.values_mut().for_each(|value| set_defaults(&schema["additionalProperties"], value));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| set_defaults(&schema["items"], item)),
        _ => {}
    }
}
