//! Content negotiation.

use super::super::status::Status;
use super::Query;

/// Form in which objects are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Whole objects.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
}

const WHOLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAM: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

impl Form {
    /// First supported form in the `Accept` header. Tables, YAML and protobuf are not supported.
    pub(super) fn negotiate(accept: &str, verb: &str) -> Result<Self, Status> {
        accept.split(',').find_map(form_of).ok_or_else(|| {
            let kinds = if verb == "list" || verb == "watch" {
                format!("{WHOLE}, {STREAM}")
            } else {
                WHOLE.to_owned()
            };
            let text = format!("406: Not Acceptable\n\nAvailable representations: {kinds}");
            Status::new(406, "NotAcceptable", text).about("", "", "")
        })
    }
}

fn form_of(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    if !["application/json", "application/*", "*/*"].contains(&media) {
        return None;
    }
    match parts.find_map(|parameter| parameter.strip_prefix("as=")) {
        None => Some(Form::Whole),
        Some(form) if form.starts_with("PartialObjectMetadata") => Some(Form::Metadata),
        Some(_) => None,
    }
}

/// Whether to indent the answer for a human reader.
pub(super) fn wants_pretty(query: &Query, user_agent: &str) -> bool {
    if query.has("pretty") {
        return query.get("pretty").is_empty() || query.is_on("pretty");
    }
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|person| user_agent.starts_with(person))
}
