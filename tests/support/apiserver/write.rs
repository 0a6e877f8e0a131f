//! What becomes of an object when somebody writes it. Knows nothing of HTTP or storage.
//!
//! A write goes the way of k8s.io/apiserver: the request becomes a candidate object (`candidate`), ownership of fields
//! is worked out (`managers`), the kind's strategy resets what this write cannot change, gives what is missing and
//! validates (`commit`, `resource`). Texts and orders are those of the recorded transcripts.

pub mod allocations;
mod candidate;
mod causes;
mod commit;
mod compare;
mod custom;
mod deletion;
mod endpoint_slice;
mod event;
mod fields;
mod lease;
mod managers;
mod merge;
mod metadata;
pub mod names;
mod patch;
mod resource;
mod schema;
mod service;
mod typed;

use serde_json::Value;

use super::kind::Kind;
use super::status::Status;
pub use allocations::Allocations;
pub use deletion::{Deletion, delete};
use resource::Resource;

/// How a write request wants to change the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH as RFC 6902.
    JsonPatch,
    /// PATCH as RFC 7396.
    MergePatch,
    /// PATCH with list merge keys.
    StrategicMergePatch,
    /// Server-side apply.
    Apply {
        /// Whether fields of other managers are taken over.
        force: bool,
    },
}

/// What happens to fields that the kind does not have (query `fieldValidation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and a `Warning` header tells each.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// What a write request wants, already parsed from URL, headers and body.
pub struct WriteRequest<'a> {
    pub kind: &'a Kind,
    pub namespace: Option<&'a str>,
    /// From the URL; `None` for POST. A `generateName` has already become `metadata.name`.
    pub name: Option<&'a str>,
    /// Such as `status`.
    pub subresource: Option<&'a str>,
    pub operation: Operation,
    pub body: Value,
    /// Query `fieldManager`, else User-Agent up to the first `/`.
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// Then nothing is allocated: placeholders are shown.
    pub dry_run: bool,
    /// RFC 3339, whole seconds, UTC.
    pub now: String,
    /// What admission makes of the object before it is looked at.
    pub mutation: Option<fn(&mut Value)>,
}

/// The outcome: the complete new object. The storage sets uid, resourceVersion and creationTimestamp of created
/// objects, and a new resourceVersion when the object differs from the live one. When the live object has a
/// deletionTimestamp and the new one no finalizers, the storage removes it.
#[derive(Debug)]
pub struct Written {
    pub object: Value,
    pub created: bool,
    /// Each becomes a `Warning` header.
    pub warnings: Vec<String>,
}

/// Applies a write to the live object. An object equal to the live one means that nothing was written.
pub fn write(
    request: &WriteRequest<'_>,
    live: Option<&Value>,
    allocator: &mut Allocations,
) -> Result<Written, Status> {
    let resource = Resource::of(request.kind);
    let mut candidate = candidate::of(request, &resource, live)?;
    if let Some(mutate) = request.mutation {
        mutate(&mut candidate.object);
    }
    match live {
        Some(live) => commit::update(request, &resource, candidate, live, allocator),
        None => commit::create(request, &resource, candidate, allocator),
    }
}
