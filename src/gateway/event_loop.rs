//! Event loop of the gateway: applies updates of the sources to the store, projects them, applies the routing table to the data plane, and
//! answers the admin server. It never blocks.

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

use sheave_console::connection_log::ConnectionLogWriter;
use sheave_console::exit::Exit;
use sheave_console::http::health::{self, Health};
use sheave_console::http::metrics::SeriesLimits;
use sheave_console::http::metrics::families::UPDATE_SECONDS;
use sheave_console::http::query::Query;
use sheave_console::http::report;
use sheave_console::retry;
use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::api::store::{ServiceKey, Store};
use sheave_control::controller::ControllerStatus;
use sheave_control::controller::all_gateways::PATIENCE_WITH_ONE;
use sheave_control::projection::{Projection, Projector, Role};
use sheave_control::time::{self, wait_until};
use sheave_dataplane::{ConnectionLog, Dataplane, Drained, MemoryWatch, Observer, StuckWorker};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, sleep_until};

use super::capacity::Capacity;
use super::options::{announce_options, dataplane_options, projection_options};
use super::overload::Overload;
use super::problem_log::ProblemLog;
use super::problems::Failures;
use super::sources::{SourceUpdate, Sources};
use crate::config::Config;
use crate::takeover::predecessor::{Lifeline, Predecessor};
use crate::takeover::successor::{Outcome, Successor};
use announcing::Announcing;
use lame_duck::Phase;
pub(crate) use reconfigure::NewConfig;
pub(crate) use takeover::Servers;
use takeover::{connections_left, report_connections, report_nothing_left};
use takeover_counts::TakeoverCounts;

/// How long workers may take to prove that they run.
const WORKER_PATIENCE: Duration = Duration::from_secs(2);
/// A controller that queries the status must learn that a worker is stuck before it gives up.
const _: () = assert!(WORKER_PATIENCE.as_secs() < PATIENCE_WITH_ONE.as_secs());

/// After an update, the loop pauses for as long as the update took, up to this limit. A burst thus becomes one update, and the data plane gets
/// at least half of a core however fast objects change.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A running gateway.
pub(crate) struct EventLoop {
    started: Instant,
    role: &'static str,
    node: String,
    drain: Duration,
    series: SeriesLimits,
    /// Capacity of the machine.
    shares: Capacity,
    health: Health,
    dataplane: Dataplane,
    /// Declared after the data plane, so that it is dropped later and gets the records of the last connections.
    connection_log: ConnectionLogWriter,
    memory: MemoryWatch,
    /// Addresses that this process listens on besides frontends and health check node ports.
    servers: BTreeSet<SocketAddr>,
    sources: Sources,
    store: Store,
    projector: Projector,
    /// Projection in force; `None` before the first objects have arrived.
    projection: Option<Projection>,
    /// No update is processed before this time.
    pause: Instant,
    /// Time of the next projection even without an update.
    due: Option<Instant>,
    /// Time of the last change of the table.
    applied: Option<Instant>,
    /// Increases whenever the known objects may have changed.
    revision: u64,
    failures: Failures,
    overload: Overload,
    problem_log: ProblemLog,
    report: watch::Sender<GatewayReport>,
    /// Status of the controller in this process, if any.
    controller: Option<watch::Receiver<ControllerStatus>>,
    phase: Phase,
    /// Whether the sources have ended, so that no more updates will arrive.
    source_ended: bool,
    /// Whether another process has taken over.
    handed_over: bool,
    /// Process that serves until this one has taken over.
    predecessor: Option<Predecessor>,
    /// Connection to the predecessor, from the takeover until that process ends.
    lifeline: Option<Lifeline>,
    takeovers: TakeoverCounts,
    announcing: Announcing,
    /// Headless Service over the gateways' Pods.
    gateways: ServiceKey,
}

/// Inputs of a running loop.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Queries of the admin server.
    pub(crate) queries: mpsc::Receiver<Query>,
    /// Reloaded configurations to apply.
    pub(crate) configs: mpsc::Receiver<NewConfig>,
    /// Request to stop, with the lame duck time.
    pub(crate) stop: oneshot::Receiver<Duration>,
}

