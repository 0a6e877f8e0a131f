//! Data plane as a whole: workers, listeners and the table by which they forward. The only place where a new table takes effect.

mod client_addresses;
mod handover;
mod observer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use crate::event_loop::WorkerSeed;
use crate::event_loop::pool::Workers;
use crate::event_loop::watchdog::{self, StuckWorker};
use crate::health::{Health, HealthCounts, ProbeBudget, UnhealthyEndpoint};
use crate::kernel_path::{KernelPath, KernelPathErrors, KernelPathOptions, Proxying, take_in};
use crate::limits::capacity::{Capacity, MemoryGauge};
use crate::listener::overload::{Overload, Overloaded};
use crate::listener::steering::{Steering, SteeringMode, SteeringReport};
use crate::listener::{BindFailure, ListenerSet};
use crate::paths::{FormerPaths, Paths};
use crate::port_search::warn_of_slow_connects;
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::tcp::PipeBudget;
use crate::transparent::return_path::ReturnPathError;
use crate::udp::local_ports::claim::{self, LocalPortsError};
use crate::worker::Command;
use crate::worker::context::{BrokenSocket, Settings, Shared};
use crate::worker::steps::WorkerProgress;
use crate::worker_port::WorkerPorts;
use client_addresses::ClientAddresses;
pub use handover::{
    HandedListeners, ListenersToHandOver, claim_local_ports, local_ports_claim, take_over_local_ports,
};
pub use observer::Observer;

/// Maximum number of pipes per worker.
const PIPES: usize = 64;
/// Divisor of the descriptors that pipes may use: streams without a pipe are copied.
const PIPES_SHARE: usize = 32;

/// Options with which a data plane starts.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of forwarding threads; 0 counts as 1.
    pub workers: usize,
    /// Settings that [`Dataplane::configure`] can change.
    pub settings: Settings,
    /// Maximum number of listening and UDP sockets of frontends, one per frontend and worker. Frontends beyond it are steered, or stay
    /// closed with `EMFILE`.
    pub listening_sockets: usize,
    /// Selection of the frontends that are steered.
    pub steering: SteeringMode,
    /// Network interface of each [`Path`](sheave_model::Path) except the default one, from path 1 on.
    pub paths: Arc<[String]>,
    /// Queue of the records of logged connections.
    pub connection_log: ConnectionLog,
    /// Owner of the kernel path's tables.
    pub kernel_path: KernelPathOptions,
    /// Whether to serve nothing before [`Dataplane::serve`], since another process still serves.
    pub held: bool,
}

/// Time after the start during which another process at an address of the machine may be this process's predecessor, which is about to
/// release it. After that it is a daemon, which must not lose its port by restarting.
const FORMER_PROCESS: Duration = Duration::from_secs(120);

/// Result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Drained {
    /// Every connection and flow has ended.
    Completely,
    /// The deadline passed first, with connections or flows open.
    AtDeadline,
}

/// Workers that forward by the last applied table. Dropping it closes everything, as soon as each worker notices.
#[derive(Debug)]
pub struct Dataplane {
    table: Arc<ArcSwap<ActiveTable>>,
    /// Earlier tables that workers may still reference. They are kept here because dropping the last reference to a large one takes
    /// long.
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
    /// Paths of the process that was taken over.
    former_paths: FormerPaths,
    capacity: Arc<Capacity>,
    ports: Arc<WorkerPorts>,
    progress: Arc<[WorkerProgress]>,
    watch_requests: Arc<WatchRequests>,
    overload: Overload,
    client_addresses: ClientAddresses,
    kernel: KernelPath,
    generation: u64,
    /// Later generations, with the number of the change with which the kernel has each.
    awaited: VecDeque<(u64, u64)>,
    started: Instant,
}

