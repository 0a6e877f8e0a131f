//! One term of leadership: the loop from what the API server says to what is written back. It must not know how writes are
//! sent, nor how leaders are elected.

mod awaiting_karmada;
mod gateway_failures;
mod gateway_membership;
mod gateways;
mod karmada_side;
mod publish;
mod startup_hold;
mod term_events;
mod write_failures;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};

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
use super::{ControllerOptions, ControllerStatus, FIRST_PROBLEMS};
use crate::api::gateway_report::GatewayReport;
use crate::api::problem::{ObjectRef, ProblemChanges, ProblemSet};
use crate::api::store::{Change, Delta, ServiceKey, Store};
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::{StatusWriter, WriteNotice};
use crate::projection::{Authority, Projector};
use crate::sources::api_server::{self, ApiWatch, Batch, Wanted};
use crate::sources::connection::Connection;
use crate::sources::mass_deletion_guard::Guard;
use crate::time::{self, wait_until};

/// A burst of changes is looked at together, so that a Service with many slices is not projected for each. Clients wait for
/// none of it: gateways follow the endpoints themselves.
const PACE: Duration = Duration::from_millis(50);

/// Problems that the limits of Events hold back are offered again so often: a quiet cluster gives no other occasion.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// The least that passes until the time alone is looked at again.
const PROJECT_AGAIN: Duration = Duration::from_secs(1);

/// What a term cannot go on without has ended by itself; a sentence without a stop.
#[derive(Debug)]
#[must_use]
pub(super) struct Broken(pub(super) &'static str);

/// Who finds Problems beside the projection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProblemSource {
    /// The watches, and who writes on the Karmada control plane.
    Watches,
    /// Gateways, of a Service.
    Gateways(ServiceKey),
    /// Writes that are refused, of an object.
    Writes(ObjectRef),
    /// Events that are refused.
    Events,
    /// The Karmada API server, which is waited for.
    Fleet,
}

/// Everything that is given up with the term.
pub(super) struct LeaderTerm {
    options: ControllerOptions,
    own_gateway: Option<watch::Receiver<GatewayReport>>,
    gateways: ServiceKey,
    source: ApiWatch,
    /// Where there is a Karmada control plane.
    fleet: Option<KarmadaSide>,
    guard: Guard,
    membership: GatewayMembership,
    store: Store,
    projector: Projector,
    /// When the time alone makes a difference to it.
    project_at: Option<Instant>,
    /// What the projection says, and what others say beside it.
    problems: ProblemSet<ProblemSource>,
    synced: bool,
    reports: GatewayReports,
    /// What `gateway_failures` are from.
    read: ReadReports,
    gateway_failures: GatewayFailures,
    hold: StartupHold,
    writer: StatusWriter,
    write_failures: WriteFailures,
    /// Pools that were published.
    pools: BTreeSet<Arc<str>>,
    term_events: TermEvents,
    tell_again: Interval,
}

