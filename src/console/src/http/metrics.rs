//! Contents of `/metrics`: counters of the data plane in total and per frontend, and state of the event loop.
//!
//! Reads the table and the counters in place on the calling thread, since large tables take a while.

mod announcements;
mod endpoints;
pub mod exposition;
pub mod families;
mod frontends;
mod process;
pub mod recorder;
pub mod scrape;

use std::collections::BTreeMap;
use std::sync::Arc;

use sheave_announce::Status;
use sheave_control::api::kinds::{ControlPlane, KINDS};
use sheave_control::controller::{ControllerStatus, PoolCounts};
use sheave_dataplane::select::ActiveTable;
use sheave_dataplane::{HealthCounts, Observer};
use sheave_model::RoutingTable;
use sheave_model::{Frontend, FrontendKind, Protocol, Route};

use crate::connection_log::LineCounts;
use crate::http::health::{HealthPages, PageCounter};
use crate::http::metrics::exposition::Exposition;
use crate::http::metrics::families::{self as names, Family};
use crate::views::problem::ProblemView;
use crate::views::services::{self, ServiceCounts, ServiceFacts, ServingObstacles};
use crate::views::status::{GuardView, KindView, ProcessView, TakeoverView};

/// Limits of series, which Prometheus pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesLimits {
    /// Frontends with series of their own.
    pub frontends: usize,
    /// Endpoints of frontends.
    pub endpoints: usize,
}

/// Facts that only the control loop knows. Their size does not grow with the table, except for Problems.
#[derive(Clone, Debug)]
pub struct LoopFacts {
    /// Status of the process.
    pub status: ProcessView,
    /// Problems and load balancers that are not served.
    pub all_problems: Vec<ProblemView>,
    /// What keeps the gateway from serving as its table says.
    pub obstacles: ServingObstacles,
    /// Number of Problems in the status, by reason.
    pub problems: BTreeMap<String, usize>,
    /// Requests of health checks.
    pub pages: HealthPages,
    /// Worker threads that were started again.
    pub worker_restarts: u64,
    /// Endpoints by health.
    pub health: HealthCounts,
    /// Status of the announcer; the default if there is none.
    pub announcements: Arc<Status>,
    /// Lines of the connection log.
    pub connection_log: LineCounts,
    /// Lines of the process log that were dropped.
    pub dropped_log_lines: u64,
    /// Limits of series.
    pub series: SeriesLimits,
}

/// All metrics of a controller, as Prometheus text.
pub(crate) fn of_controller(
    status: &ProcessView,
    controller: &ControllerStatus,
    dropped_log_lines: u64,
) -> String {
    let mut text = Exposition::default();
    text.family(&names::BUILD_INFO).add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(&names::CONTROLLER_LEADING).add(&[], u64::from(controller.leading));
    text.family(&names::CONTROLLER_SERVICES).add(&[], controller.services as u64);
    text.family(&names::CONTROLLER_GATEWAYS).add(&[], controller.gateways as u64);
    text.family(&names::CONTROLLER_WRITE_FAILURES).add(&[], controller.write_failures as u64);
    text.family(&names::CONTROLLER_EVENTS_DROPPED).add(&[], controller.events_dropped);
    write_pools(&mut text, controller);
    let reasons = controller.problems_by_reason.iter().map(|(reason, count)| (*reason, *count));
    write_process(&mut text, status, dropped_log_lines, reasons);
    text.finish().unwrap_or_default()
}

