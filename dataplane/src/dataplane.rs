//! The data plane as a whole: workers, listeners and the table they forward by. A new table takes effect here alone.

mod client_addresses;
mod handover;
mod observer;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use sheave_model::{AddressSet, Frontend, FrontendAddr, RoutingTable, diff};
use tokio::sync::mpsc;

use crate::client_traffic::WatchRequests;
use crate::connection_log::ConnectionLog;
use crate::counters::FrontendCounters;
use crate::health::{Health, HealthCounts, ProbeBudget, UnhealthyEndpoint};
use crate::limits::capacity::{Capacity, MemoryGauge};
use crate::limits::overload::{Overload, Overloaded};
use crate::limits::refusals::Refusals;
use crate::listener::steering::{Steering, SteeringMode, SteeringReport};
use crate::listener::{BindFailure, ListenerSet};
use crate::paths::{FormerPaths, Paths};
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::tcp::{PipeBudget, warn_of_slow_connects};
use crate::transparent::Transparency;
use crate::transparent::return_path::ReturnPathError;
use crate::udp::local_ports::claim::{self, LocalPortsError};
use crate::worker::context::{BrokenSocket, Settings, Shared};
use crate::worker::pool::Workers;
use crate::worker::port::WorkerPorts;
use crate::worker::steps::WorkerProgress;
use crate::worker::watchdog::{self, StuckWorker};
use crate::worker::{Command, WorkerSeed};
use client_addresses::ClientAddresses;
pub use handover::{
    HandedListeners, ListenersToHandOver, claim_local_ports, local_ports_claim, take_over_local_ports,
};
pub use observer::Observer;

/// Pipes of one worker, at most.
const PIPES: usize = 64;
/// Pipes may take this part of the descriptors: what finds none is copied.
const PIPES_SHARE: usize = 32;

/// What a data plane is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that forward; 0 is taken as 1.
    pub workers: usize,
    /// What [`Dataplane::configure`] can change.
    pub settings: Settings,
    /// Listening and UDP sockets of frontends, one per frontend and worker, that may be open together; frontends beyond it
    /// are steered, or stay closed, with `EMFILE`.
    pub listening_sockets: usize,
    /// Which frontends do without sockets of their own.
    pub steering: SteeringMode,
    /// The network interface of each [`Path`](sheave_model::Path) but the default one, from path 1 on.
    pub paths: Arc<[String]>,
    /// Where connections are told of that are to be logged.
    pub connection_log: ConnectionLog,
    /// Serve nothing before [`Dataplane::serve`]: another process still does.
    pub held: bool,
}

/// How long after the start an address of the machine may be that of a process before this one, which is about to let go of it. Later
/// on it is that of a daemon, which must not lose its port for having been away for a moment.
const FORMER_PROCESS: Duration = Duration::from_secs(120);

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Drained {
    /// Every connection and flow had ended.
    Completely,
    /// The deadline passed first; what was open was ended.
    AtDeadline,
}

/// Workers that forward by the table last applied. Dropping it closes everything, as soon as each worker notices.
#[derive(Debug)]
pub struct Dataplane {
    table: Arc<ArcSwap<ActiveTable>>,
    /// Those before it that workers may still have: whoever drops the last copy of a large one is busy for long.
    former_tables: Vec<Arc<ActiveTable>>,
    listeners: ListenerSet,
    /// Frontends of the table that could not be opened.
    failures: BTreeMap<FrontendAddr, BindFailure>,
    /// Grows with each change of `failures`.
    failures_revision: u64,
    workers: Workers,
    broken: mpsc::UnboundedReceiver<BrokenSocket>,
    affinity: Arc<AffinityTable>,
    health: Health,
    paths: Arc<Paths>,
    /// Of the process that was taken over from.
    former_paths: FormerPaths,
    capacity: Arc<Capacity>,
    ports: Arc<WorkerPorts>,
    progress: Arc<[WorkerProgress]>,
    watch_requests: Arc<WatchRequests>,
    overload: Overload,
    client_addresses: ClientAddresses,
    started: Instant,
}

