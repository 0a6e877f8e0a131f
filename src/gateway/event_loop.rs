//! The gateway's event loop: takes updates of the sources into the store, projects them, applies the routing table to the data plane,
//! and answers the admin server. Nothing here blocks.

mod announcing;
mod answers;
mod lame_duck;
mod reconfigure;
mod reports;
mod takeover;
mod takeover_counts;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::api::store::{ServiceKey, Store};
use sheave_control::controller::ControllerStatus;
use sheave_control::controller::all_gateways::PATIENCE_WITH_ONE;
use sheave_control::projection::{Projection, Projector, Role};
use sheave_control::time::{self, wait_until};
use sheave_dataplane::{ConnectionLog, Dataplane, Drained, Observer, StuckWorker};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, sleep_until};

use super::capacity::Capacity;
use super::connection_log::ConnectionLogWriter;
use super::memory::MemoryWatch;
use super::options::{announce_options, dataplane_options, projection_options};
use super::overload::Overload;
use super::problem_log::ProblemLog;
use super::problems::Failures;
use super::sources::{SourceUpdate, Sources};
use crate::config::{Config, SeriesLimits};
use crate::exit::Exit;
use crate::http::health::{self, Health};
use crate::http::metrics::families::UPDATE_SECONDS;
use crate::http::query::Query;
use crate::http::report;
use crate::retry;
use crate::takeover::predecessor::{Lifeline, Predecessor};
use crate::takeover::successor::{Outcome, Successor};
use announcing::Announcing;
use lame_duck::Phase;
pub(crate) use reconfigure::NewConfig;
pub(crate) use takeover::Servers;
use takeover::{connections_left, report_connections, report_nothing_left};
use takeover_counts::TakeoverCounts;

/// How long the workers may take to show that they run.
const WORKER_PATIENCE: Duration = Duration::from_secs(2);
/// A controller that asks for the status hears that a worker is stuck.
const _: () = assert!(WORKER_PATIENCE.as_secs() < PATIENCE_WITH_ONE.as_secs());

/// After an update nothing is taken in for as long as it took, up to this: a burst becomes one update, and the data plane
/// gets at least half of a core however fast the objects change.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A running gateway.
pub(crate) struct EventLoop {
    started: Instant,
    role: &'static str,
    node: String,
    drain: Duration,
    series: SeriesLimits,
    /// What the machine gives.
    shares: Capacity,
    health: Health,
    dataplane: Dataplane,
    /// Behind the data plane, whose last connections it waits for when it is dropped.
    connection_log: ConnectionLogWriter,
    memory: MemoryWatch,
    /// Where this process listens for other ends than frontends, health check node ports aside.
    servers: BTreeSet<SocketAddr>,
    sources: Sources,
    store: Store,
    projector: Projector,
    /// What is in force. None before the first objects have come.
    projection: Option<Projection>,
    /// Nothing is taken in before.
    pause: Instant,
    /// When to project again, although nothing may be heard until then.
    due: Option<Instant>,
    /// When the table last changed.
    applied: Option<Instant>,
    /// Grows whenever what is known of the objects may have changed.
    revision: u64,
    failures: Failures,
    overload: Overload,
    problem_log: ProblemLog,
    report: watch::Sender<GatewayReport>,
    /// Of the controller in this process, if there is one.
    controller: Option<watch::Receiver<ControllerStatus>>,
    phase: Phase,
    /// Nothing will ever be heard again of the objects.
    source_ended: bool,
    /// Another process serves in place of this one.
    handed_over: bool,
    /// Who serves until this one has taken over.
    predecessor: Option<Predecessor>,
    /// From when on this one has taken over, until it ends.
    lifeline: Option<Lifeline>,
    takeovers: Arc<TakeoverCounts>,
    announcing: Announcing,
    /// The headless Service over the gateways' Pods.
    gateways: ServiceKey,
}

