//! Events: one store with two shapes, those of pkg/apis/core/v1 and pkg/apis/events/v1.

use serde_json::{Map, Value, json};

/// Names of fields in the core group and in `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts to the shape of `events.k8s.io`.
pub(crate) fn from_core(mut object: Value) -> Value {
    let Some(map) = object.as_object_mut() else { return object };
    rename(map, NAMES.iter().copied());
    // The core group sends these even if they are empty, `events.k8s.io` does not.
    for name in ["reportingController", "reportingInstance", "note"] {
        if map.get(name).is_some_and(|value| value == "") {
            map.remove(name);
        }
    }
    object
}

/// Converts to the shape of the core group, with the fields that it always sends.
pub(crate) fn to_core(mut object: Value) -> Value {
    let Some(map) = object.as_object_mut() else { return object };
    rename(map, NAMES.iter().map(|&(core, newer)| (newer, core)));
    let always = [
        ("source", json!({})),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
        ("involvedObject", json!({})),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
    ];
    for (name, value) in always {
        map.entry(name).or_insert(value);
    }
    object
}

fn rename<'a>(map: &mut Map<String, Value>, names: impl Iterator<Item = (&'a str, &'a str)>) {
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}
