//! Passes the desired status of GatewayClasses, Gateways, ListenerSets and routes to the status writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sheave_model::{FrontendAddr, FrontendSource};

use super::LeaderTerm;
use crate::api::gateway_api::{Gateway, ParentReference, RouteKey, RouteKind};
use crate::api::kinds::{GatewayClasses, Gateways, ListenerSets, object_key};
use crate::api::names::FROM_GATEWAY_NODES;
use crate::api::object::ApiObject;
use crate::api::objects::{GatewayApiObjects, ObjectKey};
use crate::api::routes::ParentKey;
use crate::api::store::{Change, Delta, ServiceKey};
use crate::controller::desired_status::DesiredStatus;
use crate::controller::gateway_status::class::{self, DesiredClass};
use crate::controller::gateway_status::gateway::{self, DesiredGateway};
use crate::controller::gateway_status::listener_set::DesiredListenerSet;
use crate::controller::gateway_status::route_parents::DesiredParents;
use crate::controller::gateway_status::{GatewayApiKey, GatewayApiSubject};
use crate::controller::port_errors::PortFailure;
use crate::projection::gateway_api::conditions::{GatewayConditions, LiveState};
use crate::projection::gateway_api::outcome::GatewayOutcome;

/// Whether there are no other objects of a kind than those in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownKinds {
    classes: bool,
    gateways: bool,
    sets: bool,
}

/// Gateway statuses published in this term, and changes since.
#[derive(Debug, Default)]
pub(super) struct GatewayStatuses {
    /// Whether everything was published once, and of which kinds all objects were known then.
    started: Option<KnownKinds>,
    /// Objects that an API server sent since the last time, even if they look unchanged: others may have undone a write unnoticed.
    changed: BTreeSet<GatewayApiKey>,
    /// The outcomes that were published.
    published: BTreeMap<ServiceKey, Arc<GatewayOutcome>>,
    /// Gateways without a class, which keep their status.
    undecided: BTreeSet<ServiceKey>,
    /// ListenerSets whose status was published.
    sets: BTreeSet<ObjectKey>,
    /// GatewayClasses whose status was published.
    classes: BTreeSet<Arc<str>>,
}

impl GatewayStatuses {
    /// Records the objects of the Gateway API in a change from an API server.
    pub(super) fn changed(&mut self, change: &Change) {
        let changed = &mut self.changed;
        match change {
            Change::GatewayClasses(delta) => {
                add(delta, changed, |(_, name)| GatewayApiKey::Class(name));
            }
            Change::Gateways(delta) => add(delta, changed, |(namespace, name)| {
                GatewayApiKey::Gateway(ServiceKey::gateway(&namespace, &name))
            }),
            Change::ListenerSets(delta) => add(delta, changed, GatewayApiKey::ListenerSet),
            Change::TcpRoutes(delta) => add(delta, changed, route_of(RouteKind::Tcp)),
            Change::UdpRoutes(delta) => add(delta, changed, route_of(RouteKind::Udp)),
            Change::TlsRoutes(delta) => add(delta, changed, route_of(RouteKind::Tls)),
            _ => {}
        }
    }
}

fn route_of(kind: RouteKind) -> impl Fn(ObjectKey) -> GatewayApiKey {
    move |(namespace, name)| GatewayApiKey::Route(RouteKey { namespace, name, kind })
}

/// Adds the keys of the objects in a change.
fn add<T: ApiObject>(
    delta: &Delta<T>,
    changed: &mut BTreeSet<GatewayApiKey>,
    key: impl Fn(ObjectKey) -> GatewayApiKey,
) {
    match delta {
        Delta::Put(object) => {
            changed.insert(key(object_key(object.meta())));
        }
        Delta::Gone { namespace, name } => {
            changed.insert(key((Arc::clone(namespace), Arc::clone(name))));
        }
        Delta::All(objects) => changed.extend(objects.iter().map(|object| key(object_key(object.meta())))),
    }
}

/// Objects to publish.
#[derive(Debug, Default)]
struct GatewayBatch {
    classes: bool,
    gateways: BTreeSet<ServiceKey>,
    sets: BTreeSet<ObjectKey>,
    routes: BTreeSet<RouteKey>,
}

