//! Events of a term of leadership, and log lines for Problems that get no Event.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::Resource as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::address_pool;
use crate::api::gateway_api::{Gateway, GatewayClass, ListenerSet, TcpRoute, TlsRoute, UdpRoute};
use crate::api::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};
use crate::api::objects::GatewayApiObjects;
use crate::api::problem::{ObjectRef, Problem, ProblemChanges};
use crate::api::store::{Objects, ServiceKey};
use crate::controller::events::{self, EventRecorder, EventType, Uid};
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::WriteNotice;
use crate::projection::LoadBalancerStatus;
use crate::text::first_few;

/// Action of Events about failed writes.
const PUBLISH: &str = "Publish";
/// How many of a Service's addresses an Event names.
const LISTED: usize = 8;

/// How many Problems of one update are logged individually: a failure of Karmada or a whole cluster causes thousands.
const LOGGED: usize = 20;

/// Kinds of the Karmada control plane that carry the state of other objects.
const CARRIERS: [&str; 4] = [Work::KIND, Cluster::KIND, ResourceBinding::KIND, EndpointSlice::KIND];

/// Events of one term.
pub(super) struct TermEvents {
    events: EventRecorder,
    /// Recorder for the Karmada API server.
    karmada_events: Option<EventRecorder>,
    /// Problems that are logged because their objects get no Events.
    logged: BTreeSet<Arc<Problem>>,
    /// Services whose status did not show their addresses at the last check.
    unserved: BTreeSet<ServiceKey>,
}

impl TermEvents {
    pub(super) fn new(events: EventRecorder) -> Self {
        Self { events, karmada_events: None, logged: BTreeSet::new(), unserved: BTreeSet::new() }
    }

