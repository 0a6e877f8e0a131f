//! `ListenerSet`: further listeners of a Gateway.

use std::sync::Arc;

use k8s_openapi::Resource as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::listener::{Listener, ListenerStatus};
use super::references::ParentReference;
use crate::api::collection::ObjectKey;
use crate::api::problem::ObjectRef;

/// Further listeners of a Gateway, which may be in another namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListenerSet {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The Gateway, and the listeners.
    #[serde(default)]
    pub spec: ListenerSetSpec,
    /// State of each listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ListenerSetStatus>,
}

impl ListenerSet {
    /// The ListenerSet with this name as Problems name it.
    pub fn object((namespace, name): &ObjectKey) -> ObjectRef {
        ObjectRef { kind: Self::KIND, namespace: Arc::clone(namespace), name: Arc::clone(name) }
    }
}

/// The Gateway that a ListenerSet extends, and the listeners.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSetSpec {
    /// The Gateway.
    pub parent_ref: ParentReference,
    /// 1 to 64 listeners with distinct names.
    pub listeners: Vec<Listener>,
}

/// Status of a ListenerSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerSetStatus {
    /// `Accepted`, `Programmed`, and conditions of others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// State of each listener of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
}

crate::api::resource::resource!(
    ListenerSet,
    "gateway.networking.k8s.io",
    "v1",
    "listenersets",
    NamespaceResourceScope
);
