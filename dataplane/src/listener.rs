//! Listeners of all frontends: opens, filters and closes sockets so that they match the routing table. Most frontends have their
//! own sockets. Those for which there is no room, or all of them if so configured, are steered.
//!
//! `Reject` is a closed socket, so the kernel answers RST or ICMP port unreachable. `Drop` and source ranges are a filter on the
//! open socket, which drops packets silently. Steering has the same results without the sockets. A frontend whose state does not
//! change keeps its sockets and the connections in their accept queues.

mod address_claims;
pub(crate) mod allowed_sources;
mod binding;
mod choose_binding;
mod dedicated;
mod handover;
mod open;
pub(crate) mod overload;
pub(crate) mod sk_lookup;
mod source_filter;
mod state;
pub(crate) mod steering;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use socket2::Socket;

use crate::counters::{CounterRegistry, FrontendCounters, FrontendUse, KernelDrops, Totals};
use crate::limits::capacity::Capacity;
use crate::listener::overload::{Frontends, SynPolicy};
use crate::weak_map::{ServiceId, WeakMap, service_id};
use crate::worker::context::BrokenSocket;
use crate::worker::{Command, WorkerHandle};
use address_claims::AddressClaims;
use binding::{Binding, Occupancy};
use dedicated::DedicatedAddresses;
use handover::FormerListeners;
pub use open::BindFailure;
use open::{Claim, is_in_use};
use sheave_model::AddressSet;
use sheave_model::{Frontend, FrontendAddr, Protocol};
use source_filter::{SourceFilter, SourceFilters};
use state::ListenerState;
use steering::{Steering, SteeringMode, SteeringReport};

/// Listener of one frontend, open or closed.
#[derive(Debug)]
struct Listener {
    /// `None` if unknown, because a change failed halfway.
    state: Option<ListenerState>,
    binding: Binding,
    /// The Service that the frontend belongs to, for which the counters count.
    service: ServiceId,
    counters: Arc<[FrontendCounters]>,
    /// Whether it was open until clients could not be answered. A client of this machine may have the port for a moment: nothing tells its
    /// socket from a server's. So this frontend is tried again, unlike one that another process kept from opening.
    interrupted: bool,
}

impl Listener {
    fn kernel_drops(&self) -> Option<&KernelDrops> {
        self.counters.first().map(|counters| counters.usage().kernel_drops())
    }

    /// Counts the packets that the kernel drops at the current sockets.
    fn count_drops(&self) {
        if let Some(drops) = self.kernel_drops() {
            drops.count_at(self.binding.sockets());
        }
    }

    /// Stops counting before the sockets close, which discards their counts of drops.
    fn stop_counting_drops(&self) {
        if let Some(drops) = self.kernel_drops() {
            drops.count_at([]);
        }
    }
}

/// Listeners of all frontends.
#[derive(Debug)]
pub(crate) struct ListenerSet {
    /// Maximum number of listening sockets, so that descriptors remain for connections.
    room: usize,
    open: usize,
    /// Numbers of open frontends, by how clients reach them.
    with_sockets: usize,
    steered: usize,
    capacity: Arc<Capacity>,
    listeners: HashMap<FrontendAddr, Listener>,
    /// Number of open connections and flows of each Service.
    open_of_services: WeakMap<ServiceId, AtomicU32>,
    /// Counters of `listeners`, for other readers.
    counters: Arc<CounterRegistry>,
    totals: Arc<Totals>,
    claims: AddressClaims,
    filters: SourceFilters,
    steering: Steering,
    dedicated: DedicatedAddresses,
    former: FormerListeners,
}

impl ListenerSet {
    /// Creates an empty set that may open `room` sockets, for `workers` workers.
    pub(crate) fn new(room: usize, workers: usize, capacity: Arc<Capacity>, steering: Steering) -> Self {
        Self {
            room,
            open: 0,
            with_sockets: 0,
            steered: 0,
            capacity,
            listeners: HashMap::new(),
            open_of_services: WeakMap::default(),
            counters: Arc::default(),
            totals: Arc::new(Totals::new(workers, steering.drops())),
            claims: AddressClaims::default(),
            filters: SourceFilters::default(),
            steering,
            dedicated: DedicatedAddresses::default(),
            former: FormerListeners::default(),
        }
    }

