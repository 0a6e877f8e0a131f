//! Event loop of the gateway: takes updates from the pipeline, applies the routing table to the data plane, and answers the admin server.
//! It never blocks.

mod announcing;
mod answers;
mod takeover;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sheave_console::connection_log::ConnectionLogWriter;
use sheave_console::exit::Exit;
use sheave_console::http::health::{self, Health};
use sheave_console::http::metrics::SeriesLimits;
use sheave_console::http::metrics::families::{PROGRAMMING_SECONDS, UPDATE_SECONDS};
use sheave_console::http::query::Query;
use sheave_console::http::report;
use sheave_console::retry;
use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::api::store::ServiceKey;
use sheave_control::controller::ControllerStatus;
use sheave_control::controller::all_gateways::GATEWAY_ANSWER_TIMEOUT;
use sheave_control::pipeline::Pipeline;
use sheave_control::projection::{Projection, Role};
use sheave_control::sources::api_server::KindHints;
use sheave_control::sources::{Source, SourceUpdate, Sources};
use sheave_control::time::wait_until;
use sheave_dataplane::{ConnectionLog, Dataplane, Drained, MemoryWatch, Observer, StuckWorker};
use sheave_model::{ClientSource, Frontend, RoutingTable};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, sleep_until};

use super::capacity::Capacity;
use super::gateway_problems::GatewayProblems;
use super::options::{LiveOptions, announce_options, dataplane_options, projection_options};
use super::startup_log;
use crate::config::Config;
use crate::takeover::predecessor::{Lifeline, Predecessor};
use crate::takeover::successor::{Outcome, Successor};
use announcing::Announcing;
pub(crate) use takeover::Servers;
use takeover::{Takeovers, report_connections, report_nothing_left};

/// How long workers may take to prove that they run.
const WORKER_PATIENCE: Duration = Duration::from_secs(2);
/// A controller that queries the status must learn that a worker is stuck before it gives up.
const _: () = assert!(WORKER_PATIENCE.as_secs() < GATEWAY_ANSWER_TIMEOUT.as_secs());

/// After an update, the loop pauses for as long as the update took, up to this limit. A burst thus becomes one update, and the data plane gets
/// at least half of a core however fast objects change.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A running gateway.
pub(crate) struct EventLoop {
    identity: Identity,
    settings: LoopSettings,
    health: Health,
    dataplane: Dataplane,
    /// Declared after the data plane, so that it is dropped later and gets the records of the last connections.
    connection_log: ConnectionLogWriter,
    memory: MemoryWatch,
    pipeline: Pipeline,
    /// Projection in force; `None` before the first objects have arrived.
    projection: Option<Projection>,
    /// Time of the last change of the table.
    applied: Option<Instant>,
    /// No update is processed before this time.
    pause: Instant,
    /// Increases whenever the known objects may have changed.
    revision: u64,
    problems: GatewayProblems,
    report: watch::Sender<GatewayReport>,
    phase: Phase,
    takeovers: Takeovers,
    announcing: Announcing,
    /// Whether the sources have ended, so that no more updates will arrive.
    source_ended: bool,
}

/// Identity of a process, for the status, the report and the page.
struct Identity {
    started: Instant,
    role: &'static str,
    node: String,
    /// Headless Service over the gateways' Pods.
    gateways: ServiceKey,
    /// Status of the controller in this process, if any.
    controller: Option<watch::Receiver<ControllerStatus>>,
}

/// Settings that only the loop needs.
struct LoopSettings {
    drain: Duration,
    series: SeriesLimits,
    /// Capacity of the machine.
    shares: Capacity,
    /// Addresses that this process listens on besides frontends and health check node ports.
    servers: BTreeSet<SocketAddr>,
}

/// A configuration to apply.
#[derive(Debug)]
pub(crate) struct NewConfig {
    pub(crate) config: Arc<Config>,
    /// Notified once it is applied.
    pub(crate) applied: oneshot::Sender<()>,
}

/// Phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Between a request to stop and the drain: reports to probes and the controller that it is not ready, and keeps serving until load
    /// balancers have noticed. A SYN in that time meets an open port.
    LameDuck,
    /// Accepts nothing new, and lets open connections finish.
    Draining,
}

