//! Decoding of what the server sends: events of a watch, and objects, pruned and decoded, or else a Problem with the reason.

use std::sync::Arc;

use kube::Resource as _;
use serde::Deserialize;
use serde_json::Value;

use super::request::RequestFailure;
use crate::api::decode::field_path::{FieldPath, Step};
use crate::api::decode::{self, FieldError};
use crate::api::kinds::Kind;
use crate::api::object::ApiObject as _;
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::api::store::ObjectKey;

/// Number of characters after which a value in a Problem is cut.
const LONGEST_VALUE: usize = 80;

/// Annotation of the bookmark after which a streamed list is complete (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event of a watch.
#[derive(Debug)]
pub(super) enum Event {
    /// An object was added or changed.
    Put(Item),
    /// An object was deleted; holds the version of its deletion.
    Gone(Item),
    /// All changes up to this version were sent.
    Bookmark {
        version: String,
        /// Whether the streamed list is complete.
        ends_list: bool,
    },
}

#[derive(Deserialize)]
struct WatchLine {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl Event {
    /// Parses a line of a watch.
    ///
    /// # Errors
    /// If the line reports a failure of the watch, or is malformed.
    pub(super) fn read(line: &[u8]) -> Result<Self, RequestFailure> {
        let garbled = |message: String| RequestFailure::Garbled(format!("in a watch: {message}"));
        let line: WatchLine = serde_json::from_slice(line).map_err(|error| garbled(error.to_string()))?;
        match line.kind.as_str() {
            "BOOKMARK" => {
                let metadata = &line.object["metadata"];
                let version = metadata["resourceVersion"].as_str().unwrap_or_default().to_owned();
                let ends_list = metadata["annotations"][INITIAL_EVENTS_END] == "true";
                Ok(Self::Bookmark { version, ends_list })
            }
            "ERROR" => Err(RequestFailure::of_event(&line.object)),
            kind @ ("ADDED" | "MODIFIED" | "DELETED") => {
                let item =
                    Item::new(line.object).ok_or_else(|| garbled("an object without a name".to_owned()))?;
                Ok(if kind == "DELETED" { Self::Gone(item) } else { Self::Put(item) })
            }
            other => Err(garbled(format!("an event of type {other:?}"))),
        }
    }
}

/// An object from the server, with the metadata that all objects have.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) key: ObjectKey,
    /// Resource version; empty if the server sent none, which does not happen.
    pub(super) version: String,
    uid: Option<String>,
    value: Value,
}

impl Item {
    /// Wraps an object; `None` if it has no name and so is not an object.
    pub(super) fn new(value: Value) -> Option<Self> {
        let metadata = value.get("metadata")?;
        let text = |name: &str| metadata.get(name).and_then(Value::as_str);
        let key = (text("namespace").unwrap_or_default().into(), text("name")?.into());
        let version = text("resourceVersion").unwrap_or_default().to_owned();
        let uid = text("uid").map(str::to_owned);
        Some(Self { key, version, uid, value })
    }

    /// Whether this is the same version of the same object as `kept`.
    pub(super) fn is<K: Kind>(&self, kept: &K::Object) -> bool {
        let kept = kept.meta();
        !self.version.is_empty()
            && kept.resource_version.as_deref() == Some(&self.version)
            && kept.uid.as_deref() == self.uid.as_deref()
    }

    /// Whether the object belongs to this kind.
    pub(super) fn concerns<K: Kind>(&self) -> bool {
        K::concerns(&self.value)
    }

    /// The decoded object, or its Problem. `kept` is whether an earlier version could be decoded.
    pub(super) fn read<K: Kind>(mut self, kept: bool) -> Result<Arc<K::Object>, Box<Problem>> {
        if let Some(object) = self.value.as_object_mut() {
            crate::api::prune::metadata(object);
            decode::drop_nulls(object);
            K::Object::prune(object);
            decode::complete_conditions(object);
        }
        decode::decode::<K::Object>(&self.value)
            .map(Arc::new)
            .map_err(|error| Box::new(unreadable::<K>(&self.key, &self.value, &error, kept)))
    }
}

/// The reference for Problems of an object.
pub(super) fn reference<K: Kind>(key: &ObjectKey) -> ObjectRef {
    ObjectRef { kind: K::ROW.resource.kind, namespace: key.0.clone(), name: key.1.clone() }
}

