//! The gateway as assembled: a source fills the store, the projection makes tables of it, the data plane forwards by
//! them, and the admin server is answered. One loop; nothing here blocks it.

mod answers;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::api::problem::{Problem, ProblemChanges};
use sheave_control::api::store::Store;
use sheave_control::controller::ControllerStatus;
use sheave_control::projection::{Projection, Projector, Role};
use sheave_control::time::{self, wait_until};
use sheave_dataplane::{Dataplane, Drained, Observer};
use sheave_model::ClientSource;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, sleep_until};

use super::capacity::Capacity;
use super::memory::MemoryWatch;
use super::options::{dataplane_options, projection_options};
use super::overload::Overload;
use super::problem_log::ProblemLog;
use super::problems::Failures;
use super::sources::{SourceUpdate, Sources};
use super::startup_log;
use crate::config::Config;
use crate::http::admin::Query;
use crate::http::health::{self, Health};
use crate::http::metrics::recorder::UPDATE_SECONDS;
use crate::http::report;
use crate::retry;

/// How long the workers may take to show that they run.
const WORKER_PATIENCE: Duration = Duration::from_secs(2);

/// After an update nothing is taken in for as long as it took, up to this: a burst becomes one update, and the data plane
/// gets at least half of a core however fast the objects change.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A running gateway.
pub(crate) struct EventLoop {
    started: Instant,
    role: &'static str,
    node: String,
    drain: Duration,
    health: Health,
    dataplane: Dataplane,
    _memory: MemoryWatch,
    /// Where this process listens for other ends than frontends, health check node ports aside.
    servers: BTreeSet<SocketAddr>,
    intake: Sources,
    store: Store,
    projector: Projector,
    /// What is in force. None before the first objects have come.
    projection: Option<Projection>,
    /// Nothing is taken in before.
    pause: Instant,
    /// When to project again, although nothing may be heard until then.
    due: Option<Instant>,
    failures: Failures,
    overload: Overload,
    told: ProblemLog,
    report: watch::Sender<GatewayReport>,
    /// Of the controller in this process, if there is one.
    controller: Option<watch::Receiver<ControllerStatus>>,
    draining: bool,
    /// Nothing will ever be heard again of the objects.
    source_ended: bool,
}

impl EventLoop {
    /// Starts the workers. Nothing is served before the first objects have come.
    ///
    /// # Errors
    /// If a worker cannot be started.
    pub(crate) fn start(config: &Config, shares: &Capacity, intake: Sources) -> io::Result<Self> {
        let dataplane = Dataplane::start(dataplane_options(config, shares))?;
        let memory = MemoryWatch::start(config.limits.memory, dataplane.memory_gauge())?;
        Ok(Self {
            started: Instant::now(),
            role: "gateway",
            node: config.node.clone(),
            drain: config.timeouts.drain,
            health: Health::new(shares.pages()),
            dataplane,
            _memory: memory,
            servers: servers(config),
            projector: Projector::new(projection_options(config, intake.role())),
            intake,
            store: Store::default(),
            projection: None,
            pause: Instant::now(),
            due: None,
            failures: Failures::default(),
            overload: Overload::default(),
            told: ProblemLog::default(),
            report: watch::Sender::new(report::report(&config.node, 0, &[])),
            controller: None,
            draining: false,
            source_ended: false,
        })
    }

    /// What probes are told.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// For scrapes, which must not wait for this loop or hold it up.
    pub(crate) fn observer(&self) -> Observer {
        self.dataplane.observer()
    }

    /// What the controller is told, now and later.
    pub(crate) fn report(&self) -> watch::Receiver<GatewayReport> {
        self.report.subscribe()
    }

    /// Shows a controller that runs beside it.
    pub(crate) fn run_beside(&mut self, controller: watch::Receiver<ControllerStatus>) {
        self.controller = Some(controller);
        self.role = "run";
    }