impl Phase {
    /// Reason for a failing readiness probe, if any.
    fn not_ready(self) -> Option<&'static str> {
        match self {
            Self::Serving => None,
            Self::LameDuck => Some("about to drain"),
            Self::Draining => Some("draining"),
        }
    }
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

/// What a gateway follows to serve.
enum Next {
    /// Some objects have changed.
    Update(SourceUpdate),
    /// There will be no more updates.
    SourceEnded,
    /// The predecessor has ended, or waits for this process no longer.
    PredecessorEnded,
}

/// What came of that.
enum Followed {
    /// Some objects are not there yet.
    Incomplete,
    /// The table has all objects, and this process serves.
    InForce,
    /// The takeover failed.
    NotTakenOver,
    /// There will be no more updates.
    SourceEnded,
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
        let projection = projection_options(config, role_of(&sources));
        Ok(Box::new(Self {
            identity: Identity {
                started: Instant::now(),
                role: "gateway",
                node: config.node.clone(),
                gateways: config.gateways.clone(),
                controller: None,
            },
            settings: LoopSettings {
                drain: config.timeouts.drain,
                series: config.metrics.limits,
                shares: shares.with_limits_of(config),
                servers: servers(config),
            },
            health: Health::new(shares.pages.clone()),
            dataplane,
            connection_log,
            memory,
            pipeline: Pipeline::new(sources, projection, Duration::ZERO),
            projection: None,
            applied: None,
            pause: Instant::now(),
            revision: 0,
            problems: GatewayProblems::default(),
            report: watch::Sender::new(report::report(&config.node, 0, &[])),
            phase: Phase::Serving,
            announcing: Announcing::new(announce_options(config), predecessor.is_none()),
            takeovers: Takeovers::new(predecessor),
            source_ended: false,
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

    /// Where to tell the gateway which kinds the controller reads.
    pub(crate) fn kind_hints(&self) -> Option<KindHints> {
        Some(self.pipeline.sources.local.api_server()?.watch().hints())
    }

    /// Attaches the controller that runs in the same process.
    pub(crate) fn run_beside(&mut self, controller: watch::Receiver<ControllerStatus>) {
        self.identity.controller = Some(controller);
        self.identity.role = "run";
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
        let (mut serve, mut ready, mut drain_at) = (Some(serve), Some(ready), None);
        let mut servers = Servers::default();
        let mut retry = retries();
        loop {
            if self.takeovers.predecessor.is_none()
                && let Some(serve) = serve.take()
            {
                servers = serve(&self);
            }
            let due = self.pipeline.due();
            tokio::select! {
                biased;
                // A successor that is about to take over saves new connections from a closed port.
                () = wait_until(drain_at) => match servers.await_successor() {
                    None => break,
                    later => drain_at = later,
                },
                lame_duck = &mut stop, if drain_at.is_none() => {
                    servers.let_former_pod_return();
                    match self.withdraw(lame_duck.unwrap_or_default()).or(servers.await_successor()) {
                        None => break,
                        later => drain_at = later,
                    }
                }
                left = self.takeovers.connections_left() => self.count_elsewhere(left),
                event = next(&self.takeovers, &mut self.pipeline, self.pause) => match self.follow(event).await {
                    Followed::Incomplete => {}
                    Followed::SourceEnded => break,
                    Followed::NotTakenOver => return self.close().await,
                    Followed::InForce => self.tell_ready(ready.take()).await,
                },
                successor = servers.next_successor() => {
                    if self.hand_over_beside(&successor, &mut queries).await == Outcome::HandedOver {
                        let answered = servers.leave(&mut self.health);
                        return self.leave_to(successor, queries, left, answered).await;
                    }
                }
                () = wait_until(due) => self.project(Instant::now()),
                () = self.announcing.changed() => {
                    self.announcing.dedicate(&mut self.dataplane);
                    self.report_failures();
                }
                () = self.dataplane.changed() => self.refresh_overload(),
                Some(query) = queries.recv() => self.answer(query),
                Some(new) = configs.recv() => self.reconfigure(new),
                _ = retry.tick() => self.retry(),
            }
        }
        drop(configs);
        if self.takeovers.predecessor.is_some() {
            return self.close().await;
        }
        let failed = self.source_ended;
        servers.stop_handing_over();
        self.announcing.left().await;
        let drained = self.drain(queries, None, std::future::ready(())).await;
        if failed { Ended::Failed } else { Ended::Stopped(drained) }
    }

    /// Takes an update of the objects; takes over from the predecessor once they are complete.
    async fn follow(&mut self, event: Next) -> Followed {
        let received = match event {
            Next::SourceEnded => {
                tracing::error!(
                    bug = true,
                    "the object sources ended, which must not happen: exiting to be restarted"
                );
                self.source_ended = true;
                return Followed::SourceEnded;
            }
            Next::PredecessorEnded => {
                self.takeovers.alone = true;
                Instant::now()
            }
            Next::Update(update) => {
                let received = update.received();
                self.take(update);
                received
            }
        };
        let sources = &self.pipeline.sources;
        // While the predecessor serves, its objects in memory are newer than any snapshot.
        let waits = self.takeovers.predecessor.is_some() && !self.takeovers.alone;
        let stale = waits && sources.stands_on_snapshot();
        if !sources.is_loaded() || stale {
            Followed::Incomplete
        } else if self.take_over(received).await {
            Followed::InForce
        } else {
            Followed::NotTakenOver
        }
    }

    /// Ends without having served.
    async fn close(self: Box<Self>) -> Ended {
        self.dataplane.close(WORKER_PATIENCE).await;
        Ended::NotTakenOver
    }

    /// Tells the successor which connections are left until the last one has ended.
    async fn leave_to(
        mut self: Box<Self>,
        successor: Successor,
        queries: mpsc::Receiver<Query>,
        left: oneshot::Sender<Arc<Successor>>,
        answered: impl Future<Output = ()>,
    ) -> Ended {
        if let Some(lifeline) = self.takeovers.lifeline.take() {
            lifeline.hand_over().await;
        }
        let successor = Arc::new(successor);
        left.send(Arc::clone(&successor)).ok();
        Ended::HandedOver(self.drain(queries, Some(successor), answered).await)
    }

    fn refresh_overload(&mut self) {
        let before = self.dataplane.generation();
        self.dataplane.refresh();
        if before != self.dataplane.generation() {
            self.report_failures();
        }
        if self.problems.refresh_overload(&self.dataplane, &self.pipeline.sources) {
            self.revision += 1;
        }
    }

    /// Lets open connections finish, and ends. A successor is sent how many are left. It has the latest objects, so only a process without a
    /// successor writes the snapshot. Until all who asked before a handover are `answered`, the node is as ready as before.
    async fn drain(
        mut self: Box<Self>,
        mut queries: mpsc::Receiver<Query>,
        successor: Option<Arc<Successor>>,
        answered: impl Future<Output = ()>,
    ) -> Drained {
        tracing::info!(deadline = ?self.settings.drain, "draining: new connections are not accepted");
        self.takeovers.lifeline = None;
        let mut retry = tokio::time::interval(retry::EVERY);
        let drained = {
            let (mut answered, mut drained) =
                (pin!(answered), pin!(self.dataplane.drain(self.settings.drain)));
            let mut reports = pin!(report_connections(&self.dataplane, successor.as_deref()));
            let mut outcome = None;
            loop {
                if let (Some(drained), Phase::Draining) = (outcome, self.phase) {
                    break drained;
                }
                tokio::select! {
                    biased;
                    () = &mut answered, if self.phase != Phase::Draining => {
                        self.phase = Phase::Draining;
                        withdraw_readiness(&self.health, &self.report);
                    }
                    drained = &mut drained, if outcome.is_none() => outcome = Some(drained),
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
            None => self.pipeline.sources.finish(self.pipeline.store.objects()).await,
        }
        drained
    }

    /// Applies an update to the store, and projects it.
    fn take(&mut self, update: SourceUpdate) {
        let (started, received) = (Instant::now(), update.received());
        self.pipeline.take(update, Some);
        if self.takeovers.predecessor.is_none() && !self.awaits_claims() {
            self.project(received);
        }
        self.pause = Instant::now() + started.elapsed().min(LONGEST_PAUSE);
    }

    /// Whether an object that is not yet loaded may have an older claim to an address that is allocated here. Folders are read at once. If a
    /// controller allocates addresses, one unreachable API server must not block the objects of the other.
    fn awaits_claims(&self) -> bool {
        role_of(&self.pipeline.sources) == Role::Standalone && !self.pipeline.sources.is_loaded()
    }

    /// Projects the store and applies the table; `since` is when the update was received.
    fn project(&mut self, since: Instant) {
        self.revision += 1;
        let projection = self.pipeline.project();
        let servers = self.settings.servers.iter().copied().chain(health::places(&projection));
        let node_addresses = projection.node_addresses.iter().copied().collect();
        self.dataplane.reserve(servers.collect(), node_addresses);
        if self.projection.is_none() {
            self.announcing.claim_heartbeat_port();
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
        if self.pipeline.sources.is_loaded() {
            self.dataplane.complete();
        }
        record_latency(&mut self.pipeline.sources);
        self.health.follow(&projection);
        self.projection = Some(projection);
        self.announce();
        self.prove_healthy();
        self.report_failures();
        if let Some(projection) = &self.projection {
            self.problems.log_objects(&self.pipeline, &projection.problem_changes);
        }
    }

    /// Table to apply. A lame duck keeps serving at former addresses of a Service by the Service's other addresses: the controller has
    /// published other gateways' addresses by then, which some clients do not know yet.
    fn with_former_addresses(&self, table: &Arc<RoutingTable>) -> Arc<RoutingTable> {
        if self.phase != Phase::LameDuck {
            return Arc::clone(table);
        }
        let before = self.dataplane.table();
        let of_service = |it: &Frontend| (it.service.clone(), it.kind, it.addr.ip.is_ipv4());
        let others: HashMap<_, _> = table.frontends().iter().map(|it| (of_service(it), it)).collect();
        let former = before.table().frontends().iter().filter(|it| table.get(it.addr).is_none());
        let kept = former.filter_map(|former| {
            let other = others.get(&of_service(former))?;
            Some(Arc::new(Frontend { addr: former.addr, ..Frontend::clone(other) }))
        });
        let frontends = table.frontends().iter().cloned().chain(kept).collect();
        let internal = Arc::clone(table.internal_clients());
        Arc::new(RoutingTable::new(table.generation(), frontends, internal))
    }

    /// Passes what is in force to the announcer.
    fn announce(&mut self) {
        let is_ready = self.missing().is_none();
        let Some(projection) = &self.projection else { return };
        let gateways = &self.identity.gateways;
        self.announcing.follow(projection, &self.pipeline, gateways, &self.dataplane, is_ready);
    }

    /// Logs and reports failures of the data plane when they change.
    fn report_failures(&mut self) {
        let generation = self.dataplane.generation();
        let (announced, shared) = (self.announcing.announced(), self.announcing.is_shared());
        let gateway_api = Some(self.pipeline.sources.local.reads_gateways());
        let (failed, disagreements) = (self.announcing.failed(), self.announcing.disagreements());
        if self.problems.failures.refresh(&self.dataplane, &self.health, failed, disagreements) {
            self.revision += 1;
            let failures = self.problems.log_failures(&self.pipeline.sources);
            let report = report::report(&self.identity.node, generation, failures);
            let draining = self.phase != Phase::Serving;
            self.report.send_replace(GatewayReport { draining, announced, shared, gateway_api, ..report });
        } else {
            self.report.send_if_modified(|last| {
                let before = (last.generation, &last.announced, last.shared, last.gateway_api);
                let differs = before != (generation, &announced, shared, gateway_api);
                (last.generation, last.announced) = (generation, announced);
                (last.shared, last.gateway_api) = (shared, gateway_api);
                differs
            });
        }
    }

    /// Waits until the kernel has the frontends that it is to carry, at the start.
    async fn await_kernel(&mut self) {
        if !self.dataplane.is_settling() {
            return;
        }
        while self.dataplane.is_settling() {
            self.dataplane.changed().await;
            self.refresh_overload();
        }
        self.announce();
    }

    /// Logs that the first objects are in force, once they are in the kernel, too.
    async fn tell_ready(&mut self, ready: Option<impl FnOnce()>) {
        if let Some(ready) = ready {
            self.await_kernel().await;
            self.log_ready();
            ready();
        }
    }

    fn log_ready(&self) {
        let table = self.dataplane.table();
        let mut frontends = table.table().frontends().iter();
        let transparent = match self.dataplane.client_addresses() {
            Err(error) => error.to_string(),
            Ok(()) if frontends.any(|it| it.client_sources.any(ClientSource::Transparent)) => {
                "in use".to_owned()
            }
            Ok(()) => "not asked for".to_owned(),
        };
        startup_log::ready(&self.status(), &transparent);
    }

    /// Applies a configuration whose other keys are those that the process was started with. Open connections continue.
    fn reconfigure(&mut self, NewConfig { config, applied }: NewConfig) {
        let options = LiveOptions::new(&config, &self.settings.shares, role_of(&self.pipeline.sources));
        self.dataplane.configure(options.dataplane);
        self.pipeline.projector.set_options(options.projection);
        self.memory.set_limit(options.memory);
        self.connection_log.set_lines_per_service(options.lines_per_service);
        self.pipeline.sources.set_mass_deletion_hold(options.mass_deletion_hold);
        (self.settings.drain, self.settings.series) = (options.drain, options.series);
        // Otherwise the first objects or the takeover will project.
        if self.projection.is_some() && self.takeovers.predecessor.is_none() {
            self.project(Instant::now());
        }
        applied.send(()).ok();
    }

    /// Withdraws readiness. Returns when to drain; `None` = at once, as for a gateway that was never ready, which gets no traffic. A
    /// predecessor that watches this process gets time to come back.
    fn withdraw(&mut self, lame_duck: Duration) -> Option<Instant> {
        let watched = self.takeovers.lifeline.take().is_some_and(|it| it.is_watched());
        self.dataplane.forget_elsewhere();
        let lame_duck = if watched { lame_duck.max(Lifeline::RETURN) } else { lame_duck };
        if lame_duck.is_zero() || self.missing().is_some() {
            return None;
        }
        self.phase = Phase::LameDuck;
        withdraw_readiness(&self.health, &self.report);
        self.announcing.leave();
        tracing::info!(time = ?lame_duck, "not ready any more: serving on until load balancers have noticed");
        Some(Instant::now() + lame_duck)
    }

    /// Retries failed operations.
    fn retry(&mut self) {
        self.dataplane.retry();
        self.health.retry();
        if self.announcing.has_stopped() {
            self.announce();
        }
        self.announcing.dedicate(&mut self.dataplane);
        self.announcing.follow_staleness(&self.pipeline.sources);
        self.report_failures();
        self.prove_healthy();
    }

    /// Marks the process healthy if all workers answer. This runs on the loop, so all updates so far are in force.
    fn prove_healthy(&self) {
        self.health.proven_by(self.dataplane.answers(WORKER_PATIENCE));
    }
}

/// Has load balancers and the controller send new traffic elsewhere.
fn withdraw_readiness(health: &Health, report: &watch::Sender<GatewayReport>) {
    health.drain();
    report.send_modify(|report| report.draining = true);
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

/// Role in allocating addresses that follows from the local source.
fn role_of(sources: &Sources) -> Role {
    match sources.local {
        Source::Files(_) => Role::Standalone,
        Source::Api(_) => Role::Gateway,
    }
}

/// Records how long the changes of the last update took to come into force.
fn record_latency(sources: &mut Sources) {
    let now = Timestamp::now();
    for trigger in sources.take_triggers() {
        let took = now.duration_since(trigger).as_secs_f64();
        metrics::histogram!(PROGRAMMING_SECONDS.name).record(took.max(0.0));
    }
}

fn retries() -> tokio::time::Interval {
    let mut retries = tokio::time::interval(retry::EVERY);
    retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    retries
}

/// Next update of the pipeline, after `pause`, or the end of the predecessor. Cancel safe.
async fn next(takeovers: &Takeovers, pipeline: &mut Pipeline, pause: Instant) -> Next {
    let update = async {
        sleep_until(pause.into()).await;
        pipeline.next().await
    };
    tokio::select! {
        biased;
        () = takeovers.predecessor_ended() => Next::PredecessorEnded,
        update = update => update.map_or(Next::SourceEnded, Next::Update),
    }
}

#[cfg(test)]
mod tests;
