//! What the guard has to know of each kind: its name, and where the store has its objects.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};

use crate::store::Objects;

/// Namespace and name; the namespace is empty for cluster-scoped kinds.
pub(super) type Key = (Arc<str>, Arc<str>);

/// A kind whose lists may be doubted.
pub(super) trait Guarded: Resource + Metadata<Ty = ObjectMeta> + Sized + 'static {
    /// Every object that the store has.
    fn there(objects: &Objects) -> impl Iterator<Item = &Arc<Self>>;
}

impl Guarded for Service {
    fn there(objects: &Objects) -> impl Iterator<Item = &Arc<Self>> {
        objects.services.values()
    }
}

impl Guarded for EndpointSlice {
    fn there(objects: &Objects) -> impl Iterator<Item = &Arc<Self>> {
        objects.slices.values().flat_map(|slices| slices.values())
    }
}

impl Guarded for Node {
    fn there(objects: &Objects) -> impl Iterator<Item = &Arc<Self>> {
        objects.nodes.values()
    }
}

/// The names of `object`, without copying them: lists are long.
pub(super) fn names<T: Guarded>(object: &T) -> (&str, &str) {
    let metadata = object.metadata();
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// The names of `object`, to keep.
pub(super) fn key<T: Guarded>(object: &T) -> Key {
    let (namespace, name) = names(object);
    (namespace.into(), name.into())
}