    /// Sets the recorder for Events about MultiClusterServices, which go to the Karmada API server; `None` drops them. `all` are
    /// the current Problems.
    pub(super) fn set_karmada_events<'a>(
        &mut self,
        events: Option<EventRecorder>,
        all: impl Iterator<Item = &'a Arc<Problem>>,
        objects: &Objects,
    ) {
        self.karmada_events = events;
        self.fleet_problems(&ProblemChanges { came: all.cloned().collect(), gone: Vec::new() }, objects);
    }

    /// Records an Event for each new Problem.
    pub(super) fn problems(&mut self, changes: &ProblemChanges, objects: &Objects) {
        if !changes.is_empty() {
            self.events
                .problems(&changes.about(|object| !is_of_fleet(object)), |object| uid(objects, object));
            self.fleet_problems(changes, objects);
        }
    }

    fn fleet_problems(&mut self, changes: &ProblemChanges, objects: &Objects) {
        if let Some(events) = &mut self.karmada_events {
            events.problems(&changes.about(is_of_fleet), |object| uid(objects, object));
            self.log(changes);
        }
    }

    /// Retries Events that the rate limit held back.
    pub(super) fn again(&mut self, objects: &Objects) {
        for events in std::iter::once(&mut self.events).chain(&mut self.karmada_events) {
            events.again(|object| uid(objects, object));
        }
    }

    /// Records Events for Problems of an object that may have been deleted and created again.
    pub(super) fn offer<'a>(
        &mut self,
        object: &ObjectRef,
        problems: impl Iterator<Item = &'a Arc<Problem>>,
        objects: &Objects,
    ) {
        let events = if is_of_fleet(object) { self.karmada_events.as_mut() } else { Some(&mut self.events) };
        if let Some(events) = events {
            events.offer(problems, |object| uid(objects, object));
        }
    }

    /// Logs Problems of Works, Clusters and the like. They belong to controllers of Karmada, which read no Events.
    fn log(&mut self, changes: &ProblemChanges) {
        let ProblemChanges { came, gone } = changes.about(|object| CARRIERS.contains(&object.kind));
        for problem in gone {
            self.logged.remove(&problem);
        }
        let new: BTreeSet<Arc<Problem>> =
            came.into_iter().filter(|problem| self.logged.insert(problem.clone())).collect();
        let (new, more) = one_by_one(new.iter().map(|problem| &**problem));
        for problem in new {
            tracing::warn!(object = %problem.object, reason = problem.reason, field = problem.field, "{}", problem.message);
        }
        if more > 0 {
            tracing::warn!(
                more,
                "more Problems of objects that Karmada keeps, at the same time; see `sheave status`"
            );
        }
    }

    /// Waits until no more Events can be written. Cancel safe.
    pub(super) async fn ended(&self) {
        let fleet = async {
            match &self.karmada_events {
                Some(events) => events.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.events.ended() => {}
            () = fleet => {}
        }
    }

    /// Number of Events dropped since the start of the term.
    pub(super) fn events_dropped(&self) -> u64 {
        self.writers().map(EventRecorder::dropped).sum()
    }

    /// Problems of API servers that reject Events, which no Event can report.
    pub(super) fn refused(&self) -> impl Iterator<Item = Problem> + '_ {
        self.writers().filter_map(EventRecorder::refused)
    }

    fn writers(&self) -> impl Iterator<Item = &EventRecorder> {
        std::iter::once(&self.events).chain(&self.karmada_events)
    }

    fn record(&mut self, occurrence: &events::Occurrence) {
        if !is_of_fleet(&occurrence.object) {
            self.events.record(occurrence);
        } else if let Some(events) = &mut self.karmada_events {
            events.record(occurrence);
        }
    }

    /// Records an Event if Karmada's webhook rejects every change of the object because of an invalid status, which is then
    /// removed.
    pub(super) fn locked(&mut self, key: &ServiceKey, object: &ServiceObject, objects: &Objects) {
        let Some((place, entry)) = object.locks().next() else { return };
        let reference = key.object();
        let Some(uid) = uid(objects, &reference) else { return };
        let value =
            [entry.hostname.as_deref(), entry.ip.as_deref()].into_iter().flatten().collect::<Vec<_>>();
        self.record(&events::Occurrence {
            object: reference,
            uid,
            r#type: EventType::Warning,
            reason: "StatusInvalid",
            action: PUBLISH,
            note: format!(
                "status.loadBalancer.ingress[{place}] ({}) is no address or DNS name, and Karmada would refuse every change \
                 of the object for it; it is taken away",
                value.join(", ")
            ),
        });
    }

    /// Records an Event for a notice of the status writer.
    pub(super) fn write_notice(&mut self, notice: &WriteNotice, objects: &Objects) {
        self.warn(notice.object(), notice.reason(), notice.to_string(), objects);
    }

    /// Records an Event about the object, or logs a line if there is no object.
    fn warn(&mut self, object: Option<&ObjectRef>, reason: &'static str, note: String, objects: &Objects) {
        match object.map(|object| (object, uid(objects, object))) {
            Some((object, Some(uid))) => self.record(&events::Occurrence {
                object: object.clone(),
                uid,
                r#type: EventType::Warning,
                reason,
                action: PUBLISH,
                note,
            }),
            Some((object, None)) => tracing::error!(%object, reason, "{note}"),
            None => tracing::error!(reason, "{note}"),
        }
    }

    /// Records an Event once a Service's status shows its addresses. `status` is the desired one, if the Service is ours.
    pub(super) fn assigned(
        &mut self,
        key: &ServiceKey,
        status: Option<&LoadBalancerStatus>,
        objects: &Objects,
    ) {
        let object = ServiceObject::find(objects, key);
        let (Some(object), Some(status)) = (object, status.filter(|status| !status.ingress.is_empty()))
        else {
            self.unserved.remove(key);
            return;
        };
        if !object.has_addresses(status) {
            self.unserved.insert(key.clone());
            return;
        }
        let object = key.object();
        let Some(uid) = uid(objects, &object).filter(|_| self.unserved.remove(key)) else { return };
        let addresses = status.ingress.iter().map(|ingress| ingress.ip.to_string());
        self.record(&events::Occurrence {
            object,
            uid,
            r#type: EventType::Normal,
            reason: "AddressesAssigned",
            action: "Assign",
            note: format!("served at {}", first_few(addresses, ", ", LISTED)),
        });
    }
}

/// The first few Problems, and the number of the others.
fn one_by_one<'a>(mut problems: impl Iterator<Item = &'a Problem>) -> (Vec<&'a Problem>, usize) {
    (problems.by_ref().take(LOGGED).collect(), problems.count())
}

/// The object's metadata, if it exists.
fn metadata<'a>(objects: &'a Objects, object: &ObjectRef) -> Option<&'a ObjectMeta> {
    let key = || ServiceKey::of_service(object.namespace.clone(), object.name.clone());
    match object.kind {
        "Service" => objects.services.get(&key()).map(|it| &it.metadata),
        MultiClusterService::KIND => {
            let key = ServiceKey::multi_cluster(&object.namespace, &object.name);
            objects.fleet.services.get(&key).map(|it| &it.metadata)
        }
        "EndpointSlice" => slice(objects, object).map(|it| &it.metadata),
        "Node" => objects.nodes.get(&object.name).map(|it| &it.metadata),
        address_pool::KIND => objects.pools.get(&object.name).map(|it| &it.metadata),
        _ => metadata_of_gateway_api(&objects.gateway_api, object),
    }
}

