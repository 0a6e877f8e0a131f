//! Gateways that depend on an object: their projection reads it. The store marks them dirty when the object changes.

use std::sync::Arc;

use super::gateway_api::ListenerSet;
use super::objects::{GatewayApiObjects, Objects};
use super::owners::names_of;
use super::routes::{ParentKey, RouteObject, parents};
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
    let own = names_of(&set.metadata).0;
    if let Some(ParentKey::Gateway(key)) = ParentKey::of(&set.spec.parent_ref, own) {
        affected(key);
    }
}

/// The Gateways that a route names, directly or by a ListenerSet.
pub(super) fn of_route<T: RouteObject>(objects: &Objects, route: &T, affected: &mut Affected<'_>) {
    for parent in parents(route) {
        match parent {
            ParentKey::Gateway(key) => affected(key),
            ParentKey::ListenerSet(key) => {
                let set = objects.gateway_api.listener_sets.get(&key);
                set.into_iter().for_each(|set| of_listener_set(set, affected));
            }
        }
    }
}

/// The Gateways of routes with this Service or ServiceImport as a backend.
pub(super) fn of_backend(objects: &Objects, backend: &ServiceKey, affected: &mut Affected<'_>) {
    let GatewayApiObjects { tcp_routes, udp_routes, tls_routes, .. } = &objects.gateway_api;
    tcp_routes.of_backend(backend).for_each(|route| of_route(objects, &**route, affected));
    udp_routes.of_backend(backend).for_each(|route| of_route(objects, &**route, affected));
    tls_routes.of_backend(backend).for_each(|route| of_route(objects, &**route, affected));
}

/// The Gateways of routes with a backend in this namespace from another one, which its ReferenceGrants may permit.
pub(super) fn of_grants_in(objects: &Objects, namespace: &Arc<str>, affected: &mut Affected<'_>) {
    let GatewayApiObjects { tcp_routes, udp_routes, tls_routes, .. } = &objects.gateway_api;
    tcp_routes.across_into(namespace).for_each(|route| of_route(objects, &**route, affected));
    udp_routes.across_into(namespace).for_each(|route| of_route(objects, &**route, affected));
    tls_routes.across_into(namespace).for_each(|route| of_route(objects, &**route, affected));
}

/// The Gateways of a Namespace, which pools may select by its labels, and those whose own selectors may select it.
pub(super) fn of_namespace(objects: &Objects, namespace: &Arc<str>, affected: &mut Affected<'_>) {
    let by_labels = |gateway: &super::gateway_api::Gateway| {
        let spec = &gateway.spec;
        let of_listeners =
            spec.listeners.iter().filter_map(|it| it.allowed_routes.as_ref()?.namespaces.as_ref());
        let of_sets = spec.allowed_listeners.iter().filter_map(|it| it.namespaces.as_ref());
        of_listeners.chain(of_sets).any(|it| it.from.as_deref() == Some("Selector"))
    };
    for (key, gateway) in &objects.gateway_api.gateways {
        if key.namespace == *namespace || by_labels(gateway) {
            affected(key.clone());
        }
    }
    for set in objects.gateway_api.listener_sets.values() {
        let listeners = set.spec.listeners.iter();
        let mut namespaces = listeners.filter_map(|it| it.allowed_routes.as_ref()?.namespaces.as_ref());
        if namespaces.any(|it| it.from.as_deref() == Some("Selector")) {
            of_listener_set(set, affected);
        }
    }
}
