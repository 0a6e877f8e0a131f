//! Classification of an API server's answer, without I/O.

use std::fmt;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause};
use serde::de::DeserializeOwned;

use crate::backoff::MAX_RETRY_AFTER;
use crate::text::{MAX_MESSAGE_BYTES, cut_middle};

/// Largest length of the server's message in bytes: a validation error quotes the value, and a sentence is built around it.
const LONGEST_QUOTED: usize = MAX_MESSAGE_BYTES / 2;

/// Outcome of a request. Displays as the server's message, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::controller) enum ApiAnswer {
    /// The request succeeded. Holds the object as it is now.
    Done(Vec<u8>),
    /// The object does not exist.
    Gone,
    /// The server does not serve the kind, or not at this path.
    Undefined(String),
    /// An object with the name to be created exists already.
    Exists,
    /// The object has changed in the meantime, or another one has its name (409, a failed precondition, a 422 about the uid).
    Stale,
    /// Other field managers own fields of the apply.
    Conflict(Conflict),
    /// RBAC denies the request to our account.
    Forbidden(String),
    /// The server rejected the request itself.
    Refused(String),
    /// The server failed on this request, as it does if a webhook is down. Other requests may succeed.
    Failed(String),
    /// The server rejected our credentials.
    Unauthenticated(String),
    /// The server reports that it is temporarily unavailable. The write may have happened. `retry_after` is at most
    /// [`MAX_RETRY_AFTER`].
    Busy { reason: String, retry_after: Option<Duration> },
    /// There was no answer. The write may have happened.
    Unreachable { reason: String },
}

/// Field managers in a conflict, and their fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct Conflict {
    /// Field managers other than ours, sorted.
    pub(in crate::controller) rivals: Vec<String>,
    /// Paths of the fields that they own, sorted.
    pub(in crate::controller) fields: Vec<String>,
}

impl ApiAnswer {
    /// Classifies an answer to a request of `field_manager`. `retry_after` is the header's value.
    pub(super) fn read(code: u16, retry_after: Option<&str>, body: Vec<u8>, field_manager: &str) -> Self {
        let status = || serde_json::from_slice::<Status>(&body).unwrap_or_default();
        let text = || cut_middle(status().message.unwrap_or_else(|| plain(&body)), LONGEST_QUOTED);
        match code {
            200..=299 => Self::Done(body),
            404 if names_an_object(&status()) => Self::Gone,
            404 => Self::Undefined(text()),
            409 => conflict(status(), field_manager),
            403 if lacks_right(&status()) => Self::Forbidden(text()),
            422 if has_another_uid(&status()) => Self::Stale,
            401 => Self::Unauthenticated(text()),
            408 | 429 | 502..=504 => {
                let seconds = retry_after.and_then(|value| value.trim().parse().ok()).or_else(|| {
                    let details = status().details?;
                    details.retry_after_seconds.and_then(|seconds| u64::try_from(seconds).ok())
                });
                let retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
                Self::Busy { reason: text(), retry_after }
            }
            500.. => Self::Failed(text()),
            _ => Self::Refused(text()),
        }
    }

    /// Why the server accepts no request at the moment, and its `Retry-After`; `None` if it judged this request.
    pub(in crate::controller) fn outage(&self) -> Option<(&str, Option<Duration>)> {
        match self {
            Self::Unauthenticated(reason) | Self::Unreachable { reason } => Some((reason, None)),
            Self::Busy { reason, retry_after } => Some((reason, *retry_after)),
            _ => None,
        }
    }

    /// The object in a successful answer.
    pub(in crate::controller) fn object<T: DeserializeOwned>(self) -> Result<T, Self> {
        match self {
            Self::Done(body) => serde_json::from_slice(&body)
                .map_err(|error| Self::Failed(format!("the answer cannot be read: {error}"))),
            other => Err(other),
        }
    }
}

impl fmt::Display for ApiAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "done",
            Self::Gone => "it has no such object",
            Self::Exists => "there is an object of this name",
            Self::Stale => "the object has changed",
            Self::Conflict(_) => "another field manager holds it",
            Self::Undefined(message)
            | Self::Forbidden(message)
            | Self::Refused(message)
            | Self::Failed(message)
            | Self::Unauthenticated(message)
            | Self::Busy { reason: message, .. }
            | Self::Unreachable { reason: message } => message,
        })
    }
}

/// Whether authorization denied the request: its message names the user and the verb (apiserver
/// `responsewriters.ForbiddenMessage`). Admission rejects single objects with 403, too.
fn lacks_right(status: &Status) -> bool {
    status
        .message
        .as_deref()
        .is_some_and(|message| message.contains("User \"") && message.contains("\" cannot "))
}

/// Whether a patch carried the uid of an object that was deleted and created again. That fails validation and not a precondition,
/// because the field is immutable (apimachinery `ValidateObjectMetaAccessorUpdate`).
fn has_another_uid(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    causes.filter_map(|cause| cause.field.as_deref()).any(|field| field == "metadata.uid")
}

fn plain(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.trim().chars().take(200).collect()
}

/// Whether a 404 is about the object, and not about its kind (plain text, or a Status without a name) or the route to the server.
fn names_an_object(status: &Status) -> bool {
    let name = status.details.as_ref().and_then(|details| details.name.as_deref());
    name.is_some_and(|name| !name.is_empty())
}

fn conflict(status: Status, field_manager: &str) -> ApiAnswer {
    if status.reason.as_deref() == Some("AlreadyExists") {
        return ApiAnswer::Exists;
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let causes: Vec<_> =
        causes.into_iter().filter(|cause| cause.reason.as_deref() == Some("FieldManagerConflict")).collect();
    if causes.is_empty() {
        return ApiAnswer::Stale;
    }
    let mut held = Conflict::default();
    for cause in causes {
        let rival = rival(&cause);
        // A write of our own that was not an apply counts as another manager with the same name.
        if rival == field_manager {
            continue;
        }
        held.rivals.push(rival);
        held.fields.extend(cause.field.map(|field| field.trim_start_matches('.').to_owned()));
    }
    for list in [&mut held.rivals, &mut held.fields] {
        list.sort();
        list.dedup();
    }
    ApiAnswer::Conflict(held)
}

/// Parses the manager from `conflict with "NAME" with subresource "status" using v1 at 2026-01-01T00:00:00Z` (a
/// structured-merge-diff conflict as apimachinery `managedfields/internal/conflict.go` prints it; the name has Go's quoting).
fn rival(cause: &StatusCause) -> String {
    let message = cause.message.as_deref().unwrap_or_default();
    let quoted = message.strip_prefix("conflict with ").unwrap_or(message);
    let mut names = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
    match names.next() {
        Some(Ok(name)) => name,
        _ => quoted.to_owned(),
    }
}

#[cfg(test)]
mod tests;
