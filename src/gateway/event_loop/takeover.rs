//! Takeover from another process and handover to one, as steps of the loop.

use std::collections::{HashSet, VecDeque};
use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sheave_console::http::health::Health;
use sheave_console::http::query::Query;
use sheave_console::http::server::Server;
use sheave_console::views::status::TakeoverView;
use sheave_dataplane::Dataplane;
use sheave_dataplane::handover::{AffinityRecord, ConnectionCount};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{EventLoop, WORKER_PATIENCE};
use crate::config::Config;
use crate::takeover::predecessor::{Estate, LastPart, Lifeline, Predecessor};
use crate::takeover::successor::{Greeting, Outcome, Successor, Successors};
use crate::takeover::{self, ServingPlace, TakeoverError};

/// How often a stopping process checks whether its successor is still about to take over.
const LOOK: Duration = Duration::from_millis(200);
/// How often a successor is sent the remaining connections.
const REPORTING: Duration = Duration::from_millis(250);

/// Time that a process which has handed over leaves to those who asked it before. A live page may be open for long; it asks the successor
/// next.
const ANSWERS: Duration = Duration::from_secs(2);

/// Servers of this process besides traffic, once it is the one that serves. Dropping this closes all of them.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    servers: Vec<(SocketAddr, Server)>,
    /// `None` if takeovers are not possible.
    successors: Option<Successors>,
}

impl Servers {
    /// Creates the set from servers and their configured addresses.
    pub(crate) fn new(servers: Vec<(SocketAddr, Server)>) -> Self {
        Self { servers, successors: None }
    }

    /// Listens for processes that want to take over, if possible.
    pub(crate) fn with_successors(
        self,
        config: &Config,
        workers: usize,
        former_pod: Option<String>,
        app: &EventLoop,
    ) -> Self {
        let directory = &config.state_dir;
        let listening = make_folder(directory).and_then(|()| {
            let servers = self.servers.iter().map(|(addr, server)| Ok((*addr, server.socket()?)));
            let servers = servers.collect::<io::Result<_>>()?;
            let place = ServingPlace::of_process(&config.node, &config.load_balancer_class);
            let (failures, returns) =
                (Arc::clone(&app.takeovers.counts.failures), takeover::is_started_again());
            Successors::listen(directory, Greeting { place, former_pod, returns, workers, servers, failures })
        });
        let successors = listening.inspect_err(|error| {
            tracing::info!(
                directory = %directory.display(),
                %error,
                "this process cannot hand over to another one (--takeover): stateDir in the configuration is not usable"
            );
        });
        Self { successors: successors.ok(), ..self }
    }

    /// Waits for the next process that is ready to take over. Cancel safe.
    pub(super) async fn next_successor(&mut self) -> Successor {
        match &mut self.successors {
            Some(successors) => successors.next().await,
            None => std::future::pending().await,
        }
    }

    /// Time of the next check on the process that is about to take over; `None` if there is none.
    pub(super) fn await_successor(&self) -> Option<Instant> {
        self.successors.as_ref().filter(|it| it.is_one_loading()).map(|_| Instant::now() + LOOK)
    }

    /// Allows the Pod that this process has taken over from to take over again.
    pub(super) fn let_former_pod_return(&self) {
        self.successors.iter().for_each(Successors::let_former_pod_return);
    }

    /// Refuses all later takeovers.
    pub(super) fn stop_handing_over(&mut self) {
        self.successors = None;
    }

    /// Leaves all ports, also those of `health`, to another process. Both have accepted connections for a moment: the result waits until this
    /// process has answered its own, for [`ANSWERS`] at most.
    pub(super) fn leave(self, health: &mut Health) -> impl Future<Output = ()> + use<> {
        let servers = self.servers.into_iter().filter_map(|(_, server)| server.leave());
        let answering: Vec<_> = servers.chain(health.leave()).collect();
        async {
            let answered = async {
                for task in answering {
                    task.await.ok();
                }
            };
            timeout(ANSWERS, answered).await.ok();
        }
    }
}

/// Creates the folder if it is missing, accessible only by this user. Does not create parents, which may be a mount that is missing.
fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Takeovers of one process: from its predecessor, and to a successor.
#[derive(Default)]
pub(super) struct Takeovers {
    /// Process that serves until this one has taken over.
    pub(super) predecessor: Option<Predecessor>,
    /// Whether that process has ended, or waits for this one no longer.
    pub(super) alone: bool,
    /// Connection to the predecessor, from the takeover until that process ends.
    pub(super) lifeline: Option<Lifeline>,
    /// Whether another process has taken over.
    pub(super) handed_over: bool,
    counts: TakeoverCounts,
}

impl Takeovers {
    /// Takeovers of a process that begins by taking over from `predecessor`, if there is one.
    pub(super) fn new(predecessor: Option<Predecessor>) -> Self {
        Self { predecessor, ..Self::default() }
    }

