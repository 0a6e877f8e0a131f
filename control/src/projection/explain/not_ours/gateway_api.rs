//! Gateways that are not for this installation, and routes that name no Gateway among the objects.

use crate::api::gateway_api::{ListenerSet, ParentReference};
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::api::routes::{AnyRoute, ParentKey};
use crate::api::store::{Objects, ServiceKey};

/// One note for each of them; none without a `controller` whose GatewayClasses are ours.
pub(super) fn notes(objects: &Objects, controller: Option<&str>) -> Vec<Problem> {
    let Some(controller) = controller else { return Vec::new() };
    let known = &objects.gateway_api;
    let gateways = known.gateways.iter().filter_map(|(key, gateway)| {
        let class = gateway.spec.gateway_class_name.as_str();
        let of_class = known.classes.get(class).map(|class| class.spec.controller_name.as_str());
        let why = match of_class {
            Some(of_class) if of_class == controller => return None,
            Some(of_class) => format!(
                "GatewayClass {class:?} belongs to the controller {of_class:?}; this gateway serves classes of {controller:?}"
            ),
            None => format!("there is no GatewayClass {class:?}"),
        };
        Some(note(key.object(), "spec.gatewayClassName".to_owned(), why))
    });
    let tcp = known.tcp_routes.values().cloned().map(AnyRoute::Tcp);
    let udp = known.udp_routes.values().cloned().map(AnyRoute::Udp);
    let routes = tcp.chain(udp).flat_map(|route| without_parent(&route, objects));
    gateways.chain(routes).collect()
}

/// Notes about the parents of a route that do not exist.
fn without_parent(route: &AnyRoute, objects: &Objects) -> Vec<Problem> {
    let key = route.key();
    let missing = |(index, reference): (usize, &ParentReference)| {
        let parent = missing(ParentKey::of(reference, &key.namespace)?, objects)?;
        let why = format!("there is no {parent}, so the route serves nothing there");
        Some(note(key.object(), format!("spec.parentRefs[{index}]"), why))
    };
    route.spec().parent_refs.iter().enumerate().filter_map(missing).collect()
}

/// The parent, if it does not exist.
fn missing(parent: ParentKey, objects: &Objects) -> Option<ObjectRef> {
    let known = &objects.gateway_api;
    match parent {
        ParentKey::Gateway(gateway) => missing_gateway(&gateway, objects),
        ParentKey::ListenerSet(set) if known.listener_sets.contains_key(&set) => None,
        ParentKey::ListenerSet(set) => Some(ListenerSet::object(&set)),
    }
}

fn missing_gateway(gateway: &ServiceKey, objects: &Objects) -> Option<ObjectRef> {
    (!objects.gateway_api.gateways.contains_key(gateway)).then(|| gateway.object())
}

fn note(object: ObjectRef, field: String, message: String) -> Problem {
    Problem { object, reason: reason::NOT_SERVED, field, message, port: None }
}
