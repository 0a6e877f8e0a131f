//! One term of leadership: the loop from what the API server says to what is written back. It must not know how writes are
//! sent, nor how leaders are elected.

mod statements;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;
use tokio::time::sleep_until;

use self::statements::Troubles;
use super::election::Leadership;
use super::events::{self, EventType, EventWriter, Uid};
use super::publication::Desired;
use super::publisher::{self, Publisher};
use super::reports::{self, Reports};
use super::{ControllerOptions, ControllerStatus, pool_status};
use crate::address_pool;
use crate::connection::Connection;
use crate::gateway_report::GatewayReport;
use crate::guard::Guard;
use crate::problem::{ObjectRef, Problem};
use crate::projection::{LoadBalancerStatus, Projector};
use crate::source::api::{self, ApiWatch, Batch, Wanted};
use crate::store::{Change, Delta, Objects, ServiceKey, Store, service_key};

/// A burst of changes is looked at together, so that a Service with many slices is not projected for each. Clients wait for
/// none of it: gateways follow the endpoints themselves.
const PACE: Duration = Duration::from_millis(50);

/// The action of Events about writes that did not go as they should.
const PUBLISH: &str = "Publish";

/// Everything that is given up with the term.
pub(super) struct Session {
    own_gateway: Option<watch::Receiver<GatewayReport>>,
    gateways: ServiceKey,
    source: ApiWatch,
    guard: Guard,
    store: Store,
    projector: Projector,
    problems: Vec<Problem>,
    synced: bool,
    reports: Reports,
    troubles: Troubles,
    publisher: Publisher,
    events: EventWriter,
}

impl Session {
    pub(super) fn start(
        connection: &Connection,
        options: &ControllerOptions,
        leadership: Leadership,
    ) -> Self {
        let may_write = leadership.clone();
        Self {
            own_gateway: options.own_gateway.clone(),
            gateways: options.gateways.clone(),
            source: api::watch(connection, Wanted { namespaces: true, pools: true }),
            guard: Guard::new(options.mass_deletion_hold),
            store: Store::default(),
            projector: Projector::new(options.projection.clone()),
            problems: Vec::new(),
            synced: false,
            reports: Reports::start(),
            troubles: Troubles::default(),
            publisher: Publisher::start(connection, options.publish, move || may_write.holds()),
            events: EventWriter::start(connection, options.identity.clone(), leadership),
        }
    }

    /// Goes on until dropped, or until the source ends.
    pub(super) async fn run(&mut self, tell: &watch::Sender<ControllerStatus>) {
        loop {
            let due = self.guard.due();
            tokio::select! {
                batch = self.source.next() => match batch {
                    Some(batch) => self.take(batch),
                    None => return,
                },
                () = until(due) => self.believe(),
                () = self.reports.changed() => self.retell(),
                () = changed(&mut self.own_gateway) => self.retell(),
                happening = self.publisher.happened() => self.tell(&happening),
            }
            tell.send_modify(|status| self.describe(status));
            // Whatever happens meanwhile waits, and is then looked at together.
            tokio::time::sleep(PACE).await;
        }
    }

    fn take(&mut self, batch: Batch) {
        let mut heard = BTreeSet::new();
        for change in batch.changes {
            let admitted = self.guard.admit(change, self.store.objects(), Instant::now()).into_change();
            heard.extend(services(&admitted));
            self.store.apply(admitted);
        }
        self.synced = true;
        self.update(heard);
    }

    /// The lists that were doubted are believed.
    fn believe(&mut self) {
        for change in self.guard.release(Instant::now()) {
            self.store.apply(change);
        }
        self.update(BTreeSet::new());
    }

    /// From what changed in the store to what is to be written. Services that were `heard` of may look as they did before:
    /// then somebody has undone what we wrote, and we have not seen it in between.
    fn update(&mut self, heard: BTreeSet<ServiceKey>) {
        let dirty = self.store.take_dirty();
        let projection = self.projector.project(self.store.objects(), &dirty);
        self.problems = projection.problems;
        self.problems.extend(self.source.problems());
        self.problems.sort_unstable();
        let slices = self.store.objects().slices.get(&self.gateways);
        self.reports.follow(reports::addresses(slices.into_iter().flat_map(|all| all.values())));
        let all = self.refresh_troubles();
        let mut touched = if all { self.all_services() } else { projection.touched };
        touched.extend(heard);
        self.publish(&touched);
    }

    /// Gateways say something new.
    fn retell(&mut self) {
        if self.synced && self.refresh_troubles() {
            self.publish(&self.all_services());
        }
    }

    /// Whether what the gateways say differs from before.
    fn refresh_troubles(&mut self) -> bool {
        let slices = self.store.objects().slices.get(&self.gateways);
        let ready = reports::addresses(slices.into_iter().flat_map(|all| all.values())).len();
        let own = self.own_gateway.as_mut().map(|own| own.borrow_and_update().clone());
        let reports = self.reports.now();
        let troubles = Troubles::read(ready + usize::from(own.is_some()), reports.values().chain(&own));
        let differs = troubles != self.troubles;
        self.troubles = troubles;
        differs
    }

    fn all_services(&self) -> BTreeSet<ServiceKey> {
        self.store.objects().services.keys().cloned().collect()
    }

