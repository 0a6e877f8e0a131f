//! Event objects: required fields, limits and names of `events.k8s.io/v1`.

use std::sync::Arc;

use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use crate::api::address_pool;
use crate::api::gateway_api::Gateway;
use crate::api::karmada::MultiClusterService;
use crate::api::problem::ObjectRef;
use crate::text::MAX_MESSAGE_BYTES;

/// The reporting controller. The API requires a qualified name.
const REPORTING_CONTROLLER: &str = "sheave.dev/controller";
/// Namespace of Events about cluster-scoped objects (`ValidateEventV1`).
const CLUSTER_SCOPED: &str = "default";
/// Largest length of a note in bytes (`NoteLengthLimit`).
const NOTE: usize = MAX_MESSAGE_BYTES;
/// Largest length of action, reason and reporting instance in bytes (`ActionLengthLimit` and the like).
const TOKEN: usize = 128;
/// Largest length of an object's name in bytes.
const NAME: usize = 253;

/// Identity of an object, as opposed to earlier and later objects with the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uid {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion` of the version that was examined, if known.
    pub resource_version: Option<Arc<str>>,
}

/// Severity of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// For information.
    Normal,
    /// Something is wrong.
    Warning,
}

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// The affected object.
    pub object: ObjectRef,
    /// Identity of the object.
    pub uid: Uid,
    /// Severity.
    pub r#type: EventType,
    /// Cause, as a CamelCase token.
    pub reason: &'static str,
    /// Action that was taken or failed, as a CamelCase token.
    pub action: &'static str,
    /// Text for users.
    pub note: String,
}

impl EventType {
    fn text(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// API version of a kind that Events are written about; `None` for other kinds and for references that are not API objects.
pub(super) fn api_version(kind: &str) -> Option<&'static str> {
    match kind {
        "Service" | "Node" | "Namespace" => Some("v1"),
        "EndpointSlice" => Some("discovery.k8s.io/v1"),
        address_pool::KIND => Some(address_pool::API_VERSION),
        MultiClusterService::KIND => Some(MultiClusterService::API_VERSION),
        "GatewayClass" | "Gateway" | "ListenerSet" | "TCPRoute" | "UDPRoute" | "TLSRoute" => {
            Some(Gateway::API_VERSION)
        }
        _ => None,
    }
}

/// The Event. Its name is unique because `unique` is random.
pub(super) fn event(
    occurrence: &Occurrence,
    api_version: &str,
    instance: &str,
    wall: Timestamp,
    unique: u64,
) -> Event {
    let Occurrence { object, uid, .. } = occurrence;
    let namespace = if object.namespace.is_empty() { CLUSTER_SCOPED } else { &object.namespace };
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name(&object.name, unique)),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(wall)),
        action: Some(cut(occurrence.action, TOKEN)),
        reason: Some(cut(occurrence.reason, TOKEN)),
        type_: Some(occurrence.r#type.text().to_owned()),
        note: Some(cut(&occurrence.note, NOTE)),
        reporting_controller: Some(REPORTING_CONTROLLER.to_owned()),
        reporting_instance: Some(cut(instance, TOKEN)),
        regarding: Some(ObjectReference {
            api_version: Some(api_version.to_owned()),
            kind: Some(object.kind.to_owned()),
            namespace: Some(object.namespace.to_string()).filter(|it| !it.is_empty()),
            name: Some(object.name.to_string()),
            uid: Some(uid.uid.to_string()),
            resource_version: uid.resource_version.as_deref().map(ToOwned::to_owned),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}

/// `NAME.HEX`, as client-go names Events. A truncated name must not end in a dot or dash.
fn name(object: &str, unique: u64) -> String {
    let suffix = format!(".{unique:016x}");
    let object = cut(object, NAME - suffix.len());
    format!("{}{suffix}", object.trim_end_matches(['.', '-']))
}

/// Truncates the text to at most `bytes` bytes at a character boundary.
fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(namespace: &str, name: &str, note: &str) -> Occurrence {
        Occurrence {
            object: ObjectRef { kind: "Service", namespace: namespace.into(), name: name.into() },
            uid: Uid { uid: "u-1".into(), resource_version: Some("7".into()) },
            r#type: EventType::Warning,
            reason: "NoAddress",
            action: "Serve",
            note: note.to_owned(),
        }
    }

    fn json(occurrence: &Occurrence, version: &str) -> serde_json::Value {
        let wall = Timestamp::new(1_700_000_000, 0).unwrap();
        serde_json::to_value(event(occurrence, version, "ctl-0_1", wall, 0xff)).unwrap()
    }

    #[test]
    fn an_event_has_every_field_that_the_server_wants() {
        let expected = serde_json::json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"namespace": "shop", "name": "web.00000000000000ff"},
            "eventTime": "2023-11-14T22:13:20.000000Z",
            "action": "Serve", "reason": "NoAddress", "type": "Warning", "note": "no pool has a free address",
            "reportingController": "sheave.dev/controller", "reportingInstance": "ctl-0_1",
            "regarding": {"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web",
                          "uid": "u-1", "resourceVersion": "7"},
        });
        assert_eq!(json(&occurrence("shop", "web", "no pool has a free address"), "v1"), expected);
    }

    #[test]
    fn an_event_about_a_cluster_scoped_object_goes_to_default() {
        let mut about = occurrence("", "n1", "x");
        about.object.kind = "Node";
        let json = json(&about, "v1");
        assert_eq!(json["metadata"]["namespace"], "default");
        assert_eq!(json["regarding"].get("namespace"), None);
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let note = format!("{}ü-and-more", "n".repeat(NOTE - 1));
        let json = json(&occurrence("shop", "web", &note), "v1");
        assert_eq!(json["note"].as_str().unwrap(), "n".repeat(NOTE - 1));
        assert_eq!(cut("añb", 2), "a");
    }

    #[test]
    fn names_stay_names_when_cut() {
        let object = format!("{}.-{}", "a".repeat(234), "b".repeat(17));
        assert_eq!(object.len(), NAME);
        let name = name(&object, 1);
        assert_eq!(name, format!("{}.0000000000000001", "a".repeat(234)));
        assert!(name.len() <= NAME);
    }
}