fn unreadable<K: Kind>(key: &ObjectKey, value: &Value, error: &FieldError, kept: bool) -> Problem {
    let found = at(value, &error.path).map_or_else(String::new, |value| format!("{} ", shown(value)));
    let instead = if kept {
        "the last version that could be read stays in use"
    } else {
        "no version of it could be read yet, so it is not used"
    };
    Problem {
        object: reference::<K>(key),
        reason: reason::UNREADABLE_OBJECT,
        field: error.path.to_string(),
        message: format!("{found}cannot be read: {}; {instead}", error.message),
        port: None,
    }
}

fn at<'a>(value: &'a Value, path: &FieldPath) -> Option<&'a Value> {
    path.0.iter().try_fold(value, |value, step| match step {
        Step::Key(name) => value.get(name),
        Step::Index(index) => value.get(index),
    })
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::kinds::{Nodes, Pools, Services, Slices};

    fn read<K: Kind>(value: Value) -> Result<Arc<K::Object>, Box<Problem>> {
        Item::new(value).unwrap().read::<K>(false)
    }

    #[test]
    fn a_condition_without_a_time_does_not_cost_the_service() {
        let service = read::<Services>(json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {"ports": [{"port": 80, "nodePort": null}]},
            "status": {"conditions": [{"type": "A", "status": "True", "reason": "", "message": "",
                "lastTransitionTime": null}]}}));
        assert_eq!(service.unwrap().status.as_ref().unwrap().conditions.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn a_slice_without_endpoints_is_a_slice() {
        let slice = read::<Slices>(json!({"metadata": {"name": "web-1", "namespace": "shop"},
            "addressType": "IPv4", "endpoints": null, "ports": null}));
        assert_eq!(slice.unwrap().endpoints, None);
    }

    #[test]
    fn what_cannot_be_read_is_told_with_object_field_and_value() {
        let pool = json!({"metadata": {"name": "edge"}, "spec": {"priority": "high"}});
        let problem = read::<Pools>(pool.clone()).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "AddressPool edge: UnreadableObject: spec.priority: \"high\" cannot be read: \
             invalid type: string \"high\", expected u32; no version of it could be read yet, so it is not used"
        );
        let problem = Item::new(pool).unwrap().read::<Pools>(true).unwrap_err();
        assert!(problem.message.ends_with("; the last version that could be read stays in use"));
    }

    #[test]
    fn long_values_are_cut() {
        let name = "ü".repeat(100_000);
        let problem =
            read::<Nodes>(json!({"metadata": {"name": "n1"}, "spec": {"taints": name}})).unwrap_err();
        assert!(problem.message.starts_with("\"üüü"), "{problem}");
        assert!(problem.message.contains("ü... cannot be read"), "{problem}");
        assert!(problem.message.len() <= crate::text::MAX_MESSAGE_BYTES, "{}", problem.message.len());
    }

    #[test]
    fn the_same_version_of_the_same_object_is_known_again() {
        let value = |version: &str, uid: &str| json!({"metadata": {"name": "n1", "resourceVersion": version, "uid": uid}});
        let kept = read::<Nodes>(value("7", "a")).unwrap();
        let is = |version, uid| Item::new(value(version, uid)).unwrap().is::<Nodes>(kept.as_ref());
        assert!(is("7", "a"));
        assert!(!is("8", "a"));
        assert!(!is("7", "b"));
        assert!(!is("", "a"));
    }

    #[test]
    fn the_end_of_a_streamed_list_is_a_bookmark_with_a_mark() {
        let line = br#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":
            {"resourceVersion":"268","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{}}}"#;
        let Ok(Event::Bookmark { version, ends_list: true }) = Event::read(line) else { panic!() };
        assert_eq!(version, "268");
        let line = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"268"},"spec":{}}}"#;
        assert!(matches!(Event::read(line), Ok(Event::Bookmark { ends_list: false, .. })));
    }

    #[test]
    fn an_error_is_what_its_status_says() {
        let line = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},
            "status":"Failure","message":"too old resource version: 1 (600)","reason":"Expired","code":410}}"#;
        assert!(matches!(Event::read(line), Err(RequestFailure::Expired(_))));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for line in [&b"{"[..], br#"{"type":"MOVED","object":{}}"#, br#"{"type":"ADDED","object":{}}"#] {
            assert!(matches!(Event::read(line), Err(RequestFailure::Garbled(_))));
        }
    }
}