    /// Follows the source and answers `questions` until told to stop, or until the source ends by itself: it would send
    /// clients to endpoints of the past for ever. Then drains. `ready` is called when the first objects are in force.
    pub(crate) async fn run(
        mut self,
        mut questions: mpsc::Receiver<Query>,
        mut stop: oneshot::Receiver<()>,
        ready: impl FnOnce(),
    ) -> Drained {
        let mut ready = Some(ready);
        let mut retry = tokio::time::interval(retry::EVERY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => break,
                news = next(&mut self.intake, &self.store, self.pause) => {
                    let Some(news) = news else {
                        tracing::error!(
                            bug = true,
                            "nothing is heard of the objects any more, which must not happen: this process ends, to be started anew"
                        );
                        self.source_ended = true;
                        break;
                    };
                    self.take(news);
                    if self.intake.has_spoken()
                        && let Some(ready) = ready.take()
                    {
                        self.tell_ready();
                        ready();
                    }
                }
                () = wait_until(self.due) => self.project(Instant::now()),
                () = self.dataplane.changed() => {
                    self.dataplane.refresh();
                    self.tell_overload();
                }
                Some(query) = questions.recv() => self.answer(query),
                _ = retry.tick() => self.retry(),
            }
        }
        tracing::info!(deadline = ?self.drain, "draining: nothing new is accepted");
        self.draining = true;
        self.health.drain();
        let mut drained = pin!(self.dataplane.drain(self.drain));
        let drained = loop {
            tokio::select! {
                biased;
                drained = &mut drained => break drained,
                Some(query) = questions.recv() => self.answer(query),
                _ = retry.tick() => self.prove_healthy(),
            }
        };
        self.dataplane.close(WORKER_PATIENCE).await;
        self.intake.finish(&self.store).await;
        drained
    }

    /// Takes in what the source says now, and makes it the table.
    fn take(&mut self, news: SourceUpdate) {
        let (started, received) = (Instant::now(), news.received());
        self.intake.take(news, &mut self.store);
        if !self.awaits_claims() {
            self.project(received);
        }
        self.pause = Instant::now() + started.elapsed().min(LONGEST_PAUSE);
    }

    /// Whether somebody who is not known yet may have an older claim to an address that is to be given here. Folders are
    /// read at once; where others give the addresses, one API server that is away must not keep the other's from being
    /// served.
    fn awaits_claims(&self) -> bool {
        self.intake.role() == Role::Standalone && !self.intake.has_spoken()
    }

    /// Makes what is known the table; `since` is when it was heard.
    fn project(&mut self, since: Instant) {
        let now = jiff::Timestamp::now();
        self.projector.set_now(now);
        let dirty = self.store.take_dirty();
        let projection = self.projector.project(self.store.objects(), &dirty);
        self.due = projection.due.map(|due| Instant::now() + time::time_until(due, now));
        let servers = self.servers.iter().copied().chain(health::places(&projection));
        let node_addresses = projection.node_addresses.iter().copied().collect();
        self.dataplane.reserve(servers.collect(), node_addresses);
        if projection.changed {
            let changed = self.dataplane.apply(Arc::clone(&projection.table));
            let took = since.elapsed();
            metrics::histogram!(UPDATE_SECONDS).record(took);
            tracing::info!(
                generation = projection.table.generation(),
                frontends = projection.table.frontends().len(),
                changed,
                ?took,
                "routing table in force"
            );
        }
        self.intake.in_force();
        self.health.follow(&projection);
        self.projection = Some(projection);
        self.prove_healthy();
        self.report_failures();
        self.tell_problems();
    }

    /// Gets what could not be had before.
    fn retry(&mut self) {
        self.dataplane.retry();
        self.health.retry();
        self.report_failures();
        self.prove_healthy();
    }

    /// What came so far is in force, else this would not run; the workers have to say so themselves.
    fn prove_healthy(&self) {
        self.health.proven_by(self.dataplane.answers(WORKER_PATIENCE));
    }

    /// Logs and reports what the data plane could not do, when that changes.
    fn report_failures(&mut self) {
        let generation = self.dataplane.table().table().generation();
        if self.failures.refresh(&self.dataplane, &self.health) {
            self.report.send_replace(report::report(&self.node, generation, self.failures.all()));
            self.told.failures(self.failures.all().iter().map(|failure| self.intake.place(&failure.problem)));
        } else {
            self.report
                .send_if_modified(|told| std::mem::replace(&mut told.generation, generation) != generation);
        }
    }

    /// Logs who is refused because of too many, when that changes.
    fn tell_overload(&mut self) {
        if self.overload.refresh(&self.dataplane) {
            self.told.overload(self.overload.problems().iter().map(|problem| self.intake.place(problem)));
        }
    }

    /// Logs what became of the first objects.
    fn tell_ready(&self) {
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

    /// Logs what is wrong with objects. Called with each change of theirs.
    fn tell_problems(&mut self) {
        self.told.sources(self.intake.problems().into_iter());
        let Some(projection) = &self.projection else { return };
        if self.intake.reads_files() {
            // Where a file changes, the same Problem may be in another line of it.
            self.told.objects(self.projector.problems().map(|problem| self.intake.place(problem)));
        } else {
            let ProblemChanges { came, gone } = &projection.problem_changes;
            let views = |problems: &[Arc<Problem>]| {
                problems.iter().map(|problem| self.intake.place(problem)).collect()
            };
            self.told.changed_objects(&views(came), &views(gone));
        }
    }
}

/// What the configuration has this process listen on, beside frontends.
fn servers(config: &Config) -> BTreeSet<SocketAddr> {
    let metrics = config.metrics.listen.and_then(|listen| listen.addr().ok());
    let servers = [Some(config.admin_listen), config.healthz_listen, config.report_listen, metrics];
    servers.into_iter().flatten().collect()
}

/// What the source says next, but not before `pause` ends. Cancel safe.
async fn next(intake: &mut Sources, store: &Store, pause: Instant) -> Option<SourceUpdate> {
    sleep_until(pause.into()).await;
    intake.next(store).await
}

#[cfg(test)]
mod tests;
