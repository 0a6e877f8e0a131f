//! What the guard has to know of each kind: its name, where the store has its objects, and what a change of it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::karmada::{Cluster, MultiClusterService, Work};
use crate::api::store::{Change, Delta, Objects};

/// Namespace and name; the namespace is empty for cluster-scoped kinds.
pub(super) type Key = (Arc<str>, Arc<str>);

/// A kind whose lists may be doubted.
pub(super) trait Guarded: 'static {
    type Object: Metadata<Ty = ObjectMeta> + 'static;
    const KIND: &'static str;
    /// Every object that the store has.
    fn there(objects: &Objects) -> impl Iterator<Item = &Arc<Self::Object>>;
    fn change(delta: Delta<Self::Object>) -> Change;
}

/// Services on a Karmada API server.
pub(super) enum Templates {}
/// Works with EndpointSlices of member clusters.
pub(super) enum CollectedWorks {}
/// Works that carry Services.
pub(super) enum ServiceWorks {}

/// Says all of it in one line per kind.
macro_rules! guarded {
    ($($kind:ty, $object:ty, $name:literal, $change:ident, |$objects:ident| $there:expr;)*) => {$(
        impl Guarded for $kind {
            type Object = $object;
            const KIND: &'static str = $name;

            fn there($objects: &Objects) -> impl Iterator<Item = &Arc<$object>> {
                $there
            }

            fn change(delta: Delta<$object>) -> Change {
                Change::$change(delta)
            }
        }
    )*};
}

guarded! {
    Service, Service, "Service", Services, |objects| objects.services.values();
    EndpointSlice, EndpointSlice, "EndpointSlice", Slices, |objects| objects.slices.values().flat_map(BTreeMap::values);
    Node, Node, "Node", Nodes, |objects| objects.nodes.values();
    MultiClusterService, MultiClusterService, "MultiClusterService", MultiClusterServices,
        |objects| objects.fleet.services.values();
    Templates, Service, "template Service", Templates, |objects| objects.fleet.templates.values();
    CollectedWorks, Work, "collected Work", CollectedWorks, |objects| works(objects, true);
    ServiceWorks, Work, "Work", ServiceWorks, |objects| works(objects, false);
    Cluster, Cluster, "Cluster", Clusters, |objects| objects.fleet.clusters.values();
}

fn works(objects: &Objects, collected: bool) -> impl Iterator<Item = &Arc<Work>> {
    let works = objects.fleet.works.values().flat_map(BTreeMap::values);
    works.filter(move |work| work.is_collected() == collected)
}

/// The names of `object`, without copying them: lists are long.
pub(super) fn names(object: &impl Metadata<Ty = ObjectMeta>) -> (&str, &str) {
    let metadata = object.metadata();
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// The names of `object`, to keep.
pub(super) fn key(object: &impl Metadata<Ty = ObjectMeta>) -> Key {
    let (namespace, name) = names(object);
    (namespace.into(), name.into())
}
