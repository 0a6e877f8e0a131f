//! Kinds of objects and their names.

pub mod registry;

use serde_json::Value;

/// Kind of objects.
#[derive(Clone, Debug)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: String,
    /// Version in that group, such as `v1`.
    pub version: String,
    /// Name in objects, such as `Service`.
    pub kind: String,
    /// Name in URLs, such as `services`.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Parts that can be written separately, such as `status`.
    pub subresources: Vec<String>,
    /// Whether the kind is defined by a CustomResourceDefinition, which changes many answers.
    pub custom: bool,
    /// `openAPIV3Schema` of the definition.
    pub schema: Option<Value>,
}

impl Kind {
    /// `apiVersion` of objects of this kind.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Name of the resource in errors: `services`, `leases.coordination.k8s.io`.
    pub fn qualified_plural(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Name of the kind in validation errors: `Service`, `Lease.coordination.k8s.io`.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}