    /// Whether another frontend may be opened: there is room for a socket for each worker, or steering needs none.
    pub(crate) fn has_room(&self, workers: &[WorkerHandle]) -> bool {
        self.has_room_for_sockets(workers) || self.steering.may_be_ready()
    }

    fn has_room_for_sockets(&self, workers: &[WorkerHandle]) -> bool {
        self.open + workers.len() <= self.room
    }

    /// Brings one frontend's listener to the state that the table requires, or closes it if the kernel carries the frontend (`carried`).
    /// Changes nothing if it already has that state.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be opened, bound or filtered, or, for a steered frontend, if bpf(2) fails. The next
    /// call tries again.
    pub(crate) fn reconcile(
        &mut self,
        frontend: &Arc<Frontend>,
        internal: &Arc<AddressSet>,
        syn_policy: SynPolicy,
        carried: bool,
        workers: &[WorkerHandle],
    ) -> Result<(), BindFailure> {
        let addr = frontend.addr;
        let wanted = match carried {
            true => ListenerState::Closed,
            false => ListenerState::of(frontend, internal, syn_policy),
        };
        let service = service_id(frontend);
        let mut listener = self.listeners.remove(&addr).unwrap_or_else(|| {
            let counters = self.new_counters(addr, &service);
            // With [`SteeringMode::Always`] closed frontends are steered, too.
            let state = (self.steering.mode() != SteeringMode::Always).then_some(ListenerState::Closed);
            Listener {
                state,
                binding: Binding::Nowhere,
                service: service.clone(),
                counters,
                interrupted: false,
            }
        });
        if listener.service != service {
            self.change_owner(addr, &mut listener, service, workers);
        }
        let changed = if listener.state.as_ref() == Some(&wanted) {
            Ok(())
        } else {
            listener.state = None;
            let before = listener.binding.occupancy();
            let changed = self.change(addr, &mut listener, &wanted, workers);
            listener.count_drops();
            self.count(before, listener.binding.occupancy());
            changed.map(|()| listener.state = Some(wanted))
        };
        listener.interrupted &= changed.is_err();
        let (listening, interrupted) = (listener.binding.is_open(), listener.interrupted);
        self.listeners.insert(addr, listener);
        changed.map_err(|error| {
            let error = self.claims.cause(addr, error);
            let is_final = is_in_use(&error) && self.claims.is_machine(addr.ip) && !interrupted;
            BindFailure { frontend: Arc::clone(frontend), error, listening, is_final }
        })
    }

    /// Counters of zero for a frontend of this Service.
    fn new_counters(&mut self, addr: FrontendAddr, service: &ServiceId) -> Arc<[FrontendCounters]> {
        let open = self.open_of_services.get_or_insert(service.clone(), AtomicU32::default);
        let counters = FrontendCounters::of_workers(addr.protocol, &self.totals, service.clone(), open);
        self.counters.insert(addr, &counters);
        counters
    }

    /// Counts new connections and flows for another Service, to which the frontend belongs now, without closing any. Open connections stay
    /// counted for the Service with which they began; each flow follows with its next datagram.
    fn change_owner(
        &mut self,
        addr: FrontendAddr,
        listener: &mut Listener,
        service: ServiceId,
        workers: &[WorkerHandle],
    ) {
        listener.stop_counting_drops();
        listener.counters = self.new_counters(addr, &service);
        listener.service = service;
        listener.count_drops();
        if let Binding::Steered(Some(_)) = listener.binding {
            self.steering.count_with(addr, &listener.counters);
        }
        for (index, worker) in workers.iter().enumerate() {
            worker.send(count(addr, &listener.counters, index));
        }
    }

    /// Whether the frontend's listener is that of another Service, which had the address before.
    pub(crate) fn is_of_another(&self, frontend: &Frontend) -> bool {
        self.listeners.get(&frontend.addr).is_some_and(|listener| listener.service != service_id(frontend))
    }

    /// Whether there is a listener of the frontend, open or closed.
    pub(crate) fn has(&self, addr: FrontendAddr) -> bool {
        self.listeners.contains_key(&addr)
    }