impl LeaderTerm {
    /// `installation` is the name that all processes of the installation have.
    pub(super) fn start(
        connection: &Connection,
        options: &ControllerOptions,
        leadership: &Leadership,
        installation: &str,
    ) -> Self {
        let may_write = leadership.clone();
        let writer = StatusWriter::start(connection, options.ownership.clone(), move || may_write.rest());
        let events = EventRecorder::start(connection, options.identity.clone(), leadership.clone());
        let karmada = options.karmada.as_ref();
        let mut projector = Projector::new(options.projection.clone());
        if karmada.is_some() {
            projector.set_mandate(Authority::NONE);
        }
        let mut tell_again = tokio::time::interval(TELL_AGAIN);
        tell_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            own_gateway: options.own_gateway.clone(),
            gateways: options.gateways.clone(),
            source: api_server::watch(connection, Wanted { namespaces: true, pools: true }),
            fleet: karmada.map(|karmada| KarmadaSide::start(karmada, options, installation, leadership)),
            guard: Guard::new(options.mass_deletion_hold),
            membership: GatewayMembership::new(options.gateways.clone()),
            store: Store::default(),
            options: options.clone(),
            projector,
            project_at: None,
            problems: ProblemSet::default(),
            synced: false,
            reports: GatewayReports::start(),
            read: ReadReports::default(),
            gateway_failures: GatewayFailures::default(),
            hold: StartupHold::Idle,
            writer,
            write_failures: WriteFailures::default(),
            pools: BTreeSet::new(),
            term_events: TermEvents::new(events),
            tell_again,
        }
    }

    /// Goes on until dropped, or until something breaks that it needs.
    pub(super) async fn run(&mut self, tell: &watch::Sender<ControllerStatus>) -> Broken {
        loop {
            let (doubted, held) = (self.guard.due(), self.hold.due());
            let membership = self.membership.due();
            tokio::select! {
                batch = self.source.next() => match batch {
                    Some(batch) => {
                        self.synced = true;
                        self.take(batch, BTreeSet::new());
                    }
                    None => return Broken("a watch of the API server has ended"),
                },
                news = karmada_side::news(&mut self.fleet) => match news {
                    KarmadaEvent::Batch(batch) => self.take_fleet(batch),
                    KarmadaEvent::Notice(notice) => self.on_write_notice(notice),
                    KarmadaEvent::Seats => self.take_seats(),
                    KarmadaEvent::Broken(broken) => return broken,
                },
                () = wait_until(self.project_at) => self.update(BTreeSet::new()),
                () = wait_until(doubted) => self.believe(),
                () = wait_until(membership) => self.update(BTreeSet::new()),
                () = wait_until(held) => self.publish(BTreeSet::new()),
                () = self.reports.changed() => self.republish(),
                () = changed(&mut self.own_gateway) => self.republish(),
                notice = self.writer.next_notice() => match notice {
                    Some(notice) => self.on_write_notice(notice),
                    None => return Broken("the part that writes status has ended"),
                },
                () = self.term_events.ended() => return Broken("the part that writes Events has ended"),
                _ = self.tell_again.tick() => self.tell_again(),
            }
            tell.send_modify(|status| self.describe(status));
            // Whatever happens meanwhile waits, and is then looked at together.
            tokio::time::sleep(PACE).await;
        }
    }

    /// A notice of a write, and all that wait by now: where one write is refused, often all are.
    fn on_write_notice(&mut self, first: WriteNotice) {
        let mut notices = vec![first];
        notices.extend(self.writer.pending_notices());
        if let Some(writer) = self.fleet.as_mut().and_then(|fleet| fleet.writer.as_mut()) {
            notices.extend(writer.status.pending_notices());
        }
        let mut differs = false;
        for notice in &notices {
            match notice {
                WriteNotice::Refused { object, .. } | WriteNotice::Recovered { object } => {
                    differs |= self.write_failures.take(notice);
                    let standing = self.write_failures.of(object);
                    self.problems.set(ProblemSource::Writes(object.clone()), standing);
                }
                _ => self.term_events.write_notice(notice, self.store.objects()),
            }
        }
        if differs {
            self.tell_problems();
        }
    }

    /// What Karmada's API server says. Only from the first time on it is known which addresses MultiClusterServices have:
    /// those that were thought to be free until then are looked at again.
    fn take_fleet(&mut self, batch: Batch) {
        let first = self.awaits_fleet();
        if let Some(fleet) = &mut self.fleet {
            fleet.synced = true;
        }
        let mut heard = BTreeSet::new();
        if first {
            tracing::info!("the Karmada API server has said which MultiClusterServices there are");
            let before =
                std::mem::replace(&mut self.projector, Projector::new(self.options.projection.clone()));
            let gone = before.problems().cloned().collect();
            self.problems.apply(&ProblemChanges { gone, ..ProblemChanges::default() });
            heard = self.all_services();
            self.follow_mandate();
        }
        self.take(batch, heard);
    }

    /// Who writes on the Karmada control plane has changed.
    fn take_seats(&mut self) {
        let Some(fleet) = &mut self.fleet else { return };
        if fleet.is_to_be_seated() {
            let events = fleet.seat(&self.options);
            for object in self.write_failures.forget_fleet() {
                self.problems.set(ProblemSource::Writes(object), []);
            }
            self.tell_problems();
            self.term_events.set_fleet_events(events, self.problems.iter(), self.store.objects());
        }
        self.follow_mandate();
        if self.synced {
            // What was said of them while somebody else decided was lost.
            let all = self.store.objects().fleet.services.keys().cloned().collect();
            self.update(all);
        }
    }

    fn follow_mandate(&mut self) {
        if let Some(fleet) = &self.fleet {
            self.projector.set_mandate(fleet.mandate());
        }
    }

    /// Whether it is not known yet which addresses MultiClusterServices have.
    fn awaits_fleet(&self) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| !fleet.synced)
    }

    fn take(&mut self, batch: Batch, mut heard: BTreeSet<ServiceKey>) {
        for change in batch.changes {
            let admitted = self.guard.admit(change, self.store.objects(), Instant::now()).into_change();
            heard.extend(services(&admitted));
            self.apply(admitted);
        }
        // Pools and gateways are here.
        if self.synced {
            self.update(heard);
        }
    }

    /// Offers Events again, after a look at who writes on the Karmada control plane: nothing else tells of that.
    fn tell_again(&mut self) {
        if self.synced && self.fleet.is_some() {
            self.update(BTreeSet::new());
        } else {
            self.tell_problems();
        }
        self.term_events.again(self.store.objects());
    }

    /// To the store, but for the slices of the gateways, which wait for the next update.
    fn apply(&mut self, change: Change) {
        if let Some(change) = self.membership.admit(change) {
            self.store.apply(change);
        }
    }

    /// The lists that were doubted are believed.
    fn believe(&mut self) {
        for change in self.guard.release(Instant::now()) {
            self.apply(change);
        }
        if self.synced {
            self.update(BTreeSet::new());
        }
    }

    /// From what changed in the store to what is to be written. Services that were `heard` of may look as they did before:
    /// then somebody has undone what we wrote, and we have not seen it in between.
    fn update(&mut self, heard: BTreeSet<ServiceKey>) {
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
        of_watches.extend(self.fleet.iter().flat_map(|fleet| fleet.source.problems()));
        of_watches.extend(self.fleet.iter().flat_map(KarmadaSide::problems));
        self.problems.set(ProblemSource::Watches, &of_watches);
        self.reports.follow(gateway_reports::addresses(self.gateway_slices()));
        let mut touched = projection.touched;
        touched.extend(heard);
        touched.append(&mut self.refresh_gateway_failures(&touched));
        self.publish(touched);
    }

    fn all_services(&self) -> BTreeSet<ServiceKey> {
        let objects = self.store.objects();
        objects.services.keys().chain(objects.fleet.services.keys()).cloned().collect()
    }

    fn describe(&self, status: &mut ControllerStatus) {
        status.leading = true;
        // Told by the Lease only when it is looked at the next time.
        status.leader = Some(self.options.identity.clone());
        status.synced = self.synced && !self.awaits_fleet();
        status.gateways = self.gateway_failures.gateways().ready;
        status.services = self.projector.published();
        status.write_failures = self.write_failures.count();
        status.events_dropped = self.term_events.events_dropped();
        status.kinds = self.source.kinds();
        status.karmada_kinds = self.fleet.iter().flat_map(|fleet| fleet.source.kinds()).collect();
        status.held = self.guard.holding();
        status.problems = self.problems.len();
        status.first_problems = self.problems.iter().take(FIRST_PROBLEMS).cloned().collect();
    }
}

/// The Services that are told of.
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
