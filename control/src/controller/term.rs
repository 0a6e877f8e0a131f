//! A term of leadership: the leader's loop, from changes in the API server to the writes that they require.

mod announcements;
mod awaiting_karmada;
mod gateway_failures;
mod gateway_membership;
mod gateways;
mod karmada_side;
mod publish_status;
mod startup_hold;
mod term_events;
mod write_failures;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};

use self::announcements::Announcements;
use self::gateway_failures::GatewayFailures;
#[cfg(fuzzing)]
pub use self::gateway_failures::conditions_by_reports;
use self::gateway_membership::GatewayMembership;
use self::gateways::ReadReports;
use self::karmada_side::{KarmadaEvent, KarmadaSide};
use self::startup_hold::StartupHold;
use self::term_events::TermEvents;
use self::write_failures::WriteFailures;
use super::election::Leadership;
use super::events::EventRecorder;
use super::gateway_reports::{self, GatewayReports};
use super::{ControllerOptions, ControllerStatus, FIRST_PROBLEMS, pool_status};
use crate::api::gateway_report::GatewayReport;
use crate::api::problem::{ObjectRef, ProblemChanges, ProblemSet};
use crate::api::store::{Change, Delta, ServiceKey, Store};
use crate::controller::service_exports::Outdated;
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::{StatusWriter, WriteNotice};
use crate::projection::{Authority, Projector};
use crate::sources::api_server::{self, ApiWatch, Batch, Wanted};
use crate::sources::connection::Connection;
use crate::sources::mass_deletion_guard::Guard;
use crate::time::{self, wait_until};

/// Delay that batches the changes of a burst, so that a Service with many slices is not projected once for each. It delays no
/// client, because gateways watch endpoints themselves.
const PACE: Duration = Duration::from_millis(50);

/// Interval in which Events that the rate limit held back are retried: a quiet cluster gives no other occasion.
const RETRY_EVENTS: Duration = Duration::from_secs(10);

/// Shortest wait before a projection that only the time requires.
const PROJECT_AGAIN: Duration = Duration::from_secs(1);

/// A component of the term ended unexpectedly. Holds a sentence without a full stop.
#[derive(Debug)]
#[must_use]
pub(super) struct Broken(pub(super) &'static str);

/// Sources of Problems other than the projection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProblemSource {
    /// Watches, and the Leases on the Karmada control plane.
    Watches,
    /// Reports of gateways about a Service.
    Gateways(ServiceKey),
    /// Rejected writes of an object.
    Writes(ObjectRef),
    /// Rejected Events.
    Events,
    /// The Karmada API server, while its first list is pending.
    Karmada,
}

/// State of one term.
pub(super) struct LeaderTerm {
    options: ControllerOptions,
    own_gateway: Option<watch::Receiver<GatewayReport>>,
    gateways: ServiceKey,
    source: ApiWatch,
    /// State for the Karmada control plane, if there is one.
    karmada: Option<KarmadaSide>,
    guard: Guard,
    membership: GatewayMembership,
    store: Store,
    projector: Projector,
    /// Time of the next projection that only the time requires.
    project_at: Option<Instant>,
    /// Problems of the projection and of all other sources.
    problems: ProblemSet<ProblemSource>,
    synced: bool,
    reports: GatewayReports,
    /// Reports from which `gateway_failures` and `announcements` were computed.
    read: ReadReports,
    gateway_failures: GatewayFailures,
    announcements: Announcements,
    hold: StartupHold,
    writer: StatusWriter,
    write_failures: WriteFailures,
    /// MultiClusterServices whose endpoints Karmada currently does not collect.
    outdated: BTreeMap<ServiceKey, Outdated>,
    /// Pools whose status was published.
    pools: BTreeSet<Arc<str>>,
    term_events: TermEvents,
    retry_events: Interval,
}