impl Dataplane {
    /// Starts the workers, with an empty table.
    ///
    /// # Errors
    /// If a thread or its epoll instance cannot be made.
    pub fn start(options: Options) -> io::Result<Self> {
        let Options { workers, settings, listening_sockets, steering, paths, connection_log, held } = options;
        let (worker_count, steering) = (workers.max(1), Steering::new(steering));
        let table = Arc::new(ArcSwap::from_pointee(ActiveTable::default()));
        let affinity = Arc::new(AffinityTable::default());
        let transparency = Arc::new(Transparency::default());
        let paths = Paths::new(&paths);
        let probes = ProbeBudget::of(settings.capacity.descriptors);
        let health = Health::new(Arc::clone(&paths), probes);
        let (report_broken, broken) = mpsc::unbounded_channel();
        let pipes = PIPES.min(settings.capacity.descriptors / PIPES_SHARE / 2 / worker_count);
        let capacity = Arc::new(Capacity::new(settings.capacity));
        capacity.take(2 * pipes * worker_count + probes.of_traffic());
        let (refusals, ports) = (Arc::<Refusals>::default(), WorkerPorts::new(worker_count)?);
        let watch_requests = WatchRequests::new(worker_count);
        let progress = WorkerProgress::of_workers(worker_count);
        let shared = Shared {
            table: Arc::clone(&table),
            affinity: Arc::clone(&affinity),
            transparency: Arc::clone(&transparency),
            upstream_addresses: Arc::default(),
            reports: health.reports(),
            paths: Arc::clone(&paths),
            settings,
            capacity: Arc::clone(&capacity),
            refusals: Arc::clone(&refusals),
            ports: Arc::clone(&ports),
            watch_requests: Arc::clone(&watch_requests),
            connection_log,
            progress: Arc::clone(&progress),
            broken: report_broken,
        };
        let seed = WorkerSeed {
            index: 0,
            shared,
            pipes: PipeBudget::of_worker(pipes, worker_count),
            random: 0,
            steered: steering.frontends(),
            held,
        };
        warn_of_slow_connects();
        let workers = Workers::start(worker_count, seed)?;
        Ok(Self {
            table,
            former_tables: Vec::new(),
            listeners: ListenerSet::new(listening_sockets, worker_count, Arc::clone(&capacity), steering),
            failures: BTreeMap::new(),
            failures_revision: 0,
            workers,
            broken,
            affinity,
            health,
            paths,
            former_paths: FormerPaths::default(),
            overload: Overload::new(refusals, Arc::clone(&capacity)),
            capacity,
            ports,
            progress,
            watch_requests,
            client_addresses: ClientAddresses::new(transparency),
            started: Instant::now(),
        })
    }

    /// Makes `table` the one to forward by, and gives how many frontends came, changed or went. New traffic follows it
    /// at once; open connections go on. What cannot be opened is in [`Dataplane::failures`].
    ///
    /// The new table is in place before any socket opens or closes, so a client of a new frontend never meets a table
    /// without it. Unchanged frontends are not touched.
    pub fn apply(&mut self, table: impl Into<Arc<RoutingTable>>) -> usize {
        let table = table.into();
        let previous = self.table.load_full();
        let changes = diff(previous.table(), &table);
        let internal = Arc::clone(table.internal_clients());
        let internal_changed = **previous.table().internal_clients() != *internal;
        let changed = changes.iter().filter_map(|(_, frontend)| frontend.as_deref());
        self.client_addresses.apply(&table, changed);
        let mut active = ActiveTable::compile(table, &previous);
        self.health.follow(previous.table(), &changes);
        if let Some(unhealthy) = self.health.take_changed() {
            active = active.with_health(unhealthy);
        }
        let active = Arc::new(active);
        self.put_in_force(Arc::clone(&active));
        for (addr, frontend) in &changes {
            match frontend {
                Some(frontend) => self.reconcile(frontend, &internal),
                None => {
                    self.listeners.remove(*addr, &self.workers);
                    self.overload.forget(*addr);
                    self.opened(*addr);
                }
            }
        }
        if internal_changed {
            for frontend in active.table().frontends() {
                self.reconcile(frontend, &internal);
            }
        }
        changes.len()
    }

    fn put_in_force(&mut self, table: Arc<ActiveTable>) {
        self.forget_former_tables();
        self.former_tables.push(self.table.swap(table));
    }

    fn forget_former_tables(&mut self) {
        self.former_tables.retain(|table| Arc::strong_count(table) > 1);
    }

    /// Goes by these settings from now on. What is open goes on, with the time for connections that it had; other times are the new
    /// ones for flows that are open, too. Where there is more than a lower limit allows, nothing new is taken until there is less.
    pub fn configure(&mut self, settings: Settings) {
        self.capacity.set_limits(settings.capacity);
        self.workers.configure(settings);
    }

