//! The listeners of all frontends: opens, filters and closes sockets so that they match the routing table. Most frontends have
//! sockets of their own; those for which there is no room, or all if so configured, are steered.
//!
//! `Reject` is a closed socket, so the kernel answers RST or ICMP port unreachable. `Drop` and source ranges are a filter on the
//! open socket, so packets vanish in silence. Steering reaches the same verdicts without the sockets. A frontend whose state
//! stays the same keeps its sockets, and whatever waits in their accept queues.

mod address_claims;
pub(crate) mod allowed_sources;
mod binding;
mod choose_binding;
mod dedicated;
mod handover;
mod open;
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
use crate::limits::overload::{Frontends, SynPolicy};
use crate::weak_map::{ServiceId, WeakMap, service_id};
use crate::worker::context::BrokenSocket;
use crate::worker::{Command, WorkerHandle};
use address_claims::AddressClaims;
use binding::{Binding, Occupancy};
use dedicated::DedicatedAddresses;
use handover::FormerListeners;
pub use open::BindFailure;
use sheave_model::AddressSet;
use sheave_model::{Frontend, FrontendAddr};
use source_filter::SourceFilters;
use state::ListenerState;
use steering::{Steering, SteeringMode, SteeringReport};

/// One frontend, open or closed.
#[derive(Debug)]
struct Listener {
    /// None if it is not known, because a change failed halfway.
    state: Option<ListenerState>,
    binding: Binding,
    counters: Arc<[FrontendCounters]>,
}

impl Listener {
    fn kernel_drops(&self) -> Option<&KernelDrops> {
        self.counters.first().map(|counters| counters.usage().kernel_drops())
    }

    /// Counts what the kernel drops at the sockets that it has now.
    fn count_drops(&self) {
        if let Some(drops) = self.kernel_drops() {
            drops.count_at(self.binding.sockets());
        }
    }

    /// To be called before its sockets close, which forget what they have dropped.
    fn stop_counting_drops(&self) {
        if let Some(drops) = self.kernel_drops() {
            drops.count_at([]);
        }
    }
}

/// The listeners of all frontends.
#[derive(Debug)]
pub(crate) struct ListenerSet {
    /// So many sockets may be open, lest none is left for those who connect to them.
    room: usize,
    open: usize,
    /// Frontends that are open, by how clients reach them.
    with_sockets: usize,
    steered: usize,
    capacity: Arc<Capacity>,
    listeners: HashMap<FrontendAddr, Listener>,
    /// What each Service has open.
    open_of_services: WeakMap<ServiceId, AtomicU32>,
    /// Those of `listeners`, for others to read.
    counters: Arc<CounterRegistry>,
    totals: Arc<Totals>,
    claims: AddressClaims,
    filters: SourceFilters,
    steering: Steering,
    dedicated: DedicatedAddresses,
    former: FormerListeners,
}

impl ListenerSet {
    /// Nothing is open; so many sockets may be, for as many workers at a time as there are.
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

    /// Whether another frontend may be opened: there is room for a socket for each worker, or it needs none.
    pub(crate) fn has_room(&self, workers: &[WorkerHandle]) -> bool {
        self.has_room_for_sockets(workers) || self.steering.may_be_ready()
    }

    fn has_room_for_sockets(&self, workers: &[WorkerHandle]) -> bool {
        self.open + workers.len() <= self.room
    }

    /// Makes one frontend's listener be what the table says. Touches nothing if it is already.
    ///
    /// # Errors
    /// As bind(2), or bpf(2) if it is steered. It then stays closed; calling again tries again.
    pub(crate) fn reconcile(
        &mut self,
        frontend: &Arc<Frontend>,
        internal: &Arc<AddressSet>,
        syn_policy: SynPolicy,
        workers: &[WorkerHandle],
    ) -> Result<(), BindFailure> {
        let addr = frontend.addr;
        let wanted = ListenerState::of(frontend, internal, syn_policy);
        let mut listener = self.listeners.remove(&addr).unwrap_or_else(|| {
            let open = self.open_of_services.get_or_insert(service_id(frontend), AtomicU32::default);
            let counters = FrontendCounters::of_workers(addr.protocol, &self.totals, open);
            self.counters.insert(addr, &counters);
            // Where all are steered, closed ones are, too.
            let state = (self.steering.mode() != SteeringMode::Always).then_some(ListenerState::Closed);
            Listener { state, binding: Binding::Nowhere, counters }
        });
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
        let listening = listener.binding.is_open();
        self.listeners.insert(addr, listener);
        changed.map_err(|error| BindFailure {
            frontend: Arc::clone(frontend),
            error,
            listening,
            is_final: false,
        })
    }