impl LeaderTerm {
    /// Starts a term. `installation` is the name that all processes of the installation share.
    pub(super) fn start(
        connection: &Connection,
        options: &ControllerOptions,
        leadership: &Leadership,
        installation: &str,
    ) -> Self {
        let may_write = leadership.clone();
        let writer =
            StatusWriter::start(connection, options.ownership.clone(), move || may_write.remaining());
        let events = EventRecorder::start(connection, options.identity.clone(), leadership.clone());
        let karmada = options.karmada.as_ref();
        let mut projector = Projector::new(options.projection.clone());
        if karmada.is_some() {
            projector.set_authority(Authority::NONE);
        }
        let mut retry_events = tokio::time::interval(RETRY_EVENTS);
        retry_events.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            own_gateway: options.own_gateway.clone(),
            gateways: options.gateways.clone(),
            source: api_server::watch(connection, Wanted { namespaces: true, pools: true }),
            karmada: karmada.map(|karmada| KarmadaSide::start(karmada, options, installation, leadership)),
            guard: Guard::new(options.mass_deletion_hold),
            membership: GatewayMembership::new(options.gateways.clone()),
            store: Store::default(),
            options: options.clone(),
            projector,
            project_at: None,
            problems: ProblemSet::default(),
            synced: false,
            reports: GatewayReports::start(options.gateway_token.clone()),
            read: ReadReports::default(),
            gateway_failures: GatewayFailures::default(),
            announcements: Announcements::default(),
            hold: StartupHold::Idle,
            writer,
            write_failures: WriteFailures::default(),
            outdated: BTreeMap::new(),
            pools: BTreeSet::new(),
            term_events: TermEvents::new(events),
            retry_events,
        }
    }

    /// Runs until dropped, or until a component breaks.
    pub(super) async fn run(&mut self, publish: &watch::Sender<ControllerStatus>) -> Broken {
        loop {
            let (held_list, held_publish) = (self.guard.due(), self.hold.due());
            let membership = self.membership.due();
            let await_poll = self.announcements.await_poll();
            tokio::select! {
                batch = self.source.next() => match batch {
                    Some(batch) => {
                        self.synced = true;
                        self.on_batch(batch, BTreeSet::new());
                    }
                    None => return Broken("a watch of the API server has ended"),
                },
                news = karmada_side::next_event(&mut self.karmada) => match news {
                    KarmadaEvent::Batch(batch) => self.on_karmada_batch(batch),
                    KarmadaEvent::Notice(notice) => self.on_write_notice(notice),
                    KarmadaEvent::LeaseChanged => self.on_karmada_lease(),
                    KarmadaEvent::Broken(broken) => return broken,
                },
                () = wait_until(self.project_at) => self.update(BTreeSet::new()),
                () = wait_until(held_list) => self.accept_held(),
                () = wait_until(membership) => self.update(BTreeSet::new()),
                () = wait_until(held_publish) => self.publish(BTreeSet::new()),
                () = self.reports.changed(await_poll) => self.republish(),
                () = changed(&mut self.own_gateway) => self.republish(),
                notice = self.writer.next_notice() => match notice {
                    Some(notice) => self.on_write_notice(notice),
                    None => return Broken("the status writer has ended"),
                },
                () = self.term_events.ended() => return Broken("the event recorder has ended"),
                _ = self.retry_events.tick() => self.retry_events(),
            }
            publish.send_modify(|status| self.describe(status));
            // Batch the changes of the meantime.
            tokio::time::sleep(PACE).await;
        }
    }

    /// Handles a notice and all that are queued: where one write is rejected, others often are, too.
    fn on_write_notice(&mut self, first: WriteNotice) {
        let mut notices = vec![first];
        notices.extend(self.writer.pending_notices());
        if let Some(writer) = self.karmada.as_mut().and_then(|karmada| karmada.writer.as_mut()) {
            notices.extend(writer.status.pending_notices());
        }
        let mut differs = false;
        let mut touched = BTreeSet::new();
        for notice in &notices {
            match notice {
                WriteNotice::Refused { object, .. } | WriteNotice::Recovered { object } => {
                    differs |= self.write_failures.take(notice);
                    let standing = self.write_failures.of(object);
                    self.problems.set(ProblemSource::Writes(object.clone()), standing);
                }
                WriteNotice::EndpointsOutdated { object, outdated } => {
                    let key = ServiceKey::multi_cluster(&object.namespace, &object.name);
                    match *outdated {
                        Some(why) => self.outdated.insert(key.clone(), why),
                        None => self.outdated.remove(&key),
                    };
                    touched.insert(key);
                }
                _ => self.term_events.write_notice(notice, self.store.objects()),
            }
        }
        if !touched.is_empty() {
            self.publish(touched);
        }
        if differs {
            self.publish_problems();
        }
    }

    /// Handles changes in the Karmada API server. The first batch makes the addresses of MultiClusterServices known, so a new
    /// projector checks all addresses again that were assumed to be free.
    fn on_karmada_batch(&mut self, batch: Batch) {
        let first = self.awaits_karmada();
        if let Some(karmada) = &mut self.karmada {
            karmada.synced = true;
        }
        let mut updated = BTreeSet::new();
        if first {
            tracing::info!("the MultiClusterServices of the Karmada API server are known");
            let before =
                std::mem::replace(&mut self.projector, Projector::new(self.options.projection.clone()));
            let gone = before.problems().cloned().collect();
            self.problems.apply(&ProblemChanges { gone, ..ProblemChanges::default() });
            updated = self.all_services();
            self.update_authority();
        }
        self.on_batch(batch, updated);
    }

    /// Handles a change of the installation that is in charge on the Karmada control plane.
    fn on_karmada_lease(&mut self) {
        let Some(karmada) = &mut self.karmada else { return };
        if karmada.is_to_restart_writer() {
            let events = karmada.restart_writer(&self.options);
            self.outdated.clear();
            for object in self.write_failures.forget_fleet() {
                self.problems.set(ProblemSource::Writes(object), []);
            }
            self.publish_problems();
            self.term_events.set_karmada_events(events, self.problems.iter(), self.store.objects());
        }
        self.update_authority();
        if self.synced {
            // Changes of these while another installation was in charge were not published.
            let all = self.store.objects().fleet.services.keys().cloned().collect();
            self.update(all);
        }
    }

    fn update_authority(&mut self) {
        if let Some(karmada) = &self.karmada {
            self.projector.set_authority(karmada.authority());
        }
    }

    /// Whether the addresses of MultiClusterServices are still unknown.
    fn awaits_karmada(&self) -> bool {
        self.karmada.as_ref().is_some_and(|karmada| !karmada.synced)
    }

    fn on_batch(&mut self, batch: Batch, mut updated: BTreeSet<ServiceKey>) {
        for change in batch.changes {
            let admitted = self.guard.admit(change, self.store.objects(), Instant::now());
            updated.extend(services(&admitted));
            self.apply(admitted);
        }
        // Pools and gateways are in this cluster.
        if self.synced {
            self.update(updated);
        }
    }

    /// Retries Events, after a check of the Leases on the Karmada control plane, which nothing else triggers.
    fn retry_events(&mut self) {
        if self.synced && self.karmada.is_some() {
            self.update(BTreeSet::new());
        } else {
            self.publish_problems();
        }
        self.term_events.again(self.store.objects());
    }

    /// Applies a change to the store, except for slices of the gateways, which wait for the next update.
    fn apply(&mut self, change: Change) {
        if let Some(change) = self.membership.admit(change) {
            self.store.apply(change);
        }
    }

    /// Accepts the lists whose hold has expired.
    fn accept_held(&mut self) {
        for change in self.guard.release(Instant::now()) {
            self.apply(change);
        }
        if self.synced {
            self.update(BTreeSet::new());
        }
    }

    /// Projects the changes in the store and writes the results. Services in `updated` are written even if they look unchanged,
    /// because others may have undone a write unnoticed.
    fn update(&mut self, updated: BTreeSet<ServiceKey>) {
        for change in self.membership.update(Instant::now()) {
            self.store.apply(change);
        }
        let now = Timestamp::now();
        let dirty = self.store.take_dirty();
        self.projector.set_now(now);
        let projection = self.projector.project(self.store.objects(), &dirty);
        self.project_at =
            projection.due.map(|due| Instant::now() + time::time_until(due, now).max(PROJECT_AGAIN));
        self.problems.apply(&projection.problem_changes);
        let mut of_watches = self.source.problems();
        of_watches.extend(self.karmada.iter().flat_map(|karmada| karmada.source.problems()));
        of_watches.extend(self.karmada.iter().flat_map(KarmadaSide::problems));
        self.problems.set(ProblemSource::Watches, &of_watches);
        // Poll gateways that do not count because they terminate, too: a new Pod may replace them at the same address.
        self.reports.follow(gateway_reports::addresses(self.membership.slices()));
        let mut touched = projection.touched;
        touched.extend(updated);
        touched.append(&mut self.read_reports(&touched));
        self.publish(touched);
    }

    fn all_services(&self) -> BTreeSet<ServiceKey> {
        let objects = self.store.objects();
        objects.services.keys().chain(objects.fleet.services.keys()).cloned().collect()
    }

    fn describe(&self, status: &mut ControllerStatus) {
        status.leading = true;
        // The Lease shows this process only after the next read.
        status.leader = Some(self.options.identity.clone());
        status.synced = self.synced && !self.awaits_karmada();
        status.gateways = self.gateway_failures.gateways().ready;
        status.services = self.projector.published();
        status.write_failures = self.write_failures.count();
        status.events_dropped = self.term_events.events_dropped();
        status.kinds = self.source.kinds();
        status.karmada_kinds = self.karmada.iter().flat_map(|karmada| karmada.source.kinds()).collect();
        status.held = self.guard.holding();
        status.problems = self.problems.len();
        status.first_problems = self.problems.iter().take(FIRST_PROBLEMS).cloned().collect();
        status.problems_by_reason.clone_from(self.problems.by_reason());
        status.pools = pool_status::counts(&self.store.objects().pools);
        status.gateway_slices = self.synced.then(|| self.membership.slices().cloned().collect());
    }
}

/// The Services that the change contains.
fn services(change: &Change) -> Vec<ServiceKey> {
    match change {
        Change::Services(Delta::Put(service)) => vec![ServiceObject::from(service).key()],
        Change::Services(Delta::All(all)) => all.iter().map(|it| ServiceObject::from(it).key()).collect(),
        Change::MultiClusterServices(Delta::Put(service)) => vec![ServiceObject::from(service).key()],
        Change::MultiClusterServices(Delta::All(all)) => {
            all.iter().map(|it| ServiceObject::from(it).key()).collect()
        }
        _ => Vec::new(),
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