fn metadata_of_gateway_api<'a>(objects: &'a GatewayApiObjects, object: &ObjectRef) -> Option<&'a ObjectMeta> {
    let ObjectRef { kind, namespace, name } = object;
    let key = || (Arc::clone(namespace), Arc::clone(name));
    match *kind {
        GatewayClass::KIND => objects.classes.get(name).map(|it| &it.metadata),
        Gateway::KIND => objects.gateways.get(&ServiceKey::gateway(namespace, name)).map(|it| &it.metadata),
        ListenerSet::KIND => objects.listener_sets.get(&key()).map(|it| &it.metadata),
        TcpRoute::KIND => objects.tcp_routes.find(&key()).map(|it| &it.metadata),
        UdpRoute::KIND => objects.udp_routes.find(&key()).map(|it| &it.metadata),
        TlsRoute::KIND => objects.tls_routes.find(&key()).map(|it| &it.metadata),
        _ => None,
    }
}

/// The slice with this name. Slices are stored by Service, of which a Namespace has few.
fn slice<'a>(objects: &'a Objects, object: &ObjectRef) -> Option<&'a EndpointSlice> {
    let first = ServiceKey::of_service(object.namespace.clone(), "".into());
    let owners = objects.slices.range(first..).take_while(|(owner, _)| owner.namespace == object.namespace);
    owners.map(|(_, slices)| slices).find_map(|slices| slices.get(&object.name)).map(|slice| &**slice)
}

/// Identity of the object for an Event.
fn uid(objects: &Objects, object: &ObjectRef) -> Option<Uid> {
    let metadata = metadata(objects, object)?;
    let text = |text: &Option<String>| text.as_deref().map(Arc::from);
    Some(Uid { uid: text(&metadata.uid)?, resource_version: text(&metadata.resource_version) })
}

/// Whether it is an object of the Karmada API server.
fn is_of_fleet(object: &ObjectRef) -> bool {
    object.kind == MultiClusterService::KIND
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::store::{Change, Delta, Store};

    #[test]
    fn ten_thousand_works_that_are_wrong_alike_are_a_few_lines() {
        let problem = |number: usize| Problem {
            object: ObjectRef { kind: Work::KIND, namespace: "m".into(), name: number.to_string().into() },
            reason: crate::api::problem::reason::INVALID_MANIFEST,
            field: String::new(),
            message: "cannot be read".to_owned(),
            port: None,
        };
        let problems: BTreeSet<Problem> = (0..10_000).map(problem).collect();
        let (logged, more) = one_by_one(problems.iter());
        assert_eq!((logged.len(), more), (LOGGED, 10_000 - LOGGED));
        assert_eq!(one_by_one(problems.iter().take(3)).1, 0);
    }

    #[test]
    fn events_find_every_kind_of_the_gateway_api() {
        let mut store = Store::default();
        let metadata = |uid: &str| json!({"metadata": {"namespace": "shop", "name": "web", "uid": uid}});
        macro_rules! put {
            ($($kind:ident $uid:literal),+) => {
                $(store.apply(Change::$kind(Delta::Put(Arc::new(serde_json::from_value(metadata($uid)).unwrap()))));)+
            };
        }
        put!(Gateways "Gateway", ListenerSets "ListenerSet", TcpRoutes "TCPRoute", UdpRoutes "UDPRoute", TlsRoutes "TLSRoute");
        for kind in ["Gateway", "ListenerSet", "TCPRoute", "UDPRoute", "TLSRoute"] {
            let object = ObjectRef { kind, namespace: "shop".into(), name: "web".into() };
            assert_eq!(uid(store.objects(), &object).map(|it| it.uid.to_string()).as_deref(), Some(kind));
        }
    }

    #[test]
    fn events_find_the_slice_that_a_problem_is_about() {
        let mut store = Store::default();
        for (namespace, name) in [("shop", "web-1"), ("shop", "web-2"), ("garden", "web-2")] {
            let slice = json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"),
                "labels": {"kubernetes.io/service-name": name}}, "addressType": "FQDN", "endpoints": []});
            store.apply(Change::Slices(Delta::Put(Arc::new(serde_json::from_value(slice).unwrap()))));
        }
        let uid = |namespace: &str, name: &str| {
            let object = ObjectRef { kind: "EndpointSlice", namespace: namespace.into(), name: name.into() };
            uid(store.objects(), &object).map(|it| it.uid.to_string())
        };
        assert_eq!(uid("shop", "web-2").as_deref(), Some("shop-web-2"));
        assert_eq!(uid("garden", "web-2").as_deref(), Some("garden-web-2"));
        assert_eq!(uid("garden", "web-1"), None);
    }
}
