//! Explanation of listeners and routes: what each parentRef of a route leads to, and the endpoints of each part of a split.

use std::sync::Arc;

use sheave_model::{Frontend, FrontendAddr, FrontendSource, RefusedPart, Share, SplitPart};

use super::{ClientSide, FrontendExplanation, explain_endpoints};
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{BackendReference, GROUP, ListenerSet, ParentReference, RouteKey};
use crate::api::objects::Objects;
use crate::api::routes::{AnyRoute, ParentKey};
use crate::api::service_key::ServiceKey;
use crate::projection::gateway_api::outcome::RouteParent;
use crate::projection::plan::{ListenerPlan, PartPlan};
use crate::projection::{Projector, gateway_of};

/// A part of a split, explained for one class of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartExplanation {
    /// Name of the part, such as `Service shop/web:80`.
    pub name: Arc<str>,
    /// Namespace of its backend; `None` if the part is refused.
    pub namespace: Option<Arc<str>>,
    /// Weight as in the route.
    pub weight: u32,
    /// Its share of new connections.
    pub share: Share,
    /// Targets, or why its share is refused.
    pub target: Result<FrontendExplanation, RefusedPart>,
}

/// Result of a parentRef of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentExplanation<'a> {
    /// The parentRef as text, such as `Gateway shop/gw, sectionName tcp`.
    pub parent: String,
    /// The conditions of the route there; empty if the parent is missing or not ours.
    pub conditions: Vec<&'a DesiredCondition>,
}

impl Projector {
    /// The frontends of a Gateway's listeners.
    pub fn listener_frontends(&self, gateway: &ServiceKey) -> &[Arc<Frontend>] {
        let known = self.services.get(gateway).filter(|_| gateway.source == FrontendSource::Gateway);
        known.map(|known| known.frontends.as_slice()).unwrap_or_default()
    }

    /// Result of each parentRef of a route, in the order of the spec.
    pub fn explain_parents(&self, route: &AnyRoute, objects: &Objects) -> Vec<ParentExplanation<'_>> {
        let key = route.key();
        let explain = |reference: &ParentReference| {
            let found = self.route_parent(&key, reference, objects);
            ParentExplanation {
                parent: parent_name(reference, &key.namespace),
                conditions: found.into_iter().flat_map(RouteParent::conditions).collect(),
            }
        };
        route.spec().parent_refs.iter().map(explain).collect()
    }

    /// The frontends that a route serves: those of listeners, or of its server names there.
    pub fn route_frontends(&self, route: &AnyRoute, objects: &Objects) -> Vec<Arc<Frontend>> {
        let key = route.key();
        let gateways = route.spec().parent_refs.iter();
        let mut gateways: Vec<ServiceKey> =
            gateways.filter_map(|reference| gateway_of(reference, &key.namespace, objects)).collect();
        gateways.sort_unstable();
        gateways.dedup();
        let name = key.to_string();
        let serves = |it: &&Frontend| it.split.as_ref().is_some_and(|split| *split.route == *name);
        let frontends = gateways.iter().flat_map(|gateway| self.listener_frontends(gateway));
        frontends.filter(|it| it.targets().any(|target| serves(&target))).cloned().collect()
    }

    /// Explains the parts of a listener's frontend, in the order of the route.
    pub fn explain_parts(
        &self,
        objects: &Objects,
        frontend: &Frontend,
        side: ClientSide,
    ) -> Vec<PartExplanation> {
        let (Some(split), Some(listener)) = (&frontend.split, self.listener_plan(frontend)) else {
            return Vec::new();
        };
        let explain = |(part, planned): (&SplitPart, &PartPlan)| {
            let target = match (part.pool(), &planned.target) {
                (Some(pool), Ok(target)) => {
                    let plan = &target.plan;
                    let members = target.members(objects.slices.get(plan.key()), &self.cluster);
                    let port = plan.ports.first().ok_or(RefusedPart::BackendNotFound);
                    port.map(|port| explain_endpoints(self, plan, &members, (pool, port), side))
                }
                (_, Err(refused)) => Err(*refused),
                (None, Ok(_)) => Err(RefusedPart::BackendNotFound),
            };
            PartExplanation {
                name: Arc::clone(&part.name),
                namespace: part.pool().map(|pool| Arc::clone(&pool.service.namespace)),
                weight: part.weight,
                share: split.share(part.weight.into()),
                target,
            }
        };
        split.parts.iter().zip(&listener.parts).map(explain).collect()
    }

    fn listener_plan(&self, frontend: &Frontend) -> Option<&ListenerPlan> {
        let service = &frontend.service;
        let plan = &self.services.get(&ServiceKey::from(service))?.gateway.as_ref()?.plan;
        let FrontendAddr { port, protocol, .. } = frontend.addr;
        let at = plan.ports.iter().position(|it| (it.port, it.protocol) == (port, protocol))?;
        let socket = plan.gateway.as_ref()?.listeners.get(at)?;
        let Some(names) = &socket.names else { return Some(socket) };
        let route = frontend.split.as_ref().map(|split| &split.route);
        let is_it = |it: &&Arc<ListenerPlan>| {
            it.route.as_ref() == route && it.plan.ports.iter().any(|port| port.name == service.port_name)
        };
        names.targets.iter().find(is_it).map(AsRef::as_ref)
    }
}

/// A parentRef of an object in namespace `own`, as text.
fn parent_name(reference: &ParentReference, own: &str) -> String {
    let object = match ParentKey::of(reference, own) {
        Some(ParentKey::Gateway(key)) => key.object().to_string(),
        Some(ParentKey::ListenerSet(set)) => ListenerSet::object(&set).to_string(),
        None => {
            let kind = reference.kind.as_deref().unwrap_or("Gateway");
            let group = reference.group.as_deref().unwrap_or(GROUP);
            format!("{kind}.{group} {}/{}", reference.namespace_in(own), reference.name)
        }
    };
    let section = reference.section_name.as_ref().map(|name| format!(", sectionName {name}"));
    let port = reference.port.map(|port| format!(", port {port}"));
    [Some(object), section, port].into_iter().flatten().collect()
}

/// The routes that name a Service as a backend.
pub fn routes_to(service: &ServiceKey, objects: &Objects) -> Vec<RouteKey> {
    let is_service = |it: &BackendReference| {
        it.kind.as_deref().is_none_or(|kind| kind == "Service")
            && it.group.as_deref().unwrap_or_default().is_empty()
    };
    let names = |route: &AnyRoute| {
        let key = route.key();
        let mut refs = route.spec().rules.iter().flat_map(|rule| &rule.backend_refs);
        refs.any(|it| {
            is_service(it)
                && it.name == *service.name
                && it.namespace_in(&key.namespace) == &*service.namespace
        })
    };
    objects.gateway_api.routes_of_backend(service).filter(names).map(|route| route.key()).collect()
}