impl Dataplane {
    /// Starts the workers with an empty table.
    ///
    /// # Errors
    /// Returns an error if a thread, an epoll instance or a waker cannot be created.
    pub fn start(options: Options) -> io::Result<Self> {
        let Options { workers, settings, listening_sockets, steering, paths, .. } = options;
        let Options { connection_log, kernel_path, held, .. } = options;
        let (worker_count, steering, paths) = (workers.max(1), Steering::new(steering), Paths::new(&paths));
        let probes = ProbeBudget::of(settings.capacity.descriptors);
        let health = Health::new(Arc::clone(&paths), probes);
        let (report_broken, broken) = mpsc::unbounded_channel();
        let pipes = PIPES.min(settings.capacity.descriptors / PIPES_SHARE / 2 / worker_count);
        let (capacity, drain) = (Arc::new(Capacity::new(settings.capacity)), settings.timeouts.drain);
        capacity.take(2 * pipes * worker_count + probes.of_traffic());
        let shared = Shared {
            table: Arc::new(ArcSwap::from_pointee(ActiveTable::default())),
            affinity: Arc::default(),
            transparency: Arc::default(),
            upstream_addresses: Arc::default(),
            reports: health.reports(),
            paths: Arc::clone(&paths),
            settings,
            capacity: Arc::clone(&capacity),
            refusals: Arc::default(),
            ports: WorkerPorts::new(worker_count)?,
            watch_requests: WatchRequests::new(worker_count),
            connection_log,
            progress: WorkerProgress::of_workers(worker_count),
            broken: report_broken,
        };
        let seed = WorkerSeed {
            index: 0,
            shared: shared.clone(),
            pipes: PipeBudget::of_worker(pipes, worker_count),
            random: 0,
            steered: steering.frontends(),
            held,
        };
        warn_of_slow_connects();
        let workers = Workers::start(worker_count, seed)?;
        let listeners = ListenerSet::new(listening_sockets, worker_count, Arc::clone(&capacity), steering);
        let seen = take_in(&shared.table, listeners.registry(), health.reports());
        Ok(Self {
            table: shared.table,
            former_tables: Vec::new(),
            listeners,
            failures: BTreeMap::new(),
            failures_revision: 0,
            workers,
            broken,
            affinity: shared.affinity,
            health,
            paths,
            former_paths: FormerPaths::default(),
            overload: Overload::new(shared.refusals, Arc::clone(&capacity)),
            capacity,
            ports: shared.ports,
            progress: shared.progress,
            watch_requests: shared.watch_requests,
            client_addresses: ClientAddresses::new(shared.transparency),
            kernel: KernelPath::new(Box::new(kernel_path), seen, drain, held),
            generation: 0,
            awaited: VecDeque::new(),
            started: Instant::now(),
        })
    }