/// What reaches a running loop.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Of the admin server.
    pub(crate) queries: mpsc::Receiver<Query>,
    /// What is in force from then on.
    pub(crate) configs: mpsc::Receiver<NewConfig>,
    /// The time for a lame duck.
    pub(crate) stop: oneshot::Receiver<Duration>,
}

/// Why the loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ended {
    /// It was stopped.
    Stopped(Drained),
    /// It cannot go on.
    Failed,
    /// Another process has taken over.
    HandedOver(Drained),
    /// It has never served: it was stopped before it could take over, or could not.
    NotTakenOver,
}

impl EventLoop {
    /// Starts the workers. The loop stays where it is on the heap: futures that hold it are moved on the stack. Nothing is served before the first objects have come, nor before this process has taken over from its
    /// predecessor.
    ///
    /// # Errors
    /// If a worker cannot be started.
    pub(crate) fn start(
        config: &Config,
        shares: &Capacity,
        sources: Sources,
        predecessor: Option<Predecessor>,
    ) -> io::Result<Box<Self>> {
        let (told, records) = ConnectionLog::new();
        let connection_log =
            ConnectionLogWriter::start(records, told.lost(), config.connection_log.lines_per_service)?;
        let dataplane = Dataplane::start(dataplane_options(config, shares, told, predecessor.is_some()))?;
        dataplane.watch_workers(end_process)?;
        let memory = MemoryWatch::start(config.limits.memory, dataplane.memory_gauge())?;
        Ok(Box::new(Self {
            started: Instant::now(),
            role: "gateway",
            node: config.node.clone(),
            drain: config.timeouts.drain,
            series: config.metrics.limits,
            shares: shares.with_limits_of(config),
            health: Health::new(shares.pages()),
            dataplane,
            connection_log,
            memory,
            servers: servers(config),
            projector: Projector::new(projection_options(config, sources.role())),
            sources,
            store: Store::default(),
            projection: None,
            pause: Instant::now(),
            due: None,
            applied: None,
            revision: 0,
            failures: Failures::default(),
            overload: Overload::default(),
            problem_log: ProblemLog::default(),
            report: watch::Sender::new(report::report(&config.node, 0, &[])),
            controller: None,
            phase: Phase::Serving,
            source_ended: false,
            handed_over: false,
            announcing: Announcing::new(announce_options(config), predecessor.is_none()),
            predecessor,
            lifeline: None,
            takeovers: Arc::default(),
            gateways: config.gateways.clone(),
        }))
    }

    /// The answers for health probes.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// For scrapes, which must not wait for this loop or hold it up.
    pub(crate) fn observer(&self) -> Observer {
        self.dataplane.observer()
    }

    /// The report to the controller, now and later.
    pub(crate) fn report(&self) -> watch::Receiver<GatewayReport> {
        self.report.subscribe()
    }

    /// Shows a controller that runs in the same process.
    pub(crate) fn run_beside(&mut self, controller: watch::Receiver<ControllerStatus>) {
        self.controller = Some(controller);
        self.role = "run";
    }

