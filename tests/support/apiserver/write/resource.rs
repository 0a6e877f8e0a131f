//! Differences between kinds in writes, from the registry strategies of k8s.io/kubernetes.

use serde_json::{Value, json};

use super::custom::{self, Place};
use super::schema::{Schema, builtin, from_openapi};
use super::typed::{Decoded, decode};
use super::{endpoint_slice, event, lease, metadata, service};
use crate::apiserver::kind::Kind;
use crate::apiserver::status::Cause;

/// Set of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Service,
    EndpointSlice,
    Lease,
    Event,
    CoreEvent,
    Namespace,
    Node,
    Custom,
    /// Any other built-in kind, which is stored as sent.
    Other,
}

/// Kind with its rules.
pub(super) struct Resource<'a> {
    pub(super) kind: &'a Kind,
    pub(super) family: Family,
    pub(super) schema: Schema,
}

impl<'a> Resource<'a> {
    pub(super) fn of(kind: &'a Kind) -> Self {
        let family = match (kind.custom, kind.group.as_str(), kind.kind.as_str()) {
            (true, ..) => Family::Custom,
            (_, "", "Service") => Family::Service,
            (_, "", "Event") => Family::CoreEvent,
            (_, "", "Namespace") => Family::Namespace,
            (_, "", "Node") => Family::Node,
            (_, "events.k8s.io", "Event") => Family::Event,
            (_, "discovery.k8s.io", "EndpointSlice") => Family::EndpointSlice,
            (_, "coordination.k8s.io", "Lease") => Family::Lease,
            _ => Family::Other,
        };
        let schema = match (&kind.schema, family) {
            (Some(schema), Family::Custom) => from_openapi(schema),
            _ => builtin(kind),
        };
        Self { kind, family, schema }
    }

    /// `AllowUnconditionalUpdate`: whether PUT may leave out the resourceVersion.
    pub(super) fn unconditional(&self) -> bool {
        !matches!(self.family, Family::Lease | Family::Custom)
    }

    /// `AllowCreateOnUpdate`: whether PUT creates a missing object, also through `/status`.
    pub(super) fn put_creates(&self) -> bool {
        matches!(self.family, Family::Service | Family::Lease | Family::Event | Family::CoreEvent)
    }

    /// Whether there is a status subresource.
    pub(super) fn has_status(&self) -> bool {
        self.kind.subresources.iter().any(|name| name == "status")
    }

    /// Paths that a write cannot change.
    pub(super) fn ignored(&self, subresource: Option<&str>) -> &'static [&'static [&'static str]] {
        match (subresource, self.family) {
            (Some("status"), Family::Custom) => &[&["f:spec"], &["f:metadata"]],
            (Some("status"), _) => &[&["f:spec"]],
            (None, _) if self.has_status() => &[&["f:status"]],
            _ => &[],
        }
    }

    /// Initial value of a created object: a zero value in Go, or nothing.
    pub(super) fn blank(&self) -> Value {
        match self.family {
            Family::Custom => json!({"metadata": {}}),
            _ => super::typed::zero(&self.schema),
        }
    }

    /// Decodes an object of the kind: prunes it, checks the types of built-in kinds, and sets defaults.
    pub(super) fn decode(&self, object: &Value) -> Result<Decoded, String> {
        let mut decoded = match &self.kind.schema {
            Some(schema) if self.family == Family::Custom => decode_custom(schema, object)?,
            _ => decode(&self.schema, object)?,
        };
        let value = &mut decoded.value;
        match self.family {
            Family::Service => service::set_defaults(value),
            Family::EndpointSlice => endpoint_slice::set_defaults(value),
            _ => {}
        }
        value["apiVersion"] = json!(self.kind.api_version());
        value["kind"] = json!(self.kind.kind);
        Ok(decoded)
    }

    /// Changes of the storage format: empty lists of EndpointSlices become null.
    pub(super) fn store(&self, object: &mut Value) {
        if self.family == Family::EndpointSlice {
            for key in ["endpoints", "ports"] {
                if object[key].as_array().is_some_and(Vec::is_empty) {
                    object[key] = Value::Null;
                }
            }
        }
    }

    /// Validates a new or changed object.
    pub(super) fn check(&self, object: &Value, old: Option<&Value>, subresource: Option<&str>) -> Vec<Cause> {
        let mut causes = Vec::new();
        match (self.family, subresource, old) {
            (Family::Service, Some("status"), Some(_)) => causes.extend(service::check_status(object)),
            (Family::Service, ..) => {
                if let Some(old) = old {
                    causes.extend(service::check_class(Some(old), object));
                }
                causes.extend(metadata::check(self.kind, object));
                causes.extend(service::check(object));
            }
            _ => {
                causes.extend(metadata::check(self.kind, object));
                causes.extend(self.check_rest(object, old, subresource));
            }
        }
        causes
    }

    fn check_rest(&self, object: &Value, old: Option<&Value>, subresource: Option<&str>) -> Vec<Cause> {
        match (self.family, old) {
            (Family::Lease, _) => lease::check(object),
            (Family::EndpointSlice, old) => endpoint_slice::check(object, old),
            (Family::CoreEvent, _) => event::check_core(object),
            (Family::Event, None) => event::check(object),
            (Family::Event, Some(old)) => event::check_update(old, object),
            (Family::Custom, _) => self.check_custom(object, subresource),
            _ => Vec::new(),
        }
    }

    fn check_custom(&self, object: &Value, subresource: Option<&str>) -> Vec<Cause> {
        let Some(schema) = &self.kind.schema else { return Vec::new() };
        if subresource == Some("status") {
            let place = Place { field: "status".to_owned(), body: String::new() };
            let status = object.get("status");
            return status
                .map(|status| custom::check(&schema["properties"]["status"], status, &place))
                .unwrap_or_default();
        }
        custom::check(schema, object, &Place::default())
    }
}

fn decode_custom(schema: &Value, object: &Value) -> Result<Decoded, String> {
    let mut unknown = Vec::new();
    let mut value = object.clone();
    custom::prune(schema, &mut value, "", &mut unknown);
    custom::set_defaults(schema, &mut value);
    let metadata = decode(&super::schema::object_meta(), &object["metadata"])?;
    unknown.extend(metadata.unknown.into_iter().map(|path| format!("metadata.{path}")));
    value["metadata"] = metadata.value;
    Ok(Decoded { value, unknown })
}
