//! What kinds of objects are served, and under which names.

pub mod registry;

use serde_json::Value;

/// One kind of objects.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version in that group, such as `v1`.
    pub version: String,
    /// The kind's name in objects, such as `Service`.
    pub kind: String,
    /// The kind's name in URLs, such as `services`.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What can be written beside the object itself, such as `status`.
    pub subresources: Vec<String>,
    /// Whether a CustomResourceDefinition made it, which changes many answers.
    pub custom: bool,
    /// The definition's `openAPIV3Schema`.
    pub schema: Option<Value>,
}

impl Kind {
    /// `apiVersion` as objects of this kind carry it.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The name that error texts use for the resource: `services`, `leases.coordination.k8s.io`.
    pub fn qualified_plural(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The name that validation errors use for the kind: `Service`, `Lease.coordination.k8s.io`.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}
