//! Parameters of lists and watches, validated as in k8s.io/apimachinery `validation.ValidateListOptions`.

use super::super::status::{Cause, Status};
use super::Query;

/// Requested version of a collection.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The newest version: no resourceVersion.
    Newest,
    /// Any version: resourceVersion 0.
    Any,
    /// This version or a newer one.
    NotOlderThan(u64),
    /// Exactly this version.
    Exactly(u64),
}

const MATCH: &str = "resourceVersionMatch";

/// Refuses invalid combinations.
pub(super) fn validate(query: &Query, watch: bool) -> Result<(), Status> {
    let causes = if watch { watch_causes(query) } else { list_causes(query) };
    if causes.is_empty() { Ok(()) } else { Err(invalid(&causes)) }
}

/// Version that a list or get requests.
pub(super) fn moment(query: &Query, limit: Option<usize>) -> Result<Moment, Status> {
    match query.get("resourceVersion") {
        "" => Ok(Moment::Newest),
        "0" => Ok(Moment::Any),
        text => {
            let revision =
                parse(text).map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
            let exact = query.get(MATCH) == "Exact" || (query.get(MATCH).is_empty() && limit.is_some());
            Ok(if exact { Moment::Exactly(revision) } else { Moment::NotOlderThan(revision) })
        }
    }
}

/// Parses a revision, with the error of Go's parser.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let why = || {
        format!(
            "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
        )
    };
    text.parse().map_err(|_| why())
}

/// Error for a revision in the future.
pub(super) fn too_large(revision: u64, current: u64) -> Status {
    let cause = Cause {
        reason: Some("ResourceVersionTooLarge".to_owned()),
        message: "Too large resource version".to_owned(),
        field: None,
    };
    let text = format!("Timeout: Too large resource version: {revision}, current: {current}");
    Status::new(504, "Timeout", text).because(&[cause]).retry_after(1)
}

fn list_causes(query: &Query) -> Vec<Cause> {
    let mut causes = Vec::new();
    let how = query.get(MATCH);
    if !how.is_empty() {
        if query.get("resourceVersion").is_empty() {
            causes.push(Cause::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !query.get("continue").is_empty() {
            causes
                .push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if how != "Exact" && how != "NotOlderThan" {
            causes.push(unsupported(how, &["Exact", "NotOlderThan", ""]));
        }
        if how == "Exact" && query.get("resourceVersion") == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(MATCH, why));
        }
    }
    if query.has("sendInitialEvents") {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    causes
}

fn watch_causes(query: &Query) -> Vec<Cause> {
    let mut causes = Vec::new();
    let how = query.get(MATCH);
    let initial = query.has("sendInitialEvents");
    if initial && how != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(MATCH, why));
    }
    if !how.is_empty() {
        if !initial {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if how != "NotOlderThan" {
            causes.push(unsupported(how, &["NotOlderThan"]));
        }
    }
    causes
}

fn unsupported(value: &str, supported: &[&str]) -> Cause {
    let supported = supported.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
    let text = format!("Unsupported value: \"{value}\": supported values: {supported}");
    Cause::new("FieldValueNotSupported", MATCH, text)
}

/// 422 about list options, which count as a kind of their own.
fn invalid(causes: &[Cause]) -> Status {
    options_invalid("ListOptions", causes)
}

/// 422 about the options of a request.
pub(super) fn options_invalid(kind: &str, causes: &[Cause]) -> Status {
    let kind = super::super::kind::Kind {
        group: "meta.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: String::new(),
        namespaced: false,
        subresources: Vec::new(),
        custom: false,
        schema: None,
    };
    Status::invalid(&kind, "", causes)
}
