//! A term of leadership: the leader's loop, from changes in the API server to the writes that they require.

mod announcements;
pub(crate) mod awaited_addresses;
mod gateway_failures;
mod gateway_membership;
mod gateways;
mod karmada_side;
mod publish_gateways;
mod publish_status;
mod startup_hold;
mod term_events;
mod write_failures;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::FrontendSource;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};

use self::announcements::Announcements;
use self::awaited_addresses::{AwaitedAddresses, KnownGateways};
use self::gateway_failures::GatewayFailures;
#[cfg(fuzzing)]
pub use self::gateway_failures::conditions_by_reports;
use self::gateway_membership::GatewayMembership;
use self::gateways::ReadReports;
use self::karmada_side::{KarmadaEvent, KarmadaSide};
use self::publish_gateways::GatewayStatuses;
use self::startup_hold::StartupHold;
use self::term_events::TermEvents;
use self::write_failures::WriteFailures;
use super::election::Leadership;
use super::events::EventRecorder;
use super::gateway_reports::{self, GatewayReports};
use super::{ControllerOptions, ControllerStatus, FIRST_PROBLEMS, pool_status};
use crate::api::gateway_report::GatewayReport;
use crate::api::kinds::{Gateways, MultiClusterServices, Services};
use crate::api::problem::{ObjectRef, ProblemChanges, ProblemSet};
use crate::api::store::{Change, ControlPlane, Delta, ServiceKey};
use crate::controller::service_exports::Outdated;
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::{SentStatuses, StatusWriter, WriteNotice};
use crate::pipeline::Pipeline;
use crate::projection::{Authority, GATEWAY_CONTROLLER, Projector, Published};
use crate::sources::api_server::{self, KindHints, Wanted, WatchLimits};
use crate::sources::connection::Connection;
use crate::sources::{ApiSource, Source, SourceUpdate, Sources};
use crate::time::wait_until;

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
    /// Addresses that are unknown, while the first list of the objects that have them is pending.
    Awaited,
}

/// State of one term.
pub(super) struct LeaderTerm {
    options: ControllerOptions,
    own_gateway: Option<watch::Receiver<GatewayReport>>,
    gateways: ServiceKey,
    pipeline: Pipeline,
    /// State for the Karmada control plane, if there is one.
    karmada: Option<KarmadaSide>,
    known_gateways: KnownGateways,
    membership: GatewayMembership,
    /// Problems of the projection and of all other sources.
    problems: ProblemSet<ProblemSource>,
    reports: GatewayReports,
    /// Reports from which `gateway_failures` and `announcements` were computed.
    read: ReadReports,
    gateway_failures: GatewayFailures,
    announcements: Announcements,
    gateway_statuses: GatewayStatuses,
    hold: StartupHold,
    writer: StatusWriter,
    /// What the writers of both API servers have sent.
    sent: SentStatuses,
    write_failures: WriteFailures,
    /// MultiClusterServices whose endpoints Karmada currently does not collect.
    outdated: BTreeMap<ServiceKey, Outdated>,
    /// Pools whose status was published.
    pools: BTreeSet<Arc<str>>,
    term_events: TermEvents,
    retry_events: Interval,
}

