//! Taking over from another process, and handing over to one: what the loop does, and in which order.

use std::collections::{HashSet, VecDeque};
use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use sheave_dataplane::Dataplane;
use sheave_dataplane::handover::{AffinityRecord, ConnectionCount};
use tokio::sync::mpsc;

use super::{EventLoop, WORKER_PATIENCE};
use crate::config::Config;
use crate::http::query::Query;
use crate::http::server::Server;
use crate::takeover::predecessor::{Estate, LastPart, Lifeline, Predecessor};
use crate::takeover::successor::{Greeting, Outcome, Successor, Successors};
use crate::takeover::{self, ServingPlace, TakeoverError};

/// How often a process that is to end looks whether its successor is still about to take over.
const LOOK: Duration = Duration::from_millis(200);
/// How often a successor is told what is left.
const REPORTING: Duration = Duration::from_millis(250);

/// What this process listens for beside traffic, once it is the one that serves. Dropping it closes everything.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    servers: Vec<(SocketAddr, Server)>,
    /// None if nobody can ask to take over.
    successors: Option<Successors>,
}

impl Servers {
    /// These servers, by their configured addresses.
    pub(crate) fn new(servers: Vec<(SocketAddr, Server)>) -> Self {
        Self { servers, successors: None }
    }

    /// Listens for processes that are to take over, if that is possible.
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
            let (failures, returns) = (app.takeovers.failures(), takeover::is_started_again());
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

    /// The next process that is ready to take over. Cancel safe.
    pub(super) async fn next_successor(&mut self) -> Successor {
        match &mut self.successors {
            Some(successors) => successors.next().await,
            None => std::future::pending().await,
        }
    }

    /// When to look again whether the process that is about to take over has; none if there is none.
    pub(super) fn await_successor(&self) -> Option<Instant> {
        self.successors.as_ref().filter(|it| it.is_one_loading()).map(|_| Instant::now() + LOOK)
    }

    /// Lets the Pod that this process has taken over from take over in its turn.
    pub(super) fn let_former_pod_return(&self) {
        self.successors.iter().for_each(Successors::let_former_pod_return);
    }

    /// From now on nobody can take over.
    pub(super) fn stop_handing_over(&mut self) {
        self.successors = None;
    }

    /// Leaves all ports to another process.
    pub(super) fn leave(self) {
        self.servers.into_iter().for_each(|(_, server)| server.leave());
    }
}

/// Makes the folder if it is missing, for this user alone; not what it is in, which a mount may be missing from.
fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// How much was taken over.
#[derive(Debug, Default)]
struct Taken {
    flows: usize,
    affinity: usize,
}

impl EventLoop {
    /// Takes over from the predecessor, if there is one, with the objects that are loaded. False if that fails: then the other process
    /// serves on, and this one must not.
    pub(super) async fn take_over(&mut self, received: Instant) -> bool {
        let Some(predecessor) = self.predecessor.take() else { return true };
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
        self.takeovers.took(began.elapsed());
        tracing::info!(
            from = predecessor.version(),
            sockets,
            flows = taken.flows,
            affinity_records = taken.affinity,
            took = ?began.elapsed(),
            rest = ?prepared.elapsed(),
            "took over"
        );
        self.lifeline = Some(predecessor.into_lifeline());
        Ok(())
    }

    /// Takes what the other process hands over while it rests, and then the right to serve.
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

    /// Counts what Services still have in the process that this one has taken over from; none once it has ended.
    pub(super) fn count_elsewhere(&mut self, left: Option<Vec<ConnectionCount>>) {
        match left {
            Some(counts) => self.dataplane.count_elsewhere(&counts),
            None => {
                self.dataplane.forget_elsewhere();
                self.lifeline = None;
            }
        }
    }

    /// Commands are executed in order, so everything has been done that was said before.
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

    /// As [`hand_over`](Self::hand_over), while probes are answered as before it. Other queries wait.
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

    /// Lets go of everything, or goes on with it.
    fn settle(&mut self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::HandedOver => {
                self.handed_over = true;
                self.announcing.detach();
                self.health.leave();
                self.dataplane.leave();
            }
            Outcome::GoOn => self.dataplane.resume(),
        }
        outcome
    }

    /// Everything that changes nothing of what is served here.
    async fn hand_over_listeners(&mut self, successor: &Successor) -> Result<(), TakeoverError> {
        let listeners = self.dataplane.listeners_to_hand_over();
        let affinity = self.dataplane.affinity_records(None).collect();
        let (node_ports, health) = (self.health.hand_over()?, self.dataplane.health_records());
        successor.hand_over(listeners, node_ports, affinity, health).await?;
        successor.prepared().await
    }

    /// Rests, and hands over what could change until then.
    async fn hand_over_state(&self, successor: &Successor, copied: Instant) -> Result<(), TakeoverError> {
        if !self.dataplane.pause(WORKER_PATIENCE).await {
            return Err(TakeoverError::Stuck);
        }
        // While some are on their way the workers prepare the next ones.
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

/// What Services still have in the process that this one has taken over from. Cancel safe.
pub(super) async fn connections_left(lifeline: &Option<Lifeline>) -> Option<Vec<ConnectionCount>> {
    match lifeline {
        Some(lifeline) => lifeline.connections().await,
        None => std::future::pending().await,
    }
}

/// Tells the successor how many connections are left of Services with limits, for which it leaves room. Never ends.
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

/// Tells the successor that Services have nothing left here: process 1 of a container stays for a while, and would hold their places.
pub(super) async fn report_nothing_left(mut counts: Vec<ConnectionCount>, successor: &Successor) {
    counts.iter_mut().for_each(|count| count.open = 0);
    successor.connections(&counts, WORKER_PATIENCE).await;
}

/// Never ends.
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
