//! Further field errors, and the 422 that reports them.

use serde_json::Value;

use crate::apiserver::kind::Kind;
use crate::apiserver::status::{Cause, Status};

/// `Unsupported value: ...: supported values: ...`
pub(super) fn unsupported(field: &str, value: &str, supported: &[&str]) -> Cause {
    let supported: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
    let message = format!("Unsupported value: {value:?}: supported values: {}", supported.join(", "));
    Cause::new("FieldValueNotSupported", field, message)
}

/// `Duplicate value: ...`
pub(super) fn duplicate(field: &str, value: &Value) -> Cause {
    Cause::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
}

/// Error 422 with these causes. Some fields are checked twice: `causes` then has them twice, but the message
/// only once.
pub(super) fn refused(kind: &Kind, name: &str, causes: &[Cause]) -> Status {
    let mut told: Vec<Cause> = Vec::new();
    for cause in causes {
        if !told.iter().any(|other| other.field == cause.field && other.message == cause.message) {
            told.push(cause.clone());
        }
    }
    Status::invalid(kind, name, &told).because(causes)
}