    /// Whether this is an address of the machine itself, whose other processes come first there.
    pub(crate) fn is_machine(&self, ip: IpAddr) -> bool {
        self.claims.is_machine(ip)
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
                // A start opens thousands; those that cannot be opened are told.
                tracing::debug!(frontend = %addr, "listening");
                Ok(())
            }
            (ListenerState::Open(admission), Binding::Sockets { sockets, filter: filter_lease }) => {
                let sources = admission.sources(addr.ip);
                // In one step per socket; waiting connections stay.
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

    /// Refuses everything new at `addr`, and ends its UDP flows.
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
            // So that no other process answers there, unless the address is the machine's.
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

    /// Closes a frontend that has left the table. What is open on it has the time of a drain.
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
        // Also without sockets: connections may live on.
        for worker in workers {
            worker.send(command(addr));
        }
        binding.close(addr);
    }

    /// Forgets the sockets of a frontend of which a worker found one broken, so that the next reconcile binds anew.
    /// False if that socket is not in use any more: closing it is what the worker has seen.
    pub(crate) fn discard(&mut self, broken: &BrokenSocket, workers: &[WorkerHandle]) -> bool {
        let BrokenSocket { addr, socket, error } = broken;
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

    /// Closes a frontend, so that the next reconcile opens it anew.
    fn start_over(&mut self, addr: FrontendAddr, workers: &[WorkerHandle]) {
        let Some(mut listener) = self.listeners.remove(&addr) else { return };
        self.give_up(addr, &mut listener, workers, Command::Close);
        listener.state = None;
        self.listeners.insert(addr, listener);
    }

    /// Gives a worker that was started again the sockets that it had: what waits in their queues is served yet.
    pub(crate) fn serve_again(&self, index: usize, worker: &WorkerHandle) {
        for (addr, listener) in &self.listeners {
            let Binding::Sockets { sockets, .. } = &listener.binding else { continue };
            if let Some(socket) = sockets.get(index) {
                worker.send(listen(*addr, socket, &listener.counters, index));
            }
        }
        self.steering.serve_again(index, worker);
    }

    /// Opens again what steered frontends share, where it was broken. Returns the frontends that must not be steered any more,
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

    /// Sets the addresses where this process listens for other ends, and those of this machine itself. Returns the frontends
    /// that must not be steered any more; the next reconcile fails for them.
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

    /// Lets go of all sockets, so that the workers hold them alone. What was counted stays.
    pub(crate) fn release(&mut self) {
        for listener in self.listeners.values_mut() {
            listener.stop_counting_drops();
            listener.binding.release();
            listener.state = None;
        }
        (self.open, self.with_sockets) = (0, 0);
        self.steering.release();
    }

    /// What each worker counted for a frontend; nothing if it has none.
    pub(crate) fn counters(&self, addr: FrontendAddr) -> &[FrontendCounters] {
        self.listeners.get(&addr).map_or(&[], |listener| &listener.counters)
    }

    /// What all frontends together have had.
    pub(crate) fn totals(&self) -> Arc<Totals> {
        Arc::clone(&self.totals)
    }

    /// Where every frontend is counted.
    pub(crate) fn registry(&self) -> Arc<CounterRegistry> {
        Arc::clone(&self.counters)
    }

    /// How clients reach the frontends that are open.
    pub(crate) fn report(&self) -> SteeringReport<'_> {
        SteeringReport {
            mode: self.steering.mode(),
            sockets: self.with_sockets,
            steered: self.steered,
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

/// Has each worker serve its socket of a frontend.
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

/// Has the worker of this index serve a frontend's socket.
fn listen(
    addr: FrontendAddr,
    socket: &Arc<Socket>,
    counters: &Arc<[FrontendCounters]>,
    worker: usize,
) -> Command {
    let socket = Arc::clone(socket);
    match counters.get(worker).and_then(FrontendCounters::udp) {
        // Its own: as long as it has them, the frontend's address is in use.
        Some(counters) => Command::ListenUdp { addr, socket, counters },
        None => Command::ListenTcp { addr, socket, counters: Arc::clone(counters) },
    }
}