    /// Follows the sources and answers queries until the time that `stop` leaves for a lame duck is over, until another process has
    /// taken over, or until the sources end by themselves: stale endpoints would stay in force for ever. Then drains. `serve` starts
    /// the servers of this process once it is the one that serves, and `ready` is called when the first objects are in force. `left`
    /// is given the process that serves in place of this one.
    pub(crate) async fn run(
        mut self: Box<Self>,
        Inbox { mut queries, mut configs, mut stop }: Inbox,
        serve: impl FnOnce(&Self) -> Servers,
        ready: impl FnOnce(),
        left: oneshot::Sender<Arc<Successor>>,
    ) -> Ended {
        let (mut serve, mut ready, mut drain_at, mut alone) = (Some(serve), Some(ready), None, false);
        let mut servers = Servers::default();
        let mut retry = tokio::time::interval(retry::EVERY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.predecessor.is_none()
                && let Some(serve) = serve.take()
            {
                servers = serve(&self);
            }
            tokio::select! {
                biased;
                () = wait_until(drain_at) => {
                    // Who is about to take over saves new connections from a closed port.
                    drain_at = servers.await_successor();
                    if drain_at.is_none() {
                        break;
                    }
                }
                lame_duck = &mut stop, if drain_at.is_none() => {
                    servers.let_former_pod_return();
                    drain_at = self.withdraw(lame_duck.unwrap_or_default()).or(servers.await_successor());
                    if drain_at.is_none() {
                        break;
                    }
                }
                () = ended(&self.predecessor), if !alone => alone = true,
                left = connections_left(&self.lifeline) => self.count_elsewhere(left),
                update = next(&mut self.sources, &self.store, self.pause) => {
                    let Some(update) = update else {
                        tracing::error!(
                            bug = true,
                            "the object sources ended, which must not happen: exiting to be restarted"
                        );
                        self.source_ended = true;
                        break;
                    };
                    let received = update.received();
                    self.take(update);
                    // What it has in memory is newer than any snapshot, as long as it serves.
                    let stale = self.predecessor.is_some() && !alone && self.sources.stands_on_snapshot();
                    if !self.sources.is_loaded() || stale {
                        continue;
                    }
                    if !self.take_over(received).await {
                        self.dataplane.close(WORKER_PATIENCE).await;
                        return Ended::NotTakenOver;
                    }
                    if let Some(ready) = ready.take() {
                        self.log_ready();
                        ready();
                    }
                }
                successor = servers.next_successor() => {
                    if self.hand_over_beside(&successor, &mut queries).await == Outcome::HandedOver {
                        servers.leave();
                        if let Some(lifeline) = self.lifeline.take() {
                            lifeline.hand_over().await;
                        }
                        let successor = Arc::new(successor);
                        left.send(Arc::clone(&successor)).ok();
                        return Ended::HandedOver(self.drain(queries, Some(successor)).await);
                    }
                }
                () = wait_until(self.due) => self.project(Instant::now()),
                () = self.announcing.changed() => {
                    self.dedicate_announced();
                    self.report_failures();
                }
                () = self.dataplane.changed() => {
                    self.dataplane.refresh();
                    self.report_overload();
                }
                Some(query) = queries.recv() => self.answer(query),
                Some(NewConfig { config, applied }) = configs.recv() => {
                    self.reconfigure(&config);
                    applied.send(()).ok();
                }
                _ = retry.tick() => self.retry(),
            }
        }
        drop(configs);
        if self.predecessor.is_some() {
            self.dataplane.close(WORKER_PATIENCE).await;
            return Ended::NotTakenOver;
        }
        let failed = self.source_ended;
        servers.stop_handing_over();
        self.announcing.left().await;
        let drained = self.drain(queries, None).await;
        if failed { Ended::Failed } else { Ended::Stopped(drained) }
    }

    /// Lets open connections finish, and ends. The process that serves in place of this one is told how many are left; its objects are
    /// the latest, and belong into the snapshot.
    async fn drain(
        mut self: Box<Self>,
        mut queries: mpsc::Receiver<Query>,
        successor: Option<Arc<Successor>>,
    ) -> Drained {
        tracing::info!(deadline = ?self.drain, "draining: new connections are not accepted");
        self.enter(Phase::Draining);
        self.lifeline = None;
        let mut retry = tokio::time::interval(retry::EVERY);
        let drained = {
            let mut drained = pin!(self.dataplane.drain(self.drain));
            let mut reports = pin!(report_connections(&self.dataplane, successor.as_deref()));
            loop {
                tokio::select! {
                    biased;
                    drained = &mut drained => break drained,
                    Some(query) = queries.recv() => self.answer(query),
                    _ = retry.tick() => self.prove_healthy(),
                    () = &mut reports => {}
                }
            }
        };
        let counts = self.dataplane.connection_counts();
        self.dataplane.close(WORKER_PATIENCE).await;
        match successor {
            Some(successor) => report_nothing_left(counts, &successor).await,
            None => self.sources.finish(&self.store).await,
        }
        drained
    }