    /// Whether the frontend's listener is open.
    pub(crate) fn is_open(&self, addr: FrontendAddr) -> bool {
        self.listeners.get(&addr).is_some_and(|listener| listener.binding.is_open())
    }

    /// Whether the previous process has handed over a listener of the frontend that is not in use yet.
    pub(crate) fn has_former(&self, addr: FrontendAddr) -> bool {
        self.former.has(addr)
    }

    fn count(&mut self, before: Occupancy, after: Occupancy) {
        self.open = self.open - before.sockets + after.sockets;
        self.capacity.give(before.sockets);
        self.capacity.take(after.sockets);
        let has_sockets = |it: Occupancy| usize::from(it.sockets > 0);
        self.with_sockets = self.with_sockets - has_sockets(before) + has_sockets(after);
        self.steered = self.steered - usize::from(before.steered) + usize::from(after.steered);
    }

    fn change(
        &mut self,
        addr: FrontendAddr,
        listener: &mut Listener,
        wanted: &ListenerState,
        workers: &[WorkerHandle],
    ) -> io::Result<()> {
        match (wanted, &mut listener.binding) {
            (ListenerState::Closed, _) => {
                listener.stop_counting_drops();
                self.refuse(addr, &mut listener.binding, workers)
            }
            (ListenerState::Open(admission), Binding::Nowhere) => {
                listener.binding = self.open(addr, admission, &listener.counters, workers)?;
                if let Binding::Sockets { .. } = listener.binding {
                    self.pass_open(addr);
                }
                // Debug level, since a start opens thousands of frontends; failures are reported.
                tracing::debug!(frontend = %addr, "listening");
                Ok(())
            }
            (ListenerState::Open(admission), Binding::Sockets { sockets, filter: filter_lease }) => {
                let sources = admission.sources(addr.ip);
                // Atomically for each socket; waiting connections stay.
                (*filter_lease, ()) =
                    self.filters.with(&sources, addr.ip, admission.syn_policy(), |filter| {
                        sockets.iter().try_for_each(|socket| filter.attach(socket))
                    })?;
                Ok(())
            }
            (ListenerState::Open(admission), binding @ Binding::Steered(_)) => {
                *binding = self.steer(addr, admission, &listener.counters, workers)?;
                Ok(())
            }
        }
    }

    /// Refuses new traffic at `addr`, and ends its UDP flows.
    fn refuse(
        &mut self,
        addr: FrontendAddr,
        binding: &mut Binding,
        workers: &[WorkerHandle],
    ) -> io::Result<()> {
        if let Binding::Sockets { .. } = binding {
            self.refuse_closing(addr);
        }
        let lease = match binding {
            Binding::Steered(lease) => Some(lease.take()),
            // Steered, so that no other process answers there, unless the address is the machine's.
            Binding::Nowhere
                if self.steering.mode() == SteeringMode::Always && !self.claims.is_machine(addr.ip) =>
            {
                self.steering.is_ready().then_some(None)
            }
            Binding::Nowhere | Binding::Sockets { .. } => None,
        };
        let steered = lease.is_some();
        if steered && !self.claims.is_reserved(addr) {
            self.steering.refuse(addr)?;
        }
        for worker in workers {
            worker.send(Command::Close(addr));
        }
        binding.close(addr);
        if steered {
            *binding = Binding::Steered(None);
        }
        Ok(())
    }

    /// Closes a frontend that has left the table. Its TCP connections end after the drain timeout.
    pub(crate) fn remove(&mut self, addr: FrontendAddr, workers: &[WorkerHandle]) {
        if let Some(mut listener) = self.listeners.remove(&addr) {
            self.give_up(addr, &mut listener, workers, Command::Remove);
            self.claims.add_departed(addr, &listener.counters);
            self.counters.remove(addr);
        }
    }

    fn give_up(
        &mut self,
        addr: FrontendAddr,
        listener: &mut Listener,
        workers: &[WorkerHandle],
        command: impl Fn(FrontendAddr) -> Command,
    ) {
        listener.stop_counting_drops();
        let binding = &mut listener.binding;
        self.count(binding.occupancy(), Occupancy::default());
        match binding {
            Binding::Steered(_) => self.steering.forget(addr),
            Binding::Sockets { .. } => self.refuse_closing(addr),
            Binding::Nowhere => {}
        }
        // Even without sockets, since connections may still be open.
        for worker in workers {
            worker.send(command(addr));
        }
        binding.close(addr);
    }

