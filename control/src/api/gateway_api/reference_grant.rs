//! `ReferenceGrant`: references from other namespaces that a namespace permits.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// References from other namespaces into its own that it permits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceGrant {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Permitted references.
    #[serde(default)]
    pub spec: ReferenceGrantSpec,
}

/// Permitted references: each of `from` may refer to each of `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReferenceGrantSpec {
    /// Objects that may refer.
    pub from: Vec<GrantFrom>,
    /// Objects that they may refer to.
    pub to: Vec<GrantTo>,
}

/// Objects of one kind in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrantFrom {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
}

/// Objects of one kind, or one of them, in the grant's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrantTo {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name; absent means every one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

crate::api::resource::resource!(
    ReferenceGrant,
    "gateway.networking.k8s.io",
    "v1",
    "referencegrants",
    NamespaceResourceScope
);
