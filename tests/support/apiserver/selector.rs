//! Label and field selectors, as in k8s.io/apimachinery `pkg/labels` and `pkg/fields`.

mod labels;

use super::kind::registry::Served;
use super::status::Status;
use super::store::Entry;
use super::store::entry::selectable;

use labels::Requirement;

/// Selectors of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    /// Field, value, and whether it must be equal.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    /// Parses the query parameters `labelSelector` and `fieldSelector`.
    pub(super) fn parse(served: &Served, labels: &str, fields: &str) -> Result<Self, Status> {
        let labels = labels::parse(labels).map_err(Status::bad_request)?;
        let fields = parse_fields(fields)?;
        let known: Vec<String> = selectable(served).into_iter().map(|(name, _)| name).collect();
        for (field, ..) in &fields {
            if !["metadata.name", "metadata.namespace"].contains(&field.as_str()) && !known.contains(field) {
                return Err(unknown_field(served, field));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Whether everything matches.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object matches.
    pub(super) fn matches(&self, entry: &Entry) -> bool {
        let value = |field: &str| {
            entry.fields.iter().find(|(name, _)| name == field).map_or("", |(_, value)| value.as_str())
        };
        self.labels.iter().all(|requirement| requirement.matches(&entry.labels))
            && self.fields.iter().all(|(field, wanted, equal)| (value(field) == wanted) == *equal)
    }
}

fn parse_fields(text: &str) -> Result<Vec<(String, String, bool)>, Status> {
    let terms = text.split(',').filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = term.split_once("==") {
                (field, value, true)
            } else if let Some((field, value)) = term.split_once('=') {
                (field, value, true)
            } else {
                let text = format!("invalid field selector: '{term}'; can't understand '{term}'");
                return Err(Status::bad_request(text));
            };
            Ok((field.to_owned(), value.to_owned(), equal))
        })
        .collect()
}

/// Error for an unknown field. Kinds with their own conversion function have another text than the default.
fn unknown_field(served: &Served, field: &str) -> Status {
    if selectable(served).is_empty() && !served.kind.custom {
        let only = r#"only "metadata.name", "metadata.namespace""#;
        return Status::bad_request(format!("\"{field}\" is not a known field selector: {only}"));
    }
    Status::bad_request(format!("field label not supported: {field}"))
}