    /// Discards the sockets of a frontend after a worker found one broken, so that the next reconcile binds again. Returns false
    /// if that socket is no longer in use: the worker has seen it being closed.
    pub(crate) fn discard(&mut self, broken: &BrokenSocket, workers: &[WorkerHandle]) -> bool {
        let BrokenSocket { addr, socket, error } = broken;
        let Some(socket) = socket else { return self.discard_unanswering(*addr, error, workers) };
        let Some(socket) = socket.upgrade() else { return false };
        if self.steering.discard(&socket) {
            tracing::warn!(%error, "a socket of steered frontends is broken; opening it again");
            return false;
        }
        let current = self.listeners.get(addr).is_some_and(|listener| listener.binding.has(&socket));
        if current {
            tracing::warn!(frontend = %addr, %error, "listening socket is broken; binding it again");
            self.start_over(*addr, workers);
        }
        current
    }

    /// Closes a steered frontend whose clients cannot be answered, so that the next reconcile fails. Returns false if they can be by now.
    fn discard_unanswering(
        &mut self,
        addr: FrontendAddr,
        error: &io::Error,
        workers: &[WorkerHandle],
    ) -> bool {
        let open =
            self.listeners.get(&addr).is_some_and(|it| matches!(it.binding, Binding::Steered(Some(_))));
        if !open || self.claims.probe(addr, Claim::Again).is_ok() {
            return false;
        }
        tracing::warn!(frontend = %addr, %error, "no socket can answer clients, so it is no longer steered");
        self.start_over(addr, workers);
        if let Some(listener) = self.listeners.get_mut(&addr) {
            listener.interrupted = true;
        }
        true
    }

    /// Closes a frontend, so that the next reconcile opens it again.
    fn start_over(&mut self, addr: FrontendAddr, workers: &[WorkerHandle]) {
        let Some(mut listener) = self.listeners.remove(&addr) else { return };
        self.give_up(addr, &mut listener, workers, Command::Close);
        listener.state = None;
        self.listeners.insert(addr, listener);
    }

    /// Gives a restarted worker the sockets that it had, so that the connections in their queues are still served.
    pub(crate) fn serve_again(&self, index: usize, worker: &WorkerHandle) {
        for (addr, listener) in &self.listeners {
            let Binding::Sockets { sockets, .. } = &listener.binding else { continue };
            if let Some(socket) = sockets.get(index) {
                worker.send(listen(*addr, socket, &listener.counters, index));
            }
        }
        self.steering.serve_again(index, worker);
    }

    /// Reopens the shared sockets of steered frontends if they were broken. Returns the frontends that must no longer be steered
    /// because another process of this machine has begun to listen at its own address; the next reconcile fails for them.
    pub(crate) fn retry(&mut self, workers: &[WorkerHandle]) -> Vec<FrontendAddr> {
        self.steering.restore(workers);
        self.guard_dedicated();
        let taken = self.claims.taken_by_others(self.steered_frontends());
        for addr in &taken {
            tracing::warn!(frontend = %addr, "another process of this machine listens there now, so it is no longer steered");
            self.start_over(*addr, workers);
        }
        taken
    }

    /// Sets the addresses where this process listens for other purposes, and the addresses of this machine itself. Returns the
    /// frontends that must no longer be steered; the next reconcile fails for them.
    pub(crate) fn reserve(
        &mut self,
        servers: BTreeSet<SocketAddr>,
        machine: BTreeSet<IpAddr>,
        workers: &[WorkerHandle],
    ) -> Vec<FrontendAddr> {
        self.capacity.take(servers.len());
        self.capacity.give(self.claims.reserved());
        if !self.claims.set(servers, machine) {
            return Vec::new();
        }
        let taken: Vec<_> = self.steered_frontends().filter(|addr| self.claims.is_reserved(*addr)).collect();
        taken.iter().for_each(|addr| self.start_over(*addr, workers));
        taken
    }

