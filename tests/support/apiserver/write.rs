//! Writes: the new object that results from a request. Independent of HTTP and storage.
//!
//! A write takes the steps of k8s.io/apiserver: the request becomes a candidate object (`candidate`), field ownership
//! is computed (`managers`), and the kind's strategy resets what this write cannot change, adds defaults and validates
//! (`commit`, `resource`). Texts and order are those of the recorded transcripts.

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

/// Type of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH in the format of RFC 6902.
    JsonPatch,
    /// PATCH in the format of RFC 7396.
    MergePatch,
    /// PATCH with list merge keys.
    StrategicMergePatch,
    /// Server-side apply.
    Apply {
        /// Whether to take over fields of other managers.
        force: bool,
    },
}

/// Treatment of unknown fields (query `fieldValidation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown fields are dropped.
    Ignore,
    /// Unknown fields are dropped, each with a `Warning` header.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// Write request, parsed from URL, headers and body.
pub struct WriteRequest<'a> {
    pub kind: &'a Kind,
    pub namespace: Option<&'a str>,
    /// Name in the URL; `None` for POST. A `generateName` has already become `metadata.name`.
    pub name: Option<&'a str>,
    /// Subresource, such as `status`.
    pub subresource: Option<&'a str>,
    pub operation: Operation,
    pub body: Value,
    /// Query `fieldManager`, else the User-Agent up to the first `/`.
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// Whether it is a dry run, which allocates nothing and shows placeholders.
    pub dry_run: bool,
    /// Current time: RFC 3339, whole seconds, UTC.
    pub now: String,
    /// Mutation by admission, before validation.
    pub mutation: Option<fn(&mut Value)>,
}

/// Result: the complete new object. The storage sets uid, resourceVersion and creationTimestamp of created objects,
/// and a new resourceVersion if the object differs from the live one. If the live object has a deletionTimestamp and
/// the new one no finalizers, the storage removes it.
#[derive(Debug)]
pub struct Written {
    pub object: Value,
    pub created: bool,
    /// Texts of `Warning` headers.
    pub warnings: Vec<String>,
}

/// Applies a write to the live object. If the result equals the live object, nothing is written.
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
