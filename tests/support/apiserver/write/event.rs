//! Events: `ValidateEventCreate` and `ValidateEventUpdate` for events.k8s.io, which are strict, unlike those of the
//! core group. Causes name the fields of the internal type, which are those of the core group.

use serde_json::{Value, json};

use super::metadata::each;
use super::names::qualified_name_errors;
use crate::apiserver::status::Cause;

/// Internal names of fields of events.k8s.io that differ.
const INTERNAL: [(&str, &str); 6] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Validates a new Event.
pub(super) fn check(event: &Value) -> Vec<Cause> {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let mut causes = check_namespace(event, event["regarding"]["namespace"].as_str().unwrap_or_default());
    if event["eventTime"].is_null() {
        causes.push(Cause::required("eventTime", ""));
    }
    if !["Normal", "Warning"].contains(&text("type")) {
        causes.push(empty("type", &format!("has invalid value: {}", text("type"))));
    }
    let controller = text("reportingController");
    if controller.is_empty() {
        causes.push(Cause::required("reportingController", ""));
    }
    causes.extend(each("reportingController", controller, qualified_name_errors(controller)));
    for (key, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        if text(key).is_empty() {
            causes.push(Cause::required(key, ""));
        }
        if text(key).len() > limit {
            causes.push(empty(key, &format!("can have at most {limit} characters")));
        }
    }
    if text("note").len() > 1024 {
        causes.push(empty("message", "can have at most 1024 characters"));
    }
    if event["series"]["count"].as_i64().is_some_and(|count| count < 2) {
        causes.push(empty("series.count", "should be at least 2"));
    }
    for (key, internal) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ] {
        if !event[key].is_null() {
            causes.push(empty(internal, "needs to be unset"));
        }
    }
    causes
}

/// Validates a change. Only the series may change.
pub(super) fn check_update(old: &Value, event: &Value) -> Vec<Cause> {
    let fields = event.as_object().into_iter().flatten().map(|(key, _)| key);
    let changed =
        fields.filter(|key| !["metadata", "series"].contains(&key.as_str()) && old[*key] != event[*key]);
    changed
        .map(|key| {
            let internal =
                INTERNAL.iter().find(|(name, _)| name == key).map_or(key.as_str(), |(_, name)| name);
            Cause::invalid(internal, &event[key], "field is immutable")
        })
        .collect()
}

/// Validates an Event of the core group: it is in the namespace of its object, or in `default`.
pub(super) fn check_core(event: &Value) -> Vec<Cause> {
    let about = &event["involvedObject"]["namespace"];
    if *about == event["metadata"]["namespace"] || about.is_null() {
        return check_namespace(event, about.as_str().unwrap_or_default());
    }
    vec![Cause::invalid("involvedObject.namespace", about, "does not match event.namespace")]
}

/// Checks the namespace of an Event about a cluster-scoped object, which must be `default`.
fn check_namespace(event: &Value, about: &str) -> Vec<Cause> {
    if !about.is_empty() || event["metadata"]["namespace"] == "default" {
        return Vec::new();
    }
    vec![Cause::invalid("involvedObject.namespace", &json!(about), "does not match event.namespace")]
}

/// Cause with an empty value, since the server does not pass one.
fn empty(field: &str, why: &str) -> Cause {
    Cause::invalid(field, &json!(""), why)
}
