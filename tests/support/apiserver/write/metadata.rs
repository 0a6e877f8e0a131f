//! `metadata` of every kind: validation of new and changed objects. After k8s.io/apimachinery `api/validation`.

use serde_json::{Value, json};

use super::names::{label_errors, label_value_errors, qualified_name_errors, subdomain_errors};
use crate::apiserver::kind::Kind;
use crate::apiserver::status::Cause;

const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// `metadata.<key>` as text; empty if absent.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// Finalizers of an object.
pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether the object has been deleted already.
pub(super) fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// `ValidateObjectMeta`.
pub(super) fn check(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name_errors =
        if matches!(kind.kind.as_str(), "Service" | "Namespace") { label_errors } else { subdomain_errors };
    let prefix = text(object, "generateName");
    if !prefix.is_empty() {
        // A prefix may end in a dash, since the suffix makes the name valid.
        let masked = prefix.strip_suffix('-').map_or_else(|| prefix.to_owned(), |rest| format!("{rest}a"));
        causes.extend(each("metadata.generateName", prefix, name_errors(&masked)));
    }
    let name = text(object, "name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        causes.extend(each("metadata.name", name, name_errors(name)));
    }
    causes.extend(check_labels("metadata.labels", &object["metadata"]["labels"]));
    causes.extend(check_annotations(object));
    for (index, finalizer) in finalizers(object).into_iter().enumerate() {
        causes.extend(each("metadata.finalizers", finalizer, qualified_name_errors(finalizer)));
        let standard = ["foregroundDeletion", "orphan", "kubernetes"].contains(&finalizer);
        if !finalizer.contains('/') && !standard && !kind.custom {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(&format!("metadata.finalizers[{index}]"), &json!(finalizer), why));
        }
    }
    causes
}

/// `ValidateObjectMetaUpdate`.
pub(super) fn check_update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_terminating(old) {
        let known = finalizers(old);
        let mut added: Vec<&str> = finalizers(new).into_iter().filter(|name| !known.contains(name)).collect();
        added.sort_unstable();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    for key in ["name", "namespace", "uid"] {
        let (old, new) = (&old["metadata"][key], &new["metadata"][key]);
        if old != new {
            causes.push(Cause::invalid(&format!("metadata.{key}"), new, "field is immutable"));
        }
    }
    causes.extend(check_labels("metadata.labels", &new["metadata"]["labels"]));
    causes.extend(check_annotations(new));
    causes
}

/// `ValidateLabels`, for labels and selectors.
pub(super) fn check_labels(field: &str, labels: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        causes.extend(each(field, key, qualified_name_errors(key)));
        causes.extend(each(field, value, label_value_errors(value)));
    }
    causes
}

fn check_annotations(object: &Value) -> Vec<Cause> {
    let field = "metadata.annotations";
    let mut causes = Vec::new();
    let mut size = 0;
    for (key, value) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        causes.extend(each(field, key, qualified_name_errors(&key.to_lowercase())));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        let message = format!("Too long: may not be more than {ANNOTATIONS_LIMIT} bytes");
        causes.push(Cause::new("FieldValueTooLong", field, message));
    }
    causes
}

/// One `Invalid value` for each text.
pub(super) fn each(
    field: &str,
    value: &str,
    errors: impl IntoIterator<Item = impl AsRef<str>>,
) -> Vec<Cause> {
    errors.into_iter().map(|error| Cause::invalid(field, &json!(value), error.as_ref())).collect()
}