impl LeaderTerm {
    /// Starts a term. `installation` is the name that all processes of the installation share. `sent` has what earlier terms of this
    /// process have sent, which may still take effect.
    pub(super) fn start(
        connection: &Connection,
        options: &ControllerOptions,
        leadership: &Leadership,
        installation: &str,
        sent: SentStatuses,
    ) -> Self {
        let may_write = leadership.clone();
        let controller = options.projection.gateway_controller.as_deref().unwrap_or(GATEWAY_CONTROLLER);
        let ownership = options.ownership.clone().with_gateway_controller(controller);
        let writer = StatusWriter::start(connection, ownership, sent.clone(), move || may_write.remaining());
        let events = EventRecorder::start(connection, options.identity.clone(), leadership.clone());
        let karmada = options.karmada.as_ref();
        let mut pipeline =
            Pipeline::new(sources(connection, options), options.projection.clone(), PROJECT_AGAIN);
        if karmada.is_some() {
            pipeline.projector.set_authority(Authority::NONE);
        }
        let mut retry_events = tokio::time::interval(RETRY_EVENTS);
        retry_events.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            own_gateway: options.own_gateway.clone(),
            gateways: options.gateways.clone(),
            pipeline,
            karmada: karmada.map(|karmada| KarmadaSide::start(karmada, options, installation, leadership)),
            known_gateways: KnownGateways::default(),
            membership: GatewayMembership::new(options.gateways.clone()),
            options: options.clone(),
            problems: ProblemSet::default(),
            reports: GatewayReports::start(options.gateway_token.clone()),
            read: ReadReports::default(),
            gateway_failures: GatewayFailures::default(),
            announcements: Announcements::default(),
            gateway_statuses: GatewayStatuses::default(),
            hold: StartupHold::Idle,
            writer,
            sent,
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
            let due = [self.pipeline.due(), self.membership.due(), self.sent.due(Instant::now())];
            let due = due.into_iter().flatten().min();
            let held_publish = self.hold.due();
            let await_poll = self.announcements.await_poll();
            tokio::select! {
                update = self.pipeline.next() => match update {
                    Some(update) => self.on_update(update),
                    None => return Broken("a watch of an API server has ended"),
                },
                news = karmada_side::next_event(&mut self.karmada) => match news {
                    KarmadaEvent::Notice(notice) => self.on_write_notice(notice),
                    KarmadaEvent::LeaseChanged => self.on_karmada_lease(),
                    KarmadaEvent::Broken(broken) => return broken,
                },
                () = wait_until(due) => self.update(BTreeSet::new()),
                () = self.sent.rejected() => self.update(BTreeSet::new()),
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
                _ => self.term_events.write_notice(notice, self.pipeline.objects()),
            }
        }
        if !touched.is_empty() {
            self.publish(touched);
        }
        if differs {
            self.publish_problems();
        }
    }

    /// Handles changes in an API server. The Services in them are written even if they look unchanged, because others may have
    /// undone a write unnoticed. The first list of the Karmada API server makes the addresses of MultiClusterServices known, and the
    /// first list of Gateways theirs, so a new projector checks all addresses again that were assumed to be free.
    fn on_update(&mut self, update: SourceUpdate) {
        let awaited_karmada = self.awaits_karmada();
        let (mut updated, membership) = (BTreeSet::new(), &mut self.membership);
        let statuses = &mut self.gateway_statuses;
        self.pipeline.take(update, |change| {
            updated.extend(services(&change));
            statuses.changed(&change);
            membership.admit(change)
        });
        let knows_karmada = awaited_karmada && !self.awaits_karmada();
        if knows_karmada {
            tracing::info!("the MultiClusterServices of the Karmada API server are known");
        }
        if self.known_gateways.update(&self.pipeline.sources.local) || knows_karmada {
            let projector = Projector::new(self.options.projection.clone());
            let before = std::mem::replace(&mut self.pipeline.projector, projector);
            let gone = before.problems().cloned().collect();
            self.problems.apply(&ProblemChanges { gone, ..ProblemChanges::default() });
            updated = self.all_services();
            self.update_authority();
        }
        // Pools and gateways are in this cluster.
        if self.is_synced() {
            self.update(updated);
        }
    }

    /// Handles a change of the installation that is in charge on the Karmada control plane.
    fn on_karmada_lease(&mut self) {
        let Some(karmada) = &mut self.karmada else { return };
        if karmada.is_to_restart_writer() {
            let events = karmada.restart_writer(&self.options, &self.sent);
            self.outdated.clear();
            for object in self.write_failures.forget_fleet() {
                self.problems.set(ProblemSource::Writes(object), []);
            }
            self.publish_problems();
            self.term_events.set_karmada_events(events, self.problems.iter(), self.pipeline.objects());
        }
        self.update_authority();
        if self.is_synced() {
            // Changes of these while another installation was in charge were not published.
            let all = self.pipeline.objects().fleet.services.keys().cloned().collect();
            self.update(all);
        }
    }

    fn update_authority(&mut self) {
        if let Some(karmada) = &self.karmada {
            self.pipeline.projector.set_authority(karmada.authority());
        }
    }

    /// Whether everything in this cluster was listed once.
    fn is_synced(&self) -> bool {
        self.pipeline.sources.local.is_listed()
    }

    /// Whose addresses are still unknown, if any.
    fn awaited_addresses(&self) -> Option<AwaitedAddresses> {
        if self.awaits_karmada() {
            return Some(AwaitedAddresses::OfKarmada);
        }
        (self.known_gateways == KnownGateways::Unknown).then_some(AwaitedAddresses::OfGateways)
    }

    /// Whether the addresses of MultiClusterServices are still unknown.
    fn awaits_karmada(&self) -> bool {
        self.pipeline.sources.karmada.as_ref().is_some_and(|karmada| !karmada.is_listed())
    }

    /// Retries Events, after a check of the Leases on the Karmada control plane, which nothing else triggers.
    fn retry_events(&mut self) {
        if self.is_synced() && self.karmada.is_some() {
            self.update(BTreeSet::new());
        } else {
            self.publish_problems();
        }
        self.term_events.again(self.pipeline.objects());
    }

    /// Projects the changes in the store and writes the results, and those of the Services in `updated`.
    fn update(&mut self, updated: BTreeSet<ServiceKey>) {
        let _deciding = self.sent.decide();
        for change in self.membership.update(Instant::now()) {
            self.pipeline.store.apply(change);
        }
        self.pipeline.projector.set_sent(self.unseen());
        let projection = self.pipeline.project();
        self.problems.apply(&projection.problem_changes);
        let api_servers = self.pipeline.sources.api_servers();
        let mut of_watches: Vec<_> = api_servers.flat_map(|api| api.watch().problems()).collect();
        of_watches.extend(self.karmada.iter().flat_map(KarmadaSide::problems));
        self.problems.set(ProblemSource::Watches, &of_watches);
        // Poll gateways that do not count because they terminate, too: a new Pod may replace them at the same address.
        self.reports.follow(gateway_reports::addresses(self.membership.slices()));
        self.tell_kinds();
        let mut touched = projection.touched;
        touched.extend(updated);
        touched.append(&mut self.read_reports(&touched));
        self.publish(touched);
    }

    /// What the objects in the cache do not show yet of writes that were sent.
    fn unseen(&self) -> BTreeMap<ServiceKey, Published> {
        let sources = &self.pipeline.sources;
        let server = |key: &ServiceKey| match key.source {
            FrontendSource::MultiClusterService => sources.karmada.as_ref(),
            FrontendSource::Service | FrontendSource::Gateway => Some(&sources.local),
        };
        let heard = |key: &ServiceKey| server(key)?.heard(key.object().kind);
        let knows_all = |key: &ServiceKey| {
            server(key).is_none_or(|server| match key.source {
                FrontendSource::Service => server.knows_all::<Services>(),
                FrontendSource::Gateway => server.knows_all::<Gateways>(),
                FrontendSource::MultiClusterService => server.knows_all::<MultiClusterServices>(),
            })
        };
        self.sent.unseen(self.pipeline.objects(), heard, knows_all)
    }

    /// Tells the gateways which kinds there are, so that they need not look for these often.
    fn tell_kinds(&self) {
        let Some(kinds) = self.pipeline.sources.local.read_kinds() else { return };
        let kinds = KindHints::text(&kinds);
        self.reports.tell_kinds(&kinds);
        if let Some(own) = &self.options.own_hints {
            own.hear(&kinds);
        }
    }

    fn all_services(&self) -> BTreeSet<ServiceKey> {
        let objects = self.pipeline.objects();
        let services = objects.services.keys().chain(objects.fleet.services.keys());
        services.chain(objects.gateway_api.gateways.keys()).cloned().collect()
    }

    fn describe(&self, status: &mut ControllerStatus) {
        status.leading = true;
        // The Lease shows this process only after the next read.
        status.leader = Some(self.options.identity.clone());
        status.synced = self.is_synced() && self.awaited_addresses().is_none();
        status.gateways = self.gateway_failures.gateways().ready;
        status.services = self.pipeline.projector.published();
        status.write_failures = self.write_failures.count();
        status.events_dropped = self.term_events.events_dropped();
        let sources = &self.pipeline.sources;
        status.kinds = sources.local.kinds();
        status.karmada_kinds = sources.karmada.as_ref().map(Source::kinds).unwrap_or_default();
        status.held = sources.held_lists();
        status.problems = self.problems.len();
        status.first_problems = self.problems.iter().take(FIRST_PROBLEMS).cloned().collect();
        status.problems_by_reason.clone_from(self.problems.by_reason());
        status.pools = pool_status::pool_counts(&self.pipeline.objects().pools);
        status.gateway_slices = self.is_synced().then(|| self.membership.slices().cloned().collect());
    }
}

/// Sources of a term: this cluster and the Karmada control plane, if there is one.
fn sources(connection: &Connection, options: &ControllerOptions) -> Sources {
    let source = |connection: &Connection, wanted| {
        let watch = api_server::watch(connection, wanted, WatchLimits::of_controller());
        Source::api(ApiSource::new(connection, watch, options.mass_deletion_hold))
    };
    let service_works = options.projection.fleet.service_works;
    let karmada = Wanted { service_works, ..Wanted::of(ControlPlane::Karmada) };
    let local = Wanted {
        namespaces: true,
        pools: true,
        gateway_api: options.gateway_api,
        ..Wanted::of(ControlPlane::Local)
    };
    Sources {
        local: source(connection, local),
        karmada: options.karmada.as_ref().map(|connection| source(connection, karmada)),
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

#[cfg(test)]
mod tests;