    /// Takes an update into the store, and projects it.
    fn take(&mut self, update: SourceUpdate) {
        let (started, received) = (Instant::now(), update.received());
        self.sources.take(update, &mut self.store);
        if self.predecessor.is_none() && !self.awaits_claims() {
            self.project(received);
        }
        self.pause = Instant::now() + started.elapsed().min(LONGEST_PAUSE);
    }

    /// Whether an object that is not loaded yet may have an older claim to an address that is allocated here. Folders are
    /// read at once; where others give the addresses, one API server that is away must not keep the other's from being
    /// served.
    fn awaits_claims(&self) -> bool {
        self.sources.role() == Role::Standalone && !self.sources.is_loaded()
    }

    /// Projects the store and applies the table; `since` is when the update was received.
    fn project(&mut self, since: Instant) {
        let now = jiff::Timestamp::now();
        self.revision += 1;
        self.projector.set_now(now);
        let dirty = self.store.take_dirty();
        let projection = self.projector.project(self.store.objects(), &dirty);
        self.due = projection.due.map(|due| Instant::now() + time::time_until(due, now));
        let servers = self.servers.iter().copied().chain(health::places(&projection));
        let node_addresses = projection.node_addresses.iter().copied().collect();
        self.dataplane.reserve(servers.collect(), node_addresses);
        if self.projection.is_none() {
            self.claim_heartbeat_port();
        }
        if projection.changed {
            let changed = self.dataplane.apply(self.with_former_addresses(&projection.table));
            let took = since.elapsed();
            self.applied = Some(Instant::now());
            metrics::histogram!(UPDATE_SECONDS.name).record(took);
            tracing::info!(
                generation = projection.table.generation(),
                frontends = projection.table.frontends().len(),
                changed,
                ?took,
                "routing table in force"
            );
        }
        self.sources.mark_applied();
        self.health.follow(&projection);
        self.projection = Some(projection);
        self.announce();
        self.prove_healthy();
        self.report_failures();
        self.report_problems();
    }

    /// Retries what failed.
    fn retry(&mut self) {
        self.dataplane.retry();
        self.health.retry();
        self.retry_announcing();
        self.dedicate_announced();
        self.announce_staleness();
        self.report_failures();
        self.prove_healthy();
    }

    /// All updates so far are in force, since this runs on the loop; the workers prove it by answering.
    fn prove_healthy(&self) {
        self.health.proven_by(self.dataplane.answers(WORKER_PATIENCE));
    }
}

/// Ends the process, to be started again: the kernel gives a worker new connections as long as its sockets are open.
fn end_process(StuckWorker { worker, step, time }: StuckWorker) {
    tracing::error!(bug = true, worker, step, ?time, "a worker is stuck: exiting to be restarted");
    std::process::exit(Exit::Software.code().into());
}

/// Addresses that this process listens on, apart from frontends.
fn servers(config: &Config) -> BTreeSet<SocketAddr> {
    let metrics = config.metrics.listen.and_then(|listen| listen.addr().ok());
    let servers = [Some(config.admin_listen), config.healthz_listen, config.report_listen, metrics];
    servers.into_iter().flatten().collect()
}

/// Waits until the process that is to be taken over from has ended. Cancel safe.
async fn ended(predecessor: &Option<Predecessor>) {
    match predecessor {
        Some(predecessor) => predecessor.ended().await,
        None => std::future::pending().await,
    }
}

/// The next update of the sources, but not before `pause` ends. Cancel safe.
async fn next(sources: &mut Sources, store: &Store, pause: Instant) -> Option<SourceUpdate> {
    sleep_until(pause.into()).await;
    sources.next(store).await
}

#[cfg(test)]
mod tests;