/// All metrics of the gateway, except those that are recorded with the `metrics` crate.
pub fn of_gateway(text: &mut Exposition, facts: &LoopFacts, observer: &Observer) {
    let active = observer.table();
    let (table, status) = (active.table(), &facts.status);
    text.family(&names::BUILD_INFO).add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(&names::DRAINING).add(&[], u64::from(status.lame_duck || status.draining));
    text.family(&names::TABLE_GENERATION).add(&[], table.generation());
    text.family(&names::TABLE_FRONTENDS).add(&[], table.frontends().len() as u64);
    if let Some(steering) = &status.steering {
        text.family(&names::FRONTENDS_OPEN)
            .add(&[("by", "sockets")], steering.sockets as u64)
            .add(&[("by", "steering")], steering.steered as u64)
            .add(&[("by", "kernel")], steering.kernel as u64);
    }
    write_services(text, facts, &active);
    write_without_endpoints(text, table);
    write_takeover(text, status.takeover.as_ref());
    write_page(text, &names::HEALTHZ_REQUESTS, &facts.pages.healthz);
    write_page(text, &names::LIVEZ_REQUESTS, &facts.pages.livez);
    let reasons = facts.problems.iter().map(|(reason, count)| (reason.as_str(), *count));
    write_process(text, status, facts.dropped_log_lines, reasons);
    text.family(&names::WORKER_RESTARTS).add(&[], facts.worker_restarts);
    text.family(&names::AFFINITY_RECORDS).add(&[], observer.affinity().len() as u64);
    write_health(text, &active, facts.health);
    announcements::write(text, &facts.announcements);
    write_connection_log(text, facts.connection_log);
    frontends::write(text, observer, table, facts.series.frontends);
    endpoints::write(text, &active, observer.endpoint_failures(), facts.series.endpoints);
}

fn write_takeover(text: &mut Exposition, takeover: Option<&TakeoverView>) {
    let Some(TakeoverView { seconds, failures }) = takeover else { return };
    text.family(&names::TAKEOVER_SECONDS).add_fraction("", seconds.unwrap_or_default());
    text.family(&names::TAKEOVER_FAILURES).add(&[], *failures);
}

fn write_connection_log(text: &mut Exposition, counts: LineCounts) {
    let LineCounts { written, over_rate, lost } = counts;
    text.family(&names::CONNECTION_LOG_LINES)
        .add(&[("outcome", "written")], written)
        .add(&[("outcome", "over_rate")], over_rate)
        .add(&[("outcome", "lost")], lost);
}

/// Metrics of every process.
fn write_process<'a>(
    text: &mut Exposition,
    status: &ProcessView,
    dropped_log_lines: u64,
    problems: impl Iterator<Item = (&'a str, usize)>,
) {
    text.family(&names::READY).add(&[], u64::from(status.not_ready.is_none()));
    text.family(&names::PROBLEMS).add(&[], status.problems as u64);
    let mut samples = text.family(&names::PROBLEMS_BY_REASON);
    for (reason, count) in problems {
        samples.add(&[("reason", reason)], count as u64);
    }
    write_source(text, status);
    write_guard(text, status);
    text.family(&names::LOG_LINES_DROPPED).add(&[], dropped_log_lines);
    process::write(text);
}

/// Metrics from the status of the pools, which the leader writes.
fn write_pools(text: &mut Exposition, controller: &ControllerStatus) {
    let mut samples = text.family(&names::POOL_ADDRESSES);
    for PoolCounts { name, used, free } in &controller.pools {
        for (state, count) in [("used", used), ("free", free)] {
            samples.add(&[("pool", name), ("state", state)], u64::try_from(*count).unwrap_or_default());
        }
    }
}

/// Metrics of Services by state, counted as in the status, the page and `sheave top`.
fn write_services(text: &mut Exposition, facts: &LoopFacts, active: &ActiveTable) {
    let LoopFacts { all_problems, obstacles, announcements, .. } = facts;
    let rows = services::rows(ServiceFacts {
        active,
        problems: all_problems,
        obstacles,
        announcements: Some(&**announcements),
    });
    let ServiceCounts { broken, degraded, ok } = ServiceCounts::of(&rows);
    text.family(&names::SERVICES)
        .add(&[("state", "serving")], ok as u64)
        .add(&[("state", "degraded")], degraded as u64)
        .add(&[("state", "broken")], broken as u64);
}

/// Metrics of frontends without endpoints. Only a `Local` policy drops; if there is no endpoint at all, connections are refused.
/// The internal policy applies to cluster addresses, the external one to all others.
fn write_without_endpoints(text: &mut Exposition, table: &RoutingTable) {
    let refuses = |frontend: &&Arc<Frontend>| *frontend.route(|it| &it.external) == Route::Reject;
    let refused = table.frontends().iter().filter(refuses).count();
    text.family(&names::FRONTENDS_WITHOUT_ENDPOINTS).add(&[], refused as u64);
    let drops = |frontend: &Frontend| [&frontend.external, &frontend.internal].contains(&&Route::Drop);
    let (internal, external): (Vec<_>, Vec<_>) = table
        .frontends()
        .iter()
        .filter(|frontend| drops(frontend))
        .partition(|frontend| frontend.kind == FrontendKind::ClusterIp);
    text.family(&names::FRONTENDS_WITHOUT_LOCAL)
        .add(&[("traffic_policy", "external")], external.len() as u64)
        .add(&[("traffic_policy", "internal")], internal.len() as u64);
}