impl GatewayBatch {
    fn add(&mut self, key: GatewayApiKey, objects: &GatewayApiObjects) {
        match key {
            GatewayApiKey::Class(_) => self.classes = true,
            GatewayApiKey::Gateway(key) => {
                self.gateways.insert(key);
            }
            GatewayApiKey::ListenerSet(set) => {
                self.gateways.extend(objects.gateway_behind(ParentKey::ListenerSet(set.clone())));
                self.sets.insert(set);
            }
            GatewayApiKey::Route(route) => {
                self.routes.insert(route);
            }
        }
    }

    fn add_all(&mut self, objects: &GatewayApiObjects) {
        self.classes = true;
        self.gateways.extend(objects.gateways.keys().cloned());
        self.sets.extend(objects.listener_sets.keys().cloned());
        self.routes.extend(objects.routes().map(|route| route.key()));
    }
}

impl LeaderTerm {
    /// Publishes the status of these Gateways, and of all objects of the Gateway API that they concern or that have changed.
    pub(super) fn publish_gateways(&mut self, touched: &BTreeSet<ServiceKey>) {
        let Some(controller) = self.options.projection.gateway_controller.clone() else { return };
        let local = &self.pipeline.sources.local;
        if self.gateway_statuses.started.is_none() && !local.gateway_api_is_listed() {
            // A route whose kind is not listed yet would look detached. Everything is published once the list is there.
            return;
        }
        let known = KnownKinds {
            classes: local.knows_all::<GatewayClasses>(),
            gateways: local.knows_all::<Gateways>(),
            sets: local.knows_all::<ListenerSets>(),
        };
        let mut batch = GatewayBatch::default();
        let objects = &self.pipeline.objects().gateway_api;
        for key in std::mem::take(&mut self.gateway_statuses.changed) {
            batch.add(key, objects);
        }
        if self.gateway_statuses.started.replace(known) != Some(known) {
            // What was kept because of an unreadable kind may go now.
            batch.add_all(objects);
        }
        batch.gateways.extend(touched.iter().filter(|key| key.source == FrontendSource::Gateway).cloned());
        batch.classes |= !batch.gateways.is_empty();
        let mut left = false;
        for key in &batch.gateways {
            let before = self.gateway_statuses.published.remove(key);
            let now = self.pipeline.projector.gateway(key).cloned();
            concerned(before.as_deref(), now.as_deref(), &mut batch.sets, &mut batch.routes);
            self.publish_gateway(key, now.as_ref());
            if now.is_none() && self.is_undecided(key) {
                self.gateway_statuses.undecided.insert(key.clone());
            } else {
                left |= self.gateway_statuses.undecided.remove(key);
            }
            if let Some(now) = now {
                self.gateway_statuses.published.insert(key.clone(), now);
            }
        }
        if left {
            // What was kept with it may go.
            let objects = &self.pipeline.objects().gateway_api;
            batch.sets.extend(objects.listener_sets.keys().cloned());
            batch.routes.extend(objects.routes().map(|route| route.key()));
        }
        batch.sets.iter().for_each(|set| self.release_listener_set(set));
        batch.routes.iter().for_each(|route| self.publish_route(route, &controller));
        if batch.classes {
            self.publish_classes(&controller);
        }
    }

    /// Publishes a Gateway and its ListenerSets.
    fn publish_gateway(&mut self, key: &ServiceKey, outcome: Option<&Arc<GatewayOutcome>>) {
        let target = GatewayApiKey::Gateway(key.clone());
        let Some(gateway) = self.pipeline.objects().gateway_api.gateways.get(key).cloned() else {
            self.writer.forget_gateway_api(target);
            return;
        };
        let Some(outcome) = outcome else {
            if self.is_undecided(key) {
                self.writer.forget_gateway_api(target);
            } else {
                self.writer.set_gateway_api(target, GatewayApiSubject::Gateway(gateway, None));
            }
            return;
        };
        if self.lacks_sets_of(&gateway) {
            // Without its ListenerSets, it would lose their ports.
            self.writer.forget_gateway_api(target);
            return;
        }
        let Some((live, conditions)) = self.live_conditions(key, &gateway, outcome) else { return };
        let sets = conditions.sets.clone();
        let desired = DesiredGateway::new(&gateway, conditions, &live);
        if self.awaited_addresses().is_some() && !desired.is_published(key, self.pipeline.objects()) {
            // Objects that are not known yet may have these addresses or ports.
            return;
        }
        let subject = GatewayApiSubject::Gateway(gateway, Some(Arc::new(desired)));
        self.writer.set_gateway_api(target, subject);
        for (set_key, conditions, listeners) in sets {
            let Some(set) = self.pipeline.objects().gateway_api.listener_sets.get(&set_key).cloned() else {
                continue;
            };
            let desired = DesiredListenerSet::new(&set, conditions, listeners);
            let subject = GatewayApiSubject::ListenerSet(set, Some(Arc::new(desired)));
            self.gateway_statuses.sets.insert(set_key.clone());
            self.writer.set_gateway_api(GatewayApiKey::ListenerSet(set_key), subject);
        }
    }

