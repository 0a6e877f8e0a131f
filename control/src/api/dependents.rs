//! Gateways that depend on an object: their projection reads it. The store marks them dirty when the object changes.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::gateway_api::{Listener, ListenerSet, NamespacesFrom, RouteSpec};
use super::objects::Objects;
use super::routes::{ParentKey, parents};
use super::service_key::ServiceKey;

/// Receives each dependent; may be called several times for one.
type Affected<'a> = dyn FnMut(ServiceKey) + 'a;

/// Gateways of a class.
pub(super) fn of_class(objects: &Objects, class: &Arc<str>, affected: &mut Affected<'_>) {
    let gateways = objects.gateway_api.gateways.iter();
    let of_it = gateways.filter(|(_, gateway)| *gateway.spec.gateway_class_name == **class);
    of_it.for_each(|(key, _)| affected(key.clone()));
}

/// The Gateway of a ListenerSet.
pub(super) fn of_listener_set(set: &ListenerSet, affected: &mut Affected<'_>) {
    if let Some(ParentKey::Gateway(key)) = ParentKey::of_set(set) {
        affected(key);
    }
}

/// The Gateways that a route names, directly or by a ListenerSet.
pub(super) fn of_route(
    objects: &Objects,
    metadata: &ObjectMeta,
    spec: &RouteSpec,
    affected: &mut Affected<'_>,
) {
    let gateways = parents(metadata, spec).filter_map(|parent| objects.gateway_api.gateway_behind(parent));
    gateways.for_each(affected);
}

/// The Gateways of routes with this Service or ServiceImport as a backend.
pub(super) fn of_backend(objects: &Objects, backend: &ServiceKey, affected: &mut Affected<'_>) {
    for route in objects.gateway_api.routes_of_backend(backend) {
        of_route(objects, route.metadata(), route.spec(), affected);
    }
}

/// The Gateways of routes with a backend in this namespace from another one, which its ReferenceGrants may permit.
pub(super) fn of_grants_in(objects: &Objects, namespace: &Arc<str>, affected: &mut Affected<'_>) {
    for route in objects.gateway_api.routes_across_into(namespace) {
        of_route(objects, route.metadata(), route.spec(), affected);
    }
}

/// The Gateways of a Namespace, which pools may select by its labels, and those whose own selectors may select it.
pub(super) fn of_namespace(objects: &Objects, namespace: &Arc<str>, affected: &mut Affected<'_>) {
    let by_labels = |listeners: &[Listener]| {
        listeners.iter().filter_map(Listener::namespaces).any(NamespacesFrom::is_by_labels)
    };
    for (key, gateway) in &objects.gateway_api.gateways {
        let of_sets = gateway.spec.allowed_listeners.as_ref().and_then(|it| it.namespaces.as_ref());
        if key.namespace == *namespace
            || by_labels(&gateway.spec.listeners)
            || of_sets.is_some_and(NamespacesFrom::is_by_labels)
        {
            affected(key.clone());
        }
    }
    for set in objects.gateway_api.listener_sets.values().filter(|set| by_labels(&set.spec.listeners)) {
        of_listener_set(set, affected);
    }
}