    /// Applies a table; returns the number of frontends that were added, changed or removed. New traffic uses it at once; open
    /// connections continue. [`Dataplane::failures`] lists the frontends that could not be opened.
    ///
    /// The table is swapped before any socket opens or closes, so a client of a new frontend never meets a table without it. Unchanged
    /// frontends are not touched.
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
        let unhealthy = self.health.take_changed();
        let health_changed = unhealthy.is_some();
        if let Some(unhealthy) = unhealthy {
            active = active.with_health(unhealthy);
        }
        let active = Arc::new(active);
        self.put_in_force(Arc::clone(&active));
        self.kernel.apply(&active, &changes);
        if health_changed {
            self.kernel.follow_health(&previous, &active);
        }
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
        self.kernel.tell();
        self.follow_generation();
        changes.len()
    }

    fn follow_generation(&mut self) {
        let generation = self.table.load().table().generation();
        let Some((sent, done)) = self.kernel.awaited() else {
            self.awaited.clear();
            self.generation = generation;
            return;
        };
        if self.awaited.back().is_none_or(|(_, last)| *last != generation) {
            self.awaited.push_back((sent, generation));
        }
        while let Some((_, generation)) = self.awaited.pop_front_if(|(number, _)| *number <= done) {
            self.generation = generation;
        }
    }

    /// Generation of the last table that is in force as a whole, in the kernel too.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn put_in_force(&mut self, table: Arc<ActiveTable>) {
        self.forget_former_tables();
        self.former_tables.push(self.table.swap(table));
    }

    fn forget_former_tables(&mut self) {
        self.former_tables.retain(|table| Arc::strong_count(table) > 1);
    }

    /// Applies new settings. Open connections keep their timeouts; other timeouts also apply to open flows. If more is in use than a
    /// lowered limit allows, new traffic is refused until there is less.
    pub fn configure(&mut self, settings: Settings) {
        self.capacity.set_limits(settings.capacity);
        self.kernel.set_drain(settings.timeouts.drain);
        self.workers.configure(settings);
    }

    /// Retries what failed or has broken since: workers, sockets, and the return path for clients' addresses. Almost free if there is
    /// nothing to retry.
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
        let listeners = &self.listeners;
        let open = |addr| listeners.counters(addr).first().map_or(0, |counters| counters.usage().open());
        broken.extend(self.kernel.retry(&active, open));
        self.open_again(&broken);
        self.kernel.tell();
        self.follow_generation();
        self.retry_failures(active.table());
    }

    /// Retries failed frontends. If descriptors are short, the first failure stands for all others of that kind: there may be
    /// thousands.
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

    /// Says that the table has every frontend. Until then frontends that it lacks stay in the kernel, if an earlier process has left them
    /// there.
    pub fn complete(&mut self) {
        self.kernel.complete();
        self.kernel.tell();
    }

    /// Sets the TCP addresses where this process itself listens, which steering would intercept, and the addresses of this machine,
    /// where it would intercept traffic of other processes. A frontend there fails with `AddrInUse`, as it does anyway if it has its
    /// own sockets.
    pub fn reserve(&mut self, servers: BTreeSet<SocketAddr>, machine: BTreeSet<IpAddr>) {
        let moved = self.kernel.set_machine(machine.clone(), &self.table.load());
        let taken = self.listeners.reserve(servers, machine, &self.workers);
        self.open_again(taken.iter().chain(&moved));
        if !moved.is_empty() {
            self.kernel.tell();
        }
    }

    /// Sets the addresses that this machine has for frontends alone. Ports without an open frontend are refused there as if nothing
    /// listened, even if other programs listen on all addresses of the machine.
    pub fn dedicate(&mut self, addresses: BTreeSet<IpAddr>) {
        self.listeners.dedicate(addresses);
    }

    /// Reason why other listeners of the machine answer at [dedicated](Self::dedicate) addresses, if they do. [`Dataplane::retry`]
    /// tries again.
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
        self.listeners.report(self.kernel.alone())
    }

    /// Waits for a change that [`Dataplane::refresh`] applies: the health of an endpoint, the overload of a frontend, or the addresses
    /// of this machine. Active checks only run while this is polled. Cancel safe.
    pub async fn changed(&mut self) {
        tokio::select! {
            () = self.health.changed(&self.table) => {}
            () = self.overload.due() => {}
            () = self.client_addresses.changed() => {}
            () = self.kernel.changed() => {}
        }
    }

    /// Applies the current health of endpoints to new traffic, follows the kernel, and drops or accepts the SYNs of overloaded frontends.
    /// Open connections continue.
    pub fn refresh(&mut self) {
        self.client_addresses.refresh();
        self.apply_health();
        let followed = self.kernel.refresh(&self.table.load());
        self.open_again(&followed);
        self.kernel.tell();
        self.follow_generation();
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
            let previous = self.table.load_full();
            let active = Arc::new(previous.with_health(unhealthy));
            self.put_in_force(Arc::clone(&active));
            self.kernel.follow_health(&previous, &active);
            self.kernel.tell();
            self.health.rest(started.elapsed());
        }
    }

    /// Frontends that refuse new connections or flows, or did a moment ago, by address.
    pub fn overloaded(&self) -> impl Iterator<Item = Overloaded> {
        self.overload.all()
    }

    /// Grows whenever [`Dataplane::overloaded`] changes.
    pub fn overload_revision(&self) -> u64 {
        self.overload.revision()
    }

    /// The gauge that sets how much memory traffic may use; unlimited until it is set.
    pub fn memory_gauge(&self) -> MemoryGauge {
        self.capacity.gauge(&self.ports)
    }

    /// The unhealthy endpoints, sorted by Service port and address.
    pub fn unhealthy(&self) -> impl Iterator<Item = UnhealthyEndpoint> {
        self.health.unhealthy()
    }

    /// Counts of ejections and checks since the start.
    pub fn health_counts(&self) -> HealthCounts {
        self.health.counts()
    }

    /// Frontends that could not be opened, each with the latest error. [`Dataplane::retry`] retries them, except for those that are
    /// final.
    pub fn failures(&self) -> impl Iterator<Item = &BindFailure> {
        self.failures.values()
    }

    /// Grows whenever [`Dataplane::failures`] changes.
    pub fn failures_revision(&self) -> u64 {
        self.failures_revision
    }

    /// Reason why UDP flows do not share local ports, if they do not. [`Dataplane::retry`] tries again.
    pub fn local_ports_error(&self) -> Option<LocalPortsError> {
        claim::error()
    }

    /// Whether endpoints see clients' addresses as far as frontends request it. On an error they see this machine's address until
    /// [`Dataplane::retry`] succeeds.
    ///
    /// # Errors
    /// Returns the error of the latest attempt to establish or restore the return path.
    pub fn client_addresses(&self) -> Result<(), &ReturnPathError> {
        self.client_addresses.status()
    }

    fn reconcile(&mut self, frontend: &Arc<Frontend>, internal: &Arc<AddressSet>) {
        if self.listeners.is_of_another(frontend) {
            // The refusals were those of the Service that had the address before.
            self.overload.forget(frontend.addr);
        }
        let syn_policy = self.overload.syn_policy(frontend.addr);
        let closed = match self.kernel.proxying(frontend.addr) {
            Proxying::Listens => false,
            // Flows that keep it open are to meet the sources that the frontend admits now.
            Proxying::Waits if self.listeners.is_open(frontend.addr) => false,
            Proxying::Waits if self.listeners.has(frontend.addr) => return self.opened(frontend.addr),
            // Clients wait in the sockets of the previous process.
            Proxying::Waits => !self.listeners.has_former(frontend.addr),
            Proxying::Closed => true,
        };
        match self.listeners.reconcile(frontend, internal, syn_policy, closed, &self.workers) {
            Ok(()) => self.opened(frontend.addr),
            Err(mut failure) => {
                failure.is_final &= self.started.elapsed() > FORMER_PROCESS;
                let same = self.failures.get(&frontend.addr).is_some_and(|before| before.equals(&failure));
                self.failures_revision += u64::from(!same);
                self.failures.insert(frontend.addr, failure);
            }
        }
    }

    /// Whether the kernel carries the frontend's new connections now.
    pub fn is_carried_by_kernel(&self, addr: FrontendAddr) -> bool {
        self.kernel.carries(addr)
    }

    /// Whether frontends of the first table wait for the kernel without a listener. That ends with a [change](Self::changed) within a second.
    pub fn is_settling(&self) -> bool {
        self.kernel.is_settling()
    }

    /// Reasons why the proxy carries the frontends that ask for the kernel. [`Dataplane::retry`] tries again.
    pub fn kernel_path_errors(&self) -> &KernelPathErrors {
        self.kernel.errors()
    }

    fn opened(&mut self, addr: FrontendAddr) {
        let failed = self.failures.remove(&addr).is_some();
        self.failures_revision += u64::from(failed);
    }

    /// Lets the time pass in which a process before this one may have an address.
    #[cfg(test)]
    pub(crate) fn let_predecessors_pass(&mut self) {
        self.started = self.started.checked_sub(2 * FORMER_PROCESS).expect("the machine runs for minutes");
    }

    /// The current table.
    pub fn table(&self) -> Arc<ActiveTable> {
        self.table.load_full()
    }

    /// Counters of a frontend by worker; empty if the table does not have it.
    pub fn counters(&self, addr: FrontendAddr) -> &[FrontendCounters] {
        self.listeners.counters(addr)
    }

    /// A view for any thread, independent of the thread that owns the data plane.
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

    /// The session affinity records.
    pub fn affinity(&self) -> &AffinityTable {
        &self.affinity
    }

    /// Number of restarts of workers after a panic.
    pub fn worker_restarts(&self) -> u64 {
        self.workers.restarts()
    }

    /// Whether no worker has ended. A stuck worker counts as running; see [`Dataplane::answers`].
    pub fn runs(&self) -> bool {
        self.workers.run()
    }

    /// Whether every worker replies within `patience`. All are asked at once; the future can be awaited on any thread.
    pub fn answers(&self, patience: Duration) -> impl Future<Output = bool> + Send + use<> {
        self.workers.all_reply(Command::Ping, patience)
    }

    /// Calls `stuck`, on its own thread, with the first worker whose turn does not end. Nothing on that worker is served any more, and
    /// only ending the process helps.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be created.
    pub fn watch_workers(&self, stuck: impl FnOnce(StuckWorker) + Send + 'static) -> io::Result<()> {
        watchdog::start(Arc::downgrade(&self.progress), stuck)
    }

    /// Stops accepting new traffic, and lets open connections and flows finish. The future completes after `deadline` at the latest;
    /// [`Dataplane::close`] ends what is open then. No table may be applied any more.
    pub fn drain(&mut self, deadline: Duration) -> impl Future<Output = Drained> + Send + use<> {
        // Only the workers hold the sockets now: each closes its own once it has accepted the connections in its queue.
        self.listeners.drain();
        self.ports.drain();
        let finished = self.workers.all_reply(Command::Drain, deadline);
        async { if finished.await { Drained::Completely } else { Drained::AtDeadline } }
    }

    /// Ends the workers with their connections and flows: with FIN at rest, otherwise with RST. A stuck worker is abandoned after
    /// `patience`. The kernel refuses new connections then, unless this data plane has [left](Dataplane::leave); those that
    /// it carries go on.
    pub async fn close(mut self, patience: Duration) {
        self.kernel.release();
        self.workers.end(patience).await;
    }
}

#[cfg(test)]
mod tests;
