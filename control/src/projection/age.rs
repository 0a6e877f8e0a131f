//! Age of an object, by which older ones come first.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Age of an object. One without a creation time (a manifest that was never on an API server) is younger than all that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age {
    undated: bool,
    created: Option<Timestamp>,
}

impl Age {
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self { undated: created.is_none(), created }
    }
}