/// Reason why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ended {
    /// The loop was stopped.
    Stopped(Drained),
    /// The sources ended unexpectedly.
    Failed,
    /// Another process has taken over.
    HandedOver(Drained),
    /// This process never served: it was stopped before the takeover, or the takeover failed.
    NotTakenOver,
}

impl EventLoop {
    /// Starts the workers. The loop is boxed, since futures that hold it are moved on the stack. Nothing is served before the first objects have
    /// arrived and this process has taken over from its predecessor.
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
            health: Health::new(shares.pages.clone()),
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
            takeovers: TakeoverCounts::default(),
            gateways: config.gateways.clone(),
        }))
    }

    /// State of the health probes.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Observer for scrapes, which neither wait for this loop nor delay it.
    pub(crate) fn observer(&self) -> Observer {
        self.dataplane.observer()
    }

    /// Subscribes to the report for the controller.
    pub(crate) fn report(&self) -> watch::Receiver<GatewayReport> {
        self.report.subscribe()
    }

    /// Attaches the controller that runs in the same process.
    pub(crate) fn run_beside(&mut self, controller: watch::Receiver<ControllerStatus>) {
        self.controller = Some(controller);
        self.role = "run";
    }

    /// Follows the sources and answers queries until `stop` and its lame duck time are over, another process has taken over, or the sources end
    /// unexpectedly (stale endpoints would otherwise stay in force forever). Then drains. `serve` starts the servers of this process once it is
    /// the one that serves, and `ready` is called when the first objects are in force. `left` receives the successor after a takeover.
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
                    // A successor that is about to take over saves new connections from a closed port.
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
                    // While the predecessor serves, its objects in memory are newer than any snapshot.
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

    /// Lets open connections finish, and ends. A successor is sent how many are left. It has the latest objects, so only a process without a
    /// successor writes the snapshot.
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

    /// Applies an update to the store, and projects it.
    fn take(&mut self, update: SourceUpdate) {
        let (started, received) = (Instant::now(), update.received());
        self.sources.take(update, &mut self.store);
        if self.predecessor.is_none() && !self.awaits_claims() {
            self.project(received);
        }
        self.pause = Instant::now() + started.elapsed().min(LONGEST_PAUSE);
    }

    /// Whether an object that is not yet loaded may have an older claim to an address that is allocated here. Folders are read at once. If a
    /// controller allocates addresses, one unreachable API server must not block the objects of the other.
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

    /// Retries failed operations.
    fn retry(&mut self) {
        self.dataplane.retry();
        self.health.retry();
        self.retry_announcing();
        self.dedicate_announced();
        self.announce_staleness();
        self.report_failures();
        self.prove_healthy();
    }

    /// Marks the process healthy if all workers answer. This runs on the loop, so all updates so far are in force.
    fn prove_healthy(&self) {
        self.health.proven_by(self.dataplane.answers(WORKER_PATIENCE));
    }
}

/// Exits to be restarted: the kernel gives a stuck worker new connections while its sockets are open.
fn end_process(StuckWorker { worker, step, time }: StuckWorker) {
    tracing::error!(bug = true, worker, step, ?time, "a worker is stuck: exiting to be restarted");
    std::process::exit(Exit::Software.code().into());
}

/// Addresses that this process listens on, apart from frontends.
fn servers(config: &Config) -> BTreeSet<SocketAddr> {
    let metrics = config.metrics.addr().ok().flatten();
    let servers = [Some(config.admin_listen), config.healthz_listen, config.report_listen, metrics];
    servers.into_iter().flatten().collect()
}

/// Waits until the predecessor has ended. Cancel safe.
async fn ended(predecessor: &Option<Predecessor>) {
    match predecessor {
        Some(predecessor) => predecessor.ended().await,
        None => std::future::pending().await,
    }
}

/// Next update of the sources, after `pause`. Cancel safe.
async fn next(sources: &mut Sources, store: &Store, pause: Instant) -> Option<SourceUpdate> {
    sleep_until(pause.into()).await;
    sources.next(store).await
}

#[cfg(test)]
mod tests;