    fn steered_frontends(&self) -> impl Iterator<Item = FrontendAddr> {
        let is_steered = |listener: &Listener| matches!(listener.binding, Binding::Steered(_));
        self.listeners.iter().filter(move |(_, listener)| is_steered(listener)).map(|(addr, _)| *addr)
    }

    /// Releases all sockets to the workers, which accept who has connected and then close them. No connection begins meanwhile: the
    /// kernel resets one that is established between the last accept(2) and close(2), although its client believes itself served. A SYN that
    /// is dropped is sent again, and then refused, or answered by the next process.
    pub(crate) fn drain(&mut self) {
        let own =
            self.listeners.iter().flat_map(|(addr, it)| it.binding.sockets().iter().map(|it| (*addr, it)));
        let shared = self.steering.sockets().map(|(addr, _, socket)| (addr, socket));
        let begun = SourceFilter::begun();
        for (addr, socket) in own.chain(shared).filter(|(addr, _)| addr.protocol == Protocol::Tcp) {
            if let Err(error) = begun.attach(socket) {
                tracing::debug!(listener = %addr, %error, "connections begin until the socket closes");
            }
        }
        self.release();
    }

    /// Releases all sockets, so that only the workers hold them. Counts are kept.
    fn release(&mut self) {
        for listener in self.listeners.values_mut() {
            listener.stop_counting_drops();
            listener.binding.release();
            listener.state = None;
        }
        (self.open, self.with_sockets) = (0, 0);
        self.steering.release();
    }

    /// Counters of a frontend by worker; empty if there is no such frontend.
    pub(crate) fn counters(&self, addr: FrontendAddr) -> &[FrontendCounters] {
        self.listeners.get(&addr).map_or(&[], |listener| &listener.counters)
    }

    /// Totals of all frontends.
    pub(crate) fn totals(&self) -> Arc<Totals> {
        Arc::clone(&self.totals)
    }

    /// Registry of all frontends' counters.
    pub(crate) fn registry(&self) -> Arc<CounterRegistry> {
        Arc::clone(&self.counters)
    }

    /// How clients reach the open frontends.
    pub(crate) fn report(&self, kernel: usize) -> SteeringReport<'_> {
        SteeringReport {
            mode: self.steering.mode(),
            sockets: self.with_sockets,
            steered: self.steered,
            kernel,
            obstacle: self.steering.obstacle(),
        }
    }
}

impl Frontends for ListenerSet {
    fn usage(&self, frontend: FrontendAddr) -> Option<Arc<FrontendUse>> {
        self.counters(frontend).first().map(|counters| Arc::clone(counters.usage()))
    }

    fn drops(&self, frontend: FrontendAddr) -> u64 {
        self.listeners.get(&frontend).and_then(Listener::kernel_drops).map_or(0, KernelDrops::packets)
    }
}

/// Makes each worker serve its socket of a frontend.
fn serve(
    addr: FrontendAddr,
    sockets: &[Arc<Socket>],
    counters: &Arc<[FrontendCounters]>,
    workers: &[WorkerHandle],
) {
    for (index, (worker, socket)) in workers.iter().zip(sockets).enumerate() {
        worker.send(listen(addr, socket, counters, index));
    }
}

/// The command for worker `worker` to count with these counters.
fn count(addr: FrontendAddr, counters: &Arc<[FrontendCounters]>, worker: usize) -> Command {
    match counters.get(worker).and_then(FrontendCounters::udp) {
        Some(counters) => Command::CountUdp { addr, counters },
        None => Command::CountTcp { addr, counters: Arc::clone(counters) },
    }
}

/// The command for worker `worker` to serve a frontend's socket.
fn listen(
    addr: FrontendAddr,
    socket: &Arc<Socket>,
    counters: &Arc<[FrontendCounters]>,
    worker: usize,
) -> Command {
    let socket = Arc::clone(socket);
    match counters.get(worker).and_then(FrontendCounters::udp) {
        // Only its own counters: as long as a worker holds them, the frontend's address is in use.
        Some(counters) => Command::ListenUdp { addr, socket, counters },
        None => Command::ListenTcp { addr, socket, counters: Arc::clone(counters) },
    }
}

#[cfg(test)]
mod tests;