    pub(super) fn view(&self) -> TakeoverView {
        self.counts.view()
    }

    /// Waits until the predecessor has ended, or waits for this process no longer; once. Cancel safe.
    pub(super) async fn predecessor_ended(&self) {
        match &self.predecessor {
            Some(predecessor) if !self.alone => predecessor.ended().await,
            _ => std::future::pending().await,
        }
    }

    /// Next connection counts of the predecessor. Cancel safe.
    pub(super) async fn connections_left(&self) -> Option<Vec<ConnectionCount>> {
        match &self.lifeline {
            Some(lifeline) => lifeline.connections().await,
            None => std::future::pending().await,
        }
    }
}

/// Amount of state that was taken over.
#[derive(Debug, Default)]
struct Taken {
    flows: usize,
    affinity: usize,
}

impl EventLoop {
    /// Takes over from the predecessor, if there is one, with the objects that are loaded. Returns false if that fails: the
    /// predecessor then keeps serving, and this process must not.
    pub(super) async fn take_over(&mut self, received: Instant) -> bool {
        let Some(predecessor) = self.takeovers.predecessor.take() else { return true };
        match self.succeed(predecessor, received).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "cannot take over: the process that served goes on");
                false
            }
        }
    }

    async fn succeed(
        &mut self,
        mut predecessor: Predecessor,
        received: Instant,
    ) -> Result<(), TakeoverError> {
        let began = Instant::now();
        self.announcing.prepared().await;
        let (estate, alone) = match predecessor.begin().await {
            Err(TakeoverError::Closed) if predecessor.is_dead() => (Estate::default(), true),
            estate => (estate?, false),
        };
        let Estate { listeners, node_ports, affinity, health } = estate;
        let (sockets, mut taken) = (listeners.sockets.len(), Taken::default());
        self.dataplane.take_over(listeners);
        self.health.hold();
        self.take_over_affinity(affinity, &mut taken);
        self.project(received);
        self.dataplane.take_over_health(health);
        self.expect_workers().await?;
        let prepared = Instant::now();
        if !alone {
            match self.take_over_state(&predecessor, &mut taken).await {
                Err(TakeoverError::Closed) if predecessor.is_dead() => {
                    tracing::warn!(
                        "the process that served has ended on the way: going on with what it has handed over"
                    );
                }
                outcome => outcome?,
            }
        }
        self.dataplane.serve();
        self.announcing.begin();
        self.announce();
        self.health.take_over(node_ports);
        self.takeovers.counts.took.get_or_init(|| began.elapsed());
        tracing::info!(
            from = predecessor.version(),
            sockets,
            flows = taken.flows,
            affinity_records = taken.affinity,
            took = ?began.elapsed(),
            rest = ?prepared.elapsed(),
            "took over"
        );
        self.takeovers.lifeline = Some(predecessor.into_lifeline());
        Ok(())
    }

    /// Receives the state of the predecessor while that is paused, and then the right to serve.
    async fn take_over_state(
        &mut self,
        predecessor: &Predecessor,
        taken: &mut Taken,
    ) -> Result<(), TakeoverError> {
        predecessor.prepared().await?;
        loop {
            match predecessor.next_part().await? {
                LastPart::Flows { worker, flows } => {
                    taken.flows += flows.len();
                    self.dataplane.take_over_flows(worker, flows);
                }
                LastPart::Affinity(records) => self.take_over_affinity(records, taken),
                LastPart::Offer(announcing, interfaces) => {
                    self.announcing.go_on_with(announcing, interfaces);
                    break;
                }
            }
        }
        self.expect_workers().await?;
        predecessor.succeed().await
    }

    fn take_over_affinity(&self, records: Vec<AffinityRecord>, taken: &mut Taken) {
        taken.affinity += records.len();
        records.into_iter().for_each(|record| self.dataplane.take_over_affinity(record));
    }

    /// Applies the connection counts of the predecessor; `None` once it has ended.
    pub(super) fn count_elsewhere(&mut self, left: Option<Vec<ConnectionCount>>) {
        match left {
            Some(counts) => self.dataplane.count_elsewhere(&counts),
            None => {
                self.dataplane.forget_elsewhere();
                self.takeovers.lifeline = None;
            }
        }
    }

    /// Waits for the workers. They execute commands in order, so all earlier commands are done.
    async fn expect_workers(&self) -> Result<(), TakeoverError> {
        if self.dataplane.answers(WORKER_PATIENCE).await { Ok(()) } else { Err(TakeoverError::Stuck) }
    }

    /// Hands over to another process, unless that fails.
    pub(super) async fn hand_over(&mut self, successor: &Successor) -> Outcome {
        let began = Instant::now();
        let given = tokio::time::timeout(Successor::PREPARATION, self.hand_over_listeners(successor)).await;
        if let Err(error) = given.unwrap_or(Err(TakeoverError::Silent)) {
            return self.settle(successor.settle(Err(error)).await);
        }
        let rested = Instant::now();
        let offered = tokio::time::timeout(Successor::REST, async {
            self.hand_over_state(successor, began).await?;
            let interfaces = self.announcing.hand_over_interfaces();
            successor.offer(self.announcing.hand_over().await, interfaces).await
        });
        let outcome = successor.settle(offered.await.unwrap_or(Err(TakeoverError::Silent))).await;
        tracing::info!(?outcome, rest = ?rested.elapsed(), "another process was to take over");
        self.settle(outcome)
    }

    /// Calls [`hand_over`](Self::hand_over) and keeps answering probes as before. Other queries wait.
    pub(super) async fn hand_over_beside(
        &mut self,
        successor: &Successor,
        queries: &mut mpsc::Receiver<Query>,
    ) -> Outcome {
        let (missing, mut waiting) = (self.missing(), Vec::new());
        let outcome = tokio::select! {
            outcome = self.hand_over(successor) => outcome,
            () = answer_probes(missing, queries, &mut waiting) => Outcome::GoOn,
        };
        waiting.into_iter().for_each(|query| self.answer(query));
        outcome
    }

    /// Releases everything after a handover, or resumes after a failure.
    fn settle(&mut self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::HandedOver => {
                self.takeovers.handed_over = true;
                self.announcing.detach();
                self.dataplane.leave();
            }
            Outcome::GoOn => self.dataplane.resume(),
        }
        outcome
    }

    /// Sends everything that can be sent while this process serves.
    async fn hand_over_listeners(&mut self, successor: &Successor) -> Result<(), TakeoverError> {
        let listeners = self.dataplane.listeners_to_hand_over();
        let affinity = self.dataplane.affinity_records(None).collect();
        let (node_ports, health) = (self.health.hand_over()?, self.dataplane.health_records());
        successor.hand_over(listeners, node_ports, affinity, health).await?;
        successor.prepared().await
    }

    /// Pauses, and sends everything that may have changed until then.
    async fn hand_over_state(&self, successor: &Successor, copied: Instant) -> Result<(), TakeoverError> {
        if !self.dataplane.pause(WORKER_PATIENCE).await {
            return Err(TakeoverError::Stuck);
        }
        // While some flows are being sent, the workers prepare the next ones.
        let ask = |worker| (worker, self.dataplane.next_flows(worker));
        let mut asked: VecDeque<_> = (0..self.dataplane.workers()).map(ask).collect();
        while let Some((worker, flows)) = asked.pop_front() {
            let flows = tokio::time::timeout(WORKER_PATIENCE, flows).await;
            let flows = flows.map_err(|_| TakeoverError::Stuck)?;
            if !flows.is_empty() {
                asked.push_back(ask(worker));
                successor.flows(worker, flows).await?;
            }
        }
        successor.affinity(self.dataplane.affinity_records(Some(copied)).collect()).await
    }
}