    /// Tries again what could not be had or has broken since: workers, sockets, and clients' addresses. Costs next to nothing
    /// when all is well.
    pub fn retry(&mut self) {
        claim::retry();
        for index in self.workers.restart_failed() {
            self.listeners.serve_again(index, &self.workers[index]);
        }
        self.forget_former_tables();
        let mut broken = BTreeSet::new();
        while let Ok(socket) = self.broken.try_recv() {
            if self.listeners.discard(&socket, &self.workers) {
                broken.insert(socket.addr);
            }
        }
        broken.extend(self.listeners.retry(&self.workers));
        let active = self.table.load_full();
        self.client_addresses.retry(active.table());
        self.open_again(&broken);
        self.retry_failures(active.table());
    }

    /// Where descriptors are short, the first failure stands for all others of that kind: there may be thousands.
    fn retry_failures(&mut self, table: &RoutingTable) {
        let mut short = !self.listeners.has_room(&self.workers);
        let tried = self.failures.iter().filter(|(_, it)| !it.is_final);
        let failed: Vec<(FrontendAddr, bool)> =
            tried.map(|(addr, it)| (*addr, it.is_of_everyone())).collect();
        for (addr, of_everyone) in failed {
            if short && of_everyone {
                continue;
            }
            if let Some(frontend) = table.get(addr) {
                self.reconcile(frontend, table.internal_clients());
                short |= self.failures.get(&addr).is_some_and(BindFailure::is_of_everyone);
            }
        }
    }

    /// Sets the TCP addresses where this process itself listens, which steering would take over, and the addresses of this machine,
    /// where it would take over what other processes listen for. A frontend there fails with `AddrInUse`, as it does anyway
    /// where it has sockets.
    pub fn reserve(&mut self, servers: BTreeSet<SocketAddr>, machine: BTreeSet<IpAddr>) {
        let taken = self.listeners.reserve(servers, machine, &self.workers);
        self.open_again(&taken);
    }

    /// Sets the addresses that are on this machine for frontends alone. Ports without an open frontend are refused there, as if nothing
    /// listened, whatever listens on all addresses of the machine.
    pub fn dedicate(&mut self, addresses: BTreeSet<IpAddr>) {
        self.listeners.dedicate(addresses);
    }

    /// Why other listeners of the machine answer at [dedicated](Self::dedicate) addresses, if so. [`Dataplane::retry`] tries again.
    pub fn dedicated_obstacle(&self) -> Option<&str> {
        self.listeners.dedicated_obstacle()
    }