    /// Whether a Gateway keeps its status because its class is missing: only a class with another controller releases it. One that is
    /// missing may be unreadable or come again.
    fn is_undecided(&self, key: &ServiceKey) -> bool {
        let GatewayApiObjects { gateways, classes, .. } = &self.pipeline.objects().gateway_api;
        gateways.get(key).is_some_and(|gateway| {
            gateway.metadata.deletion_timestamp.is_none()
                && !classes.contains_key(gateway.spec.gateway_class_name.as_str())
        })
    }

    /// Whether ListenerSets are attached to the Gateway that cannot be read.
    fn lacks_sets_of(&self, gateway: &Gateway) -> bool {
        let attached = gateway.status.as_ref().and_then(|status| status.attached_listener_sets);
        attached.is_some_and(|attached| attached > 0)
            && !self.pipeline.sources.local.knows_all::<ListenerSets>()
    }

    /// Whether an object without a Gateway of ours may yet have one: behind this parent is one that keeps its status, or one may be behind
    /// it that cannot be read.
    fn may_be_ours(&self, parent: ParentKey) -> bool {
        let objects = &self.pipeline.objects().gateway_api;
        if let ParentKey::ListenerSet(set) = &parent
            && !objects.listener_sets.contains_key(set)
        {
            return !self.pipeline.sources.local.knows_all::<ListenerSets>();
        }
        let Some(key) = objects.gateway_behind(parent) else { return false };
        match objects.gateways.contains_key(&key) {
            true => self.is_undecided(&key),
            false => !self.pipeline.sources.local.knows_all::<Gateways>(),
        }
    }

    /// Known state of a Gateway's frontends, and the conditions that follow.
    fn live_conditions(
        &self,
        key: &ServiceKey,
        gateway: &Gateway,
        outcome: &GatewayOutcome,
    ) -> Option<(DesiredStatus, GatewayConditions)> {
        let projector = &self.pipeline.projector;
        let status = projector.status(key)?;
        let (problems, programmed) = (projector.problems_of(key), gateway::is_programmed(gateway));
        let mut live = self.gateway_failures.desired_status(key, status, problems, programmed);
        let failures = live.failed_ports.iter();
        let failed: BTreeSet<FrontendAddr> = failures.clone().filter_map(PortFailure::addr).collect();
        let closed = failures.filter(|it| it.everywhere).filter_map(PortFailure::addr).collect();
        // What is served stays so: a node on which only the definitions are missing goes on with what it knows.
        let is_served = programmed || gateway::is_served(gateway);
        let unaware = if is_served { None } else { self.gateway_failures.unaware_of_gateways() };
        let state = LiveState {
            status,
            problems: &live.problems,
            nodes: live.gateways > 0,
            unaware,
            failed: &failed,
            closed: &closed,
        };
        let conditions = outcome.conditions(&state);
        // Others may not be visible to those who can read the Gateway.
        let object = key.object();
        live.problems.retain(|problem| problem.object == object);
        live.faults = projector.faults(key);
        live.announcement = self.announcements.of(key);
        let shows_origin = gateway.condition(FROM_GATEWAY_NODES).is_some();
        live.node_families =
            (status.node_families.name().is_some() || shows_origin).then_some(status.node_families);
        Some((live, conditions))
    }