    fn publish(&mut self, touched: &BTreeSet<ServiceKey>) {
        let objects = self.store.objects();
        for key in touched {
            match objects.services.get(key) {
                Some(service) => self.publisher.desire(key, service, self.desired(key)),
                None => self.publisher.forget(key),
            }
        }
        touched.iter().for_each(|key| self.tell_assigned(key));
        self.publish_pools();
        let problems: Vec<Problem> = self.problems.iter().chain(self.troubles.problems()).cloned().collect();
        let objects = self.store.objects();
        self.events.problems(&problems, |object| uid(objects, object));
    }

    fn desired(&self, key: &ServiceKey) -> Desired {
        match self.projector.status(key) {
            Some(status) => {
                let problems = self.projector.problems_of(key);
                Desired::Published(self.troubles.statement(key, status, problems))
            }
            None => Desired::Released,
        }
    }

    fn publish_pools(&mut self) {
        for (name, used, free) in self.projector.pool_usage() {
            let Some(pool) = self.store.objects().pools.get(name) else { continue };
            let problems: Vec<Problem> =
                self.problems.iter().filter(|it| is_pool(it, name)).cloned().collect();
            let (used, free) = (i64::try_from(used), i64::try_from(free));
            let (used, free) = (used.unwrap_or(i64::MAX), free.unwrap_or(i64::MAX));
            let status = pool_status::of(pool, used, free, &problems, jiff::Timestamp::now());
            self.publisher.desire_pool(pool, status);
        }
    }
}

impl Session {
    /// An Event of the object, or a line of the log where there is none.
    fn tell(&mut self, happening: &publisher::Happening) {
        let object = happening.object().and_then(|object| Some((object, uid(self.store.objects(), object)?)));
        match object {
            Some((object, uid)) => self.events.tell(&events::Happening {
                object: object.clone(),
                uid,
                r#type: EventType::Warning,
                reason: happening.reason(),
                action: PUBLISH,
                note: happening.to_string(),
            }),
            None => tracing::error!(reason = happening.reason(), "{happening}"),
        }
    }

    /// An Event when a Service gets addresses that its status does not have yet.
    fn tell_assigned(&mut self, key: &ServiceKey) {
        let (Some(service), Some(status)) =
            (self.store.objects().services.get(key), self.projector.status(key))
        else {
            return;
        };
        let object = ObjectRef { kind: "Service", namespace: key.namespace.clone(), name: key.name.clone() };
        let Some(uid) = uid(self.store.objects(), &object) else { return };
        if status.ingress.is_empty() || publishes(service, status) {
            return;
        }
        let addresses: Vec<String> = status.ingress.iter().map(|ingress| ingress.ip.to_string()).collect();
        self.events.tell(&events::Happening {
            object,
            uid,
            r#type: EventType::Normal,
            reason: "AddressesAssigned",
            action: "Assign",
            note: format!("served at {}", addresses.join(", ")),
        });
    }

    fn describe(&self, status: &mut ControllerStatus) {
        status.leading = true;
        status.synced = self.synced;
        status.gateways = self.troubles.gateways();
        status.services = self.projector.statuses().count();
        status.kinds = self.source.kinds();
        status.held = self.guard.holding();
        if status.problems != self.problems {
            status.problems.clone_from(&self.problems);
        }
    }
}

/// The Services that are told of.
fn services(change: &Change) -> Vec<ServiceKey> {
    match change {
        Change::Services(Delta::Put(service)) => vec![service_key(&service.metadata)],
        Change::Services(Delta::All(all)) => all.iter().map(|it| service_key(&it.metadata)).collect(),
        _ => Vec::new(),
    }
}

/// What the object says of itself, if it is there.
fn metadata<'a>(objects: &'a Objects, object: &ObjectRef) -> Option<&'a ObjectMeta> {
    let key = || ServiceKey { namespace: object.namespace.clone(), name: object.name.clone() };
    match object.kind {
        "Service" => objects.services.get(&key()).map(|it| &it.metadata),
        "Node" => objects.nodes.get(&object.name).map(|it| &it.metadata),
        address_pool::KIND => objects.pools.get(&object.name).map(|it| &it.metadata),
        _ => None,
    }
}

/// What Events say about which object is meant.
fn uid(objects: &Objects, object: &ObjectRef) -> Option<Uid> {
    let metadata = metadata(objects, object)?;
    let text = |text: &Option<String>| text.as_deref().map(Arc::from);
    Some(Uid { uid: text(&metadata.uid)?, resource_version: text(&metadata.resource_version) })
}

/// Whether the Service's status has these addresses already.
fn publishes(service: &Service, status: &LoadBalancerStatus) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let published = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    let published = published.iter().map(|ingress| ingress.ip.as_deref().unwrap_or_default().to_owned());
    published.eq(status.ingress.iter().map(|ingress| ingress.ip.to_string()))
}

fn is_pool(problem: &Problem, name: &Arc<str>) -> bool {
    problem.object.kind == address_pool::KIND && problem.object.name == *name
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

async fn changed(own: &mut Option<watch::Receiver<GatewayReport>>) {
    let alive = match own {
        Some(own) => own.changed().await.is_ok(),
        None => false,
    };
    if !alive {
        std::future::pending::<()>().await;
    }
}