/// Sends the successor the remaining connections of Services with limits, for which it reserves room. Never returns.
pub(super) async fn report_connections(dataplane: &Dataplane, successor: Option<&Successor>) {
    let mut told = HashSet::new();
    if let Some(successor) = successor {
        // Flows count until every worker has left.
        dataplane.answers(WORKER_PATIENCE).await;
        loop {
            let counts = dataplane.connection_counts();
            let changed: Vec<_> = counts.iter().filter(|it| !told.contains(*it)).cloned().collect();
            if successor.connections(&changed, Duration::ZERO).await {
                told = counts.into_iter().collect();
            }
            tokio::time::sleep(REPORTING).await;
        }
    }
    std::future::pending::<()>().await;
}

/// Sends the successor zero counts: process 1 of a container stays for a while, and would keep the room reserved.
pub(super) async fn report_nothing_left(mut counts: Vec<ConnectionCount>, successor: &Successor) {
    counts.iter_mut().for_each(|count| count.open = 0);
    successor.connections(&counts, WORKER_PATIENCE).await;
}

/// Answers probes, and keeps other queries for later. Never returns.
async fn answer_probes(
    missing: Option<&'static str>,
    queries: &mut mpsc::Receiver<Query>,
    waiting: &mut Vec<Query>,
) {
    while let Some(query) = queries.recv().await {
        match query {
            Query::Live(reply) => drop(reply.send(Ok(()))),
            Query::Ready(reply) => drop(reply.send(missing.map_or(Ok(()), Err))),
            other => waiting.push(other),
        }
    }
    std::future::pending::<()>().await;
}

/// Takeover counts of one process.
#[derive(Debug, Default)]
struct TakeoverCounts {
    /// How long this process took to take over from its predecessor.
    took: OnceLock<Duration>,
    /// Failed takeovers from this process.
    failures: Arc<AtomicU64>,
}

impl TakeoverCounts {
    fn view(&self) -> TakeoverView {
        TakeoverView {
            seconds: self.took.get().map(Duration::as_secs_f64),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}