    /// Releases a ListenerSet that belongs to no Gateway of ours, if it did in this term or belongs to none at all.
    fn release_listener_set(&mut self, key: &ObjectKey) {
        let target = GatewayApiKey::ListenerSet(key.clone());
        let objects = &self.pipeline.objects().gateway_api;
        let gateway = objects.gateway_behind(ParentKey::ListenerSet(key.clone()));
        let is_orphan = gateway.as_ref().is_none_or(|it| !objects.gateways.contains_key(it));
        let outcome = gateway.and_then(|it| self.gateway_statuses.published.get(&it));
        if outcome.is_some_and(|outcome| outcome.sets.contains_key(key)) {
            return;
        }
        match objects.listener_sets.get(key).cloned() {
            None => {
                self.gateway_statuses.sets.remove(key);
                self.writer.forget_gateway_api(target);
            }
            Some(_) if self.may_be_ours(ParentKey::ListenerSet(key.clone())) => {
                self.writer.forget_gateway_api(target);
            }
            // Its Gateway may have gone while nobody led. The writer clears each object once, and changes nothing of others.
            Some(set) if self.gateway_statuses.sets.contains(key) || is_orphan => {
                self.writer.set_gateway_api(target, GatewayApiSubject::ListenerSet(set, None));
            }
            Some(_) => {}
        }
    }

    fn publish_route(&mut self, key: &RouteKey, controller: &Arc<str>) {
        let target = GatewayApiKey::Route(key.clone());
        let objects = self.pipeline.objects();
        let Some(route) = objects.gateway_api.route(key) else {
            self.writer.forget_gateway_api(target);
            return;
        };
        let parents = self.pipeline.projector.route_parents(&route, objects);
        let desired = DesiredParents::new(&route, controller, parents);
        let may_be_ours = |reference: &ParentReference| {
            ParentKey::of(reference, &key.namespace).is_some_and(|parent| self.may_be_ours(parent))
        };
        if desired.drops_any(&route, may_be_ours) {
            self.writer.forget_gateway_api(target);
            return;
        }
        self.writer.set_gateway_api(target, GatewayApiSubject::Route(route, Arc::new(desired)));
        let object = key.object();
        self.term_events.offer(&object, self.problems.about(&object), self.pipeline.objects());
    }

    /// Publishes the GatewayClasses of this installation.
    fn publish_classes(&mut self, controller: &Arc<str>) {
        let knows_gateways = self.pipeline.sources.local.knows_all::<Gateways>();
        let objects = &self.pipeline.objects().gateway_api;
        let known = &mut self.gateway_statuses.classes;
        for gone in known.extract_if(.., |name| !objects.classes.contains_key(name)) {
            self.writer.forget_gateway_api(GatewayApiKey::Class(gone));
        }
        for (name, class) in &objects.classes {
            if class.spec.controller_name != **controller {
                continue;
            }
            let in_use = objects.gateways.values().any(|it| it.spec.gateway_class_name == **name)
                || !knows_gateways && class::is_marked_in_use(class);
            let desired = Arc::new(DesiredClass::new(class, in_use));
            let subject = GatewayApiSubject::Class(Arc::clone(class), desired);
            known.insert(Arc::clone(name));
            self.writer.set_gateway_api(GatewayApiKey::Class(Arc::clone(name)), subject);
        }
    }
}

/// Adds the ListenerSets and routes of a Gateway that differ between two outcomes, and all sets of the earlier one.
fn concerned(
    before: Option<&GatewayOutcome>,
    now: Option<&GatewayOutcome>,
    sets: &mut BTreeSet<ObjectKey>,
    routes: &mut BTreeSet<RouteKey>,
) {
    let (before, now) = (before.into_iter(), now.into_iter());
    sets.extend(before.clone().flat_map(|outcome| outcome.sets.keys().cloned()));
    let of = |outcome: &GatewayOutcome, key: &RouteKey| outcome.routes.get(key).cloned();
    let keys = before.clone().chain(now.clone()).flat_map(|outcome| outcome.routes.keys());
    let differs = |key: &&RouteKey| {
        let (one, other) = (before.clone().next(), now.clone().next());
        one.and_then(|it| of(it, key)) != other.and_then(|it| of(it, key))
    };
    routes.extend(keys.filter(differs).cloned());
}