    /// Reconciles frontends that were closed.
    fn open_again<'a>(&mut self, closed: impl IntoIterator<Item = &'a FrontendAddr>) {
        let active = self.table.load_full();
        for frontend in closed.into_iter().filter_map(|addr| active.table().get(*addr)) {
            self.reconcile(frontend, active.table().internal_clients());
        }
    }

    /// How clients reach the frontends.
    pub fn steering(&self) -> SteeringReport<'_> {
        self.listeners.report()
    }

    /// Waits until something has changed that [`Dataplane::refresh`] puts in force: the health of an endpoint, whether a
    /// frontend is overloaded, or the addresses of this machine. Endpoints are checked only while this is waited for. Cancel safe.
    pub async fn changed(&mut self) {
        tokio::select! {
            () = self.health.changed(&self.table) => {}
            () = self.overload.due() => {}
            () = self.client_addresses.changed() => {}
        }
    }

    /// Lets new traffic avoid the endpoints that are unhealthy now, where a frontend has rules for that, and drops or accepts
    /// the SYNs of overloaded frontends. Open connections go on.
    pub fn refresh(&mut self) {
        self.client_addresses.refresh();
        self.apply_health();
        let active = self.table.load_full();
        for addr in self.overload.look(Instant::now(), &active, &self.listeners) {
            if let Some(frontend) = active.table().get(addr) {
                self.reconcile(frontend, active.table().internal_clients());
            }
        }
    }

    fn apply_health(&mut self) {
        if let Some(unhealthy) = self.health.take_changed() {
            let started = Instant::now();
            self.put_in_force(Arc::new(self.table.load().with_health(unhealthy)));
            self.health.rest(started.elapsed());
        }
    }

    /// Frontends that are refused new connections or flows, or were a moment ago, by address.
    pub fn overloaded(&self) -> impl Iterator<Item = Overloaded> {
        self.overload.all()
    }

    /// Grows whenever [`Dataplane::overloaded`] changes.
    pub fn overload_revision(&self) -> u64 {
        self.overload.revision()
    }

    /// Where to set how much memory there is for traffic; unlimited until then.
    pub fn memory_gauge(&self) -> MemoryGauge {
        self.capacity.gauge(&self.ports)
    }

    /// The endpoints that are taken to be unhealthy, sorted by protocol and address.
    pub fn unhealthy(&self) -> impl Iterator<Item = UnhealthyEndpoint> {
        self.health.unhealthy()
    }

    /// What was done since the start to know endpoints' health.
    pub fn health_counts(&self) -> HealthCounts {
        self.health.counts()
    }

    /// Frontends that could not be opened, each with the latest reason. [`Dataplane::retry`] tries them again, but for those that
    /// are final.
    pub fn failures(&self) -> impl Iterator<Item = &BindFailure> {
        self.failures.values()
    }

    /// Grows whenever [`Dataplane::failures`] changes.
    pub fn failures_revision(&self) -> u64 {
        self.failures_revision
    }

    /// Why UDP flows do not share local ports, if so. [`Dataplane::retry`] tries again.
    pub fn local_ports_error(&self) -> Option<LocalPortsError> {
        claim::error()
    }

    /// Whether endpoints see clients' addresses where a frontend wants that, and else why not: then they see this machine's until
    /// [`Dataplane::retry`] succeeds.
    ///
    /// # Errors
    /// As of the latest attempt.
    pub fn client_addresses(&self) -> Result<(), &ReturnPathError> {
        self.client_addresses.status()
    }

    fn reconcile(&mut self, frontend: &Arc<Frontend>, internal: &Arc<AddressSet>) {
        let syn_policy = self.overload.syn_policy(frontend.addr);
        match self.listeners.reconcile(frontend, internal, syn_policy, &self.workers) {
            Ok(()) => self.opened(frontend.addr),
            Err(mut failure) => {
                failure.is_final = self.started.elapsed() > FORMER_PROCESS
                    && failure.is_of_another_process()
                    && self.listeners.is_machine(frontend.addr.ip);
                let same = self.failures.get(&frontend.addr).is_some_and(|before| before.equals(&failure));
                self.failures_revision += u64::from(!same);
                self.failures.insert(frontend.addr, failure);
            }
        }
    }

    fn opened(&mut self, addr: FrontendAddr) {
        let failed = self.failures.remove(&addr).is_some();
        self.failures_revision += u64::from(failed);
    }

    /// The table that is forwarded by.
    pub fn table(&self) -> Arc<ActiveTable> {
        self.table.load_full()
    }

    /// What each worker counted for a frontend of the table.
    pub fn counters(&self, addr: FrontendAddr) -> &[FrontendCounters] {
        self.listeners.counters(addr)
    }

    /// A view for any thread, which does not involve the owner of the data plane.
    pub fn observer(&self) -> Observer {
        Observer {
            table: Arc::clone(&self.table),
            counters: self.listeners.registry(),
            totals: self.listeners.totals(),
            affinity: Arc::clone(&self.affinity),
            endpoint_failures: self.health.failures(),
            ports: Arc::clone(&self.ports),
            watch_requests: Arc::clone(&self.watch_requests),
        }
    }

    /// Session affinity records that are kept.
    pub fn affinity(&self) -> &AffinityTable {
        &self.affinity
    }

    /// How often a worker was started again after it had panicked.
    pub fn worker_restarts(&self) -> u64 {
        self.workers.restarts()
    }

    /// Whether no worker has ended. One that is stuck runs, too; see [`Dataplane::answers`].
    pub fn runs(&self) -> bool {
        self.workers.run()
    }

    /// Whether every worker answers within `patience`. They are asked at once; the answer can be awaited anywhere.
    pub fn answers(&self, patience: Duration) -> impl Future<Output = bool> + Send + use<> {
        self.workers.all_reply(Command::Ping, patience)
    }

    /// Calls `stuck`, on a thread of its own, with the first worker whose turn does not end. Then everything that this worker serves
    /// stands, and only the end of the process helps.
    ///
    /// # Errors
    /// As thread creation.
    pub fn watch_workers(&self, stuck: impl FnOnce(StuckWorker) + Send + 'static) -> io::Result<()> {
        watchdog::start(Arc::downgrade(&self.progress), stuck)
    }

    /// Takes nothing new, and lets the old finish. The answer comes after `deadline` at the latest; what is open then
    /// is ended by [`Dataplane::close`]. No table may be applied any more.
    pub fn drain(&mut self, deadline: Duration) -> impl Future<Output = Drained> + Send + use<> {
        // The workers hold the sockets alone now: each closes its own once it has taken what waits in its queue.
        self.listeners.release();
        self.ports.drain();
        let finished = self.workers.all_reply(Command::Drain, deadline);
        async { if finished.await { Drained::Completely } else { Drained::AtDeadline } }
    }

    /// Ends the workers and what is still open: with FIN at rest, else with RST. A worker that is stuck is left behind
    /// after `patience`.
    pub async fn close(self, patience: Duration) {
        self.workers.end(patience).await;
    }
}

#[cfg(test)]
mod tests;
