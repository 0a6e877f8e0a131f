//! What an API server's answer means. Pure.

use std::fmt;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause};
use serde::de::DeserializeOwned;

use crate::backoff::LONGEST_RETRY_AFTER;
use crate::text::{LONGEST_MESSAGE, cut_middle};

/// Of the server's message, in bytes: a validation error quotes the value, and a sentence is built around it.
const LONGEST_QUOTED: usize = LONGEST_MESSAGE / 2;

/// What became of a request. Prints as the server's own words, where there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::controller) enum ApiAnswer {
    /// It is done; the object as it is now.
    Done(Vec<u8>),
    /// The server does not have the object.
    Gone,
    /// The server does not serve the kind, or not at this path.
    Undefined(String),
    /// There is an object of the name that was to be created.
    Exists,
    /// The object has changed since, or is another one of the name (409, a failed precondition, a 422 about the uid).
    Stale,
    /// Other field managers hold what was applied.
    Conflict(Conflict),
    /// Our account may not.
    Forbidden(String),
    /// The server understood and does not want it.
    Refused(String),
    /// The server failed at this request, as it does where a webhook is down. Others may succeed.
    Failed(String),
    /// The server does not accept our credentials.
    Unauthenticated(String),
    /// The server answers that it is of no use right now; it may have done the write. `retry_after` is at most
    /// [`LONGEST_RETRY_AFTER`].
    Busy { reason: String, retry_after: Option<Duration> },
    /// There was no answer; the write may have been done.
    Unreachable { reason: String },
}

/// Who holds what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct Conflict {
    /// Field managers other than ours, sorted.
    pub(in crate::controller) rivals: Vec<String>,
    /// Paths that they hold, sorted.
    pub(in crate::controller) fields: Vec<String>,
}

impl ApiAnswer {
    /// Classifies an answer to a request of `field_manager`. `retry_after` is the header.
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
                let retry_after =
                    seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER));
                Self::Busy { reason: text(), retry_after }
            }
            500.. => Self::Failed(text()),
            _ => Self::Refused(text()),
        }
    }

    /// Why the server accepts nothing from us right now, and how long it wants to be left alone; none if it judged the request.
    pub(in crate::controller) fn outage(&self) -> Option<(&str, Option<Duration>)> {
        match self {
            Self::Unauthenticated(reason) | Self::Unreachable { reason } => Some((reason, None)),
            Self::Busy { reason, retry_after } => Some((reason, *retry_after)),
            _ => None,
        }
    }

    /// The object that a successful answer has.
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

/// Authorization names who cannot do what (apiserver `responsewriters.ForbiddenMessage`). Admission refuses single objects with
/// 403, too.
fn lacks_right(status: &Status) -> bool {
    status
        .message
        .as_deref()
        .is_some_and(|message| message.contains("User \"") && message.contains("\" cannot "))
}

/// A patch with the uid of an object that was deleted, and made again since, fails validation and no precondition: the field is
/// immutable (apimachinery `ValidateObjectMetaAccessorUpdate`).
fn has_another_uid(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    causes.filter_map(|cause| cause.field.as_deref()).any(|field| field == "metadata.uid")
}

fn plain(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.trim().chars().take(200).collect()
}

/// What is missing is the object, and neither its kind (plain text, or a Status without a name) nor the way to the server.
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
        // What we wrote ourselves other than by apply counts as another manager of the same name.
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

/// `conflict with "NAME" with subresource "status" using v1 at 2026-01-01T00:00:00Z` (structured-merge-diff's conflicts as
/// apimachinery `managedfields/internal/conflict.go` prints them; the name is quoted as Go does).
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
