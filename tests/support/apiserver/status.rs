//! `metav1.Status`, the error format of an API server.
//!
//! Texts are those of k8s.io/apimachinery `pkg/api/errors`, as recorded.

use serde_json::{Map, Value, json};

use super::kind::Kind;

/// Error of one field.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Reason, such as `FieldValueInvalid`; some causes have none.
    pub reason: Option<String>,
    /// Text without the field.
    pub message: String,
    /// Path, such as `spec.ports[0].port`.
    pub field: Option<String>,
}

impl Cause {
    /// A cause with all three parts.
    pub fn new(reason: &str, field: &str, message: impl Into<String>) -> Self {
        Self { reason: Some(reason.to_owned()), message: message.into(), field: Some(field.to_owned()) }
    }

    /// `Invalid value: <value as JSON>: <why>`.
    pub fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
    }

    /// `Required value: <why>`, or just `Required value`.
    pub fn required(field: &str, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self::new("FieldValueRequired", field, message)
    }

    /// `Forbidden: <why>`.
    pub fn forbidden(field: &str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    fn to_json(&self) -> Value {
        let mut cause = Map::new();
        if let Some(reason) = &self.reason {
            cause.insert("reason".to_owned(), json!(reason));
        }
        cause.insert("message".to_owned(), json!(self.message));
        if let Some(field) = &self.field {
            cause.insert("field".to_owned(), json!(field));
        }
        Value::Object(cause)
    }
}

/// Error response.
#[derive(Clone, Debug)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason; a few errors have none.
    pub reason: Option<String>,
    /// Text for people.
    pub message: String,
    /// `details`, if any.
    pub details: Option<Map<String, Value>>,
    /// `metadata.continue`, only for expired list tokens.
    pub continue_token: Option<String>,
}

impl Status {
    /// Error without details. An empty `reason` is omitted.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let reason = (!reason.is_empty()).then(|| reason.to_owned());
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    /// Adds `details` with the object's name, group and kind. `kind` is used as it is, plural or not. Empty words
    /// are omitted.
    pub fn about(mut self, name: &str, group: &str, kind: &str) -> Self {
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), json!(value));
            }
        }
        self.details = Some(details);
        self
    }

    /// Adds `details.causes`.
    pub fn because(mut self, causes: &[Cause]) -> Self {
        let causes = causes.iter().map(Cause::to_json).collect();
        self.details.get_or_insert_default().insert("causes".to_owned(), Value::Array(causes));
        self
    }

    /// Adds `details.retryAfterSeconds`, which is also sent as the header `Retry-After`.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().insert("retryAfterSeconds".to_owned(), json!(seconds));
        self
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 500 without a reason, as for an unexpected error in Go code.
    pub fn plain_error(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 404: the object does not exist.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified_plural())).about(
            name,
            &kind.group,
            &kind.plural,
        )
    }

    /// 409: the name is in use.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified_plural()))
            .about(name, &kind.group, &kind.plural)
    }

    /// 409: `Operation cannot be fulfilled on ...: <why>`.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let text = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified_plural());
        Self::new(409, "Conflict", text).about(name, &kind.group, &kind.plural)
    }

    /// 409: the object has changed since.
    pub fn stale(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// 422: fields are invalid. A single cause is the message itself, several are in brackets.
    pub fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let told = |cause: &Cause| match &cause.field {
            Some(field) => format!("{field}: {}", cause.message),
            None => cause.message.clone(),
        };
        let told = match causes {
            [one] => told(one),
            many => format!("[{}]", many.iter().map(told).collect::<Vec<_>>().join(", ")),
        };
        Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {told}", kind.qualified_kind()))
            .about(name, &kind.group, &kind.kind)
            .because(causes)
    }

    /// The object that is sent.
    pub fn to_json(&self) -> Value {
        let metadata =
            self.continue_token.as_ref().map_or_else(|| json!({}), |token| json!({"continue": token}));
        let mut status =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure"});
        let fields = status.as_object_mut().expect("made as an object");
        fields.insert("message".to_owned(), json!(self.message));
        if let Some(reason) = &self.reason {
            fields.insert("reason".to_owned(), json!(reason));
        }
        if let Some(details) = &self.details {
            fields.insert("details".to_owned(), Value::Object(details.clone()));
        }
        fields.insert("code".to_owned(), json!(self.code));
        status
    }
}