/// Age of the objects and health of their watches. Kinds that were never listed, and manifests, have no age.
fn write_source(text: &mut Exposition, status: &ProcessView) {
    let mut samples = text.family(&names::SOURCE_FROM_SNAPSHOT);
    samples.add(&[], u64::from(status.source.from_snapshot));
    if let Some(karmada) = &status.karmada {
        samples.add(&[OF_KARMADA], u64::from(karmada.from_snapshot));
    }
    let mut samples = text.family(&names::SOURCE_LAST_HEARD);
    for (kind, labels) in labelled(status) {
        if let Some(seconds) = kind.last_heard_seconds {
            samples.add(&labels, seconds);
        }
    }
    let mut write = |family, value: fn(&KindView) -> u64| {
        let mut samples = text.family(family);
        for (kind, labels) in labelled(status) {
            samples.add(&labels, value(kind));
        }
    };
    write(&names::SOURCE_FAILING, |kind| kind.error.is_some().into());
    write(&names::SOURCE_WATCHES, |kind| kind.watches);
    write(&names::SOURCE_RELISTS, |kind| kind.restarts);
    if let Some(snapshot) = &status.source.snapshot {
        text.family(&names::SNAPSHOT_FAILING).add(&[], snapshot.error.is_some().into());
    }
}

/// Number of held objects for each kind of the sources. It is 0 for lists that were accepted, so that alerts have a series.
fn write_guard(text: &mut Exposition, status: &ProcessView) {
    let mut samples = text.family(&names::GUARD_HELD_OBJECTS);
    for (kind, labels) in labelled(status) {
        let of_karmada = labels.contains(&OF_KARMADA);
        let held = status.guard.iter().filter(|held| is_of(held, &kind.kind, of_karmada));
        samples.add(&labels, held.map(|held| held.kept as u64).sum());
    }
}

/// Label of the Karmada control plane's kinds, since both have kinds of the same name.
const OF_KARMADA: (&str, &str) = ("source", "karmada");

/// Kinds of all sources, with the labels of their series.
fn labelled(status: &ProcessView) -> impl Iterator<Item = (&KindView, Vec<(&'static str, &str)>)> {
    let local = status.source.kinds.iter().map(|kind| (kind, vec![("kind", &*kind.kind)]));
    let karmada = status.karmada.iter().flat_map(|source| &source.kinds);
    local.chain(karmada.map(|kind| (kind, vec![("kind", &*kind.kind), OF_KARMADA])))
}

/// Whether a held list is of this kind and API server.
fn is_of(held: &GuardView, kind: &str, of_karmada: bool) -> bool {
    let plane = if of_karmada { ControlPlane::Karmada } else { ControlPlane::Local };
    let mut rows = KINDS.iter().filter(|row| row.plane == plane && row.resource.kind == kind);
    rows.any(|row| row.guarded_as == Some(&held.kind))
}

/// Metrics of endpoint health.
fn write_health(text: &mut Exposition, table: &ActiveTable, counts: HealthCounts) {
    let mut samples = text.family(&names::ENDPOINTS_UNHEALTHY);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let count = table.health().unhealthy().filter(|(of, _)| of.protocol == protocol).count();
        samples.add(&[("protocol", protocol.name())], count as u64);
    }
    text.family(&names::EJECTIONS).add(&[], counts.ejections);
    text.family(&names::HEALTH_CHECKS)
        .add(&[("result", "passed")], counts.checks_passed)
        .add(&[("result", "failed")], counts.checks_failed);
}

fn write_page(text: &mut Exposition, family: &Family, page: &PageCounter) {
    let mut samples = text.family(family);
    for (code, answers) in page.by_code() {
        samples.add(&[("code", code)], answers);
    }
}

#[cfg(test)]
pub(super) mod tests;
