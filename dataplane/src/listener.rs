//! The listeners of all frontends: opened, filtered and closed so that they say what the table says. Most have sockets of
//! their own; those for which there is no room, or all if that is wanted, are steered.
//!
//! Reject is a closed socket, so the kernel answers RST or ICMP port unreachable. Drop and source ranges are a filter
//! on the open socket, so packets vanish in silence. Steering has the same verdicts without the sockets. A frontend whose
//! posture stays the same keeps its sockets, and whatever waits in their accept queues. It must not know balancing or
//! relays.

pub(crate) mod bind;
mod departed;
mod failure;
mod filter;
mod others;
mod place;
mod posture;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use sheave_model::{AddressSet, Frontend, FrontendAddr, Protocol};

use crate::capacity::Capacity;
use crate::counters::{CounterRegistry, FrontendCounters, Totals};
use crate::overload::{Door, Frontends};
use crate::services::OfServices;
use crate::shed::FrontendUse;
use crate::steering::{Steering, SteeringMode, SteeringReport};
use crate::sys::{Errno, drops};
use crate::worker::{Broken, Command, WorkerHandle};
use bind::Claim;
use departed::Departed;
pub use failure::BindFailure;
use filter::Filters;
use place::{Occupancy, Place};
use posture::{Audience, Posture};

/// One frontend, open or closed.
#[derive(Debug)]
struct Listener {
    /// None if it is not known, because a change failed halfway.
    posture: Option<Posture>,
    place: Place,
    counters: Arc<[FrontendCounters]>,
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
    /// Places where this process listens for other ends.
    servers: usize,
    capacity: Arc<Capacity>,
    listeners: HashMap<FrontendAddr, Listener>,
    /// What each Service has open.
    open_of_services: OfServices<AtomicU32>,
    /// Those of `listeners`, for others to read.
    counters: Arc<CounterRegistry>,
    totals: Arc<Totals>,
    departed: Departed,
    filters: Filters,
    steering: Steering,
}

impl ListenerSet {
    /// Nothing is open; so many sockets may be, for as many workers at a time as there are.
    pub(crate) fn new(room: usize, workers: usize, capacity: Arc<Capacity>, steering: Steering) -> Self {
        Self {
            room,
            open: 0,
            with_sockets: 0,
            steered: 0,
            servers: 0,
            capacity,
            listeners: HashMap::new(),
            open_of_services: OfServices::default(),
            counters: Arc::default(),
            totals: Arc::new(Totals::of_workers(workers)),
            departed: Departed::default(),
            filters: Filters::default(),
            steering,
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
        door: Door,
        workers: &[WorkerHandle],
    ) -> Result<(), BindFailure> {
        let addr = frontend.addr;
        let wanted = Posture::of(frontend, internal, door);
        let mut listener = self.listeners.remove(&addr).unwrap_or_else(|| {
            let open = self.open_of_services.get_or(frontend, AtomicU32::default);
            let counters = FrontendCounters::of_workers(addr.protocol, &self.totals, open);
            self.counters.insert(addr, &counters);
            // Where all are steered, closed ones are, too.
            let posture = (self.steering.mode() != SteeringMode::Always).then_some(Posture::Closed);
            Listener { posture, place: Place::Nowhere, counters }
        });
        let changed = if listener.posture.as_ref() == Some(&wanted) {
            Ok(())
        } else {
            listener.posture = None;
            let before = listener.place.occupancy();
            let changed = self.change(addr, &mut listener, &wanted, workers);
            self.count(before, listener.place.occupancy());
            changed.map(|()| listener.posture = Some(wanted))
        };
        let listening = listener.place.is_open();
        self.listeners.insert(addr, listener);
        changed.map_err(|error| BindFailure { frontend: Arc::clone(frontend), error, listening })
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
        wanted: &Posture,
        workers: &[WorkerHandle],
    ) -> io::Result<()> {
        match (wanted, &mut listener.place) {
            (Posture::Closed, _) => self.retire(addr, &mut listener.place, workers),
            (Posture::Open(audience), Place::Nowhere) => {
                let steered = self.chooses_steering(workers)?;
                listener.place = if steered {
                    self.claim(addr, &listener.counters)?;
                    self.steer(addr, audience, &listener.counters, workers)?
                } else {
                    self.bind(addr, audience, &listener.counters, workers)?
                };
                // A start opens thousands; those that cannot be opened are told.
                tracing::debug!(frontend = %addr, steered, "listening");
                Ok(())
            }
            (Posture::Open(audience), Place::Sockets { sockets, share }) => {
                let sources = audience.sources(addr.ip);
                // In one step per socket; waiting connections stay.
                (*share, ()) = self.filters.with(&sources, addr.ip, audience.door(), |filter| {
                    sockets.iter().try_for_each(|socket| filter.attach(socket))
                })?;
                Ok(())
            }
            (Posture::Open(audience), place @ Place::Steered(_)) => {
                *place = self.steer(addr, audience, &listener.counters, workers)?;
                Ok(())
            }
        }
    }

    /// Whether a frontend that opens is to be steered.
    ///
    /// # Errors
    /// `EMFILE` if it cannot be and there is no room for sockets.
    fn chooses_steering(&mut self, workers: &[WorkerHandle]) -> io::Result<bool> {
        let room = self.has_room_for_sockets(workers);
        let steered = (self.steering.mode() == SteeringMode::Always || !room) && self.steering.is_ready();
        if steered || room { Ok(steered) } else { Err(Errno::EMFILE.into()) }
    }

    fn bind(
        &mut self,
        addr: FrontendAddr,
        audience: &Audience,
        counters: &[FrontendCounters],
        workers: &[WorkerHandle],
    ) -> io::Result<Place> {
        let claim = if self.departed.holds(addr, counters) { Claim::Again } else { Claim::First };
        let (sources, door) = (audience.sources(addr.ip), audience.door());
        let (share, sockets) = self
            .filters
            .with(&sources, addr.ip, door, |filter| bind::bind(addr, claim, filter, workers.len()))?;
        for ((worker, socket), counters) in workers.iter().zip(&sockets).zip(counters) {
            worker.send(Command::Listen { addr, socket: Arc::clone(socket), counters: counters.clone() });
        }
        Ok(Place::Sockets { sockets, share })
    }

    fn steer(
        &mut self,
        addr: FrontendAddr,
        audience: &Audience,
        counters: &[FrontendCounters],
        workers: &[WorkerHandle],
    ) -> io::Result<Place> {
        // Packets of connections that have begun do not come this way.
        let sources = match audience.door() {
            Door::Open => audience.sources(addr.ip),
            Door::Closed => AddressSet::default(),
        };
        self.steering
            .steer(addr, &sources, counters, workers)
            .map(|admission| Place::Steered(Some(admission)))
    }

    /// Makes sure that steering to `addr` takes nothing from another process, unless that is what is wanted, which it never is
    /// at an address of this machine itself. Answers to datagrams leave from a socket on the address in any case.
    fn claim(&mut self, addr: FrontendAddr, counters: &[FrontendCounters]) -> io::Result<()> {
        let takes_over = self.steering.mode() == SteeringMode::Always
            && addr.protocol == Protocol::Tcp
            && !self.steering.is_machines(addr.ip);
        if takes_over || self.departed.holds(addr, counters) { Ok(()) } else { bind::probe(addr) }
    }

    /// Refuses everything new at `addr`; UDP flows live on.
    fn retire(&mut self, addr: FrontendAddr, place: &mut Place, workers: &[WorkerHandle]) -> io::Result<()> {
        let admission = match place {
            Place::Steered(admission) => Some(admission.take()),
            // So that no other process answers in its place, unless the place is rather that one's.
            Place::Nowhere
                if self.steering.mode() == SteeringMode::Always && !self.steering.is_machines(addr.ip) =>
            {
                self.steering.is_ready().then_some(None)
            }
            Place::Nowhere | Place::Sockets { .. } => None,
        };
        let steered = admission.is_some();
        let refusal = admission.map_or(Ok(None), |admission| self.steering.refuse(addr, admission))?;
        for worker in workers {
            worker.send(Command::Retire(addr, refusal.clone()));
        }
        place.close(addr);
        if steered {
            *place = Place::Steered(None);
        }
        Ok(())
    }

    /// Closes a frontend that has left the table. Its open connections go on.
    pub(crate) fn remove(&mut self, addr: FrontendAddr, workers: &[WorkerHandle]) {
        if let Some(mut listener) = self.listeners.remove(&addr) {
            self.give_up(addr, &mut listener.place, workers);
            self.departed.add(addr, &listener.counters);
            self.counters.remove(addr);
        }
    }

    fn give_up(&mut self, addr: FrontendAddr, place: &mut Place, workers: &[WorkerHandle]) {
        self.count(place.occupancy(), Occupancy::default());
        if matches!(place, Place::Steered(_)) {
            self.steering.forget(addr);
        }
        // Also without sockets: flows of a retired frontend may live on.
        for worker in workers {
            worker.send(Command::Close(addr));
        }
        place.close(addr);
    }

    /// Forgets the sockets of a frontend of which a worker found one broken, so that the next reconcile binds anew.
    /// False if that socket is not in use any more: closing it is what the worker has seen.
    pub(crate) fn discard(&mut self, broken: &Broken, workers: &[WorkerHandle]) -> bool {
        let Broken { addr, socket, error } = broken;
        if self.steering.discard(socket) {
            tracing::warn!(%error, "a socket of steered frontends is broken; opening it again");
            return false;
        }
        let current = self.listeners.get(addr).is_some_and(|listener| listener.place.has(socket));
        if current {
            tracing::warn!(frontend = %addr, %error, "listening socket is broken; binding it again");
            self.start_over(*addr, workers);
        }
        current
    }

    /// Closes a frontend, so that the next reconcile opens it anew.
    fn start_over(&mut self, addr: FrontendAddr, workers: &[WorkerHandle]) {
        let Some(mut listener) = self.listeners.remove(&addr) else { return };
        self.give_up(addr, &mut listener.place, workers);
        listener.posture = None;
        self.listeners.insert(addr, listener);
    }

    /// Gives a worker that was started again the sockets that it had: what waits in their queues is served yet.
    pub(crate) fn serve_again(&self, index: usize, worker: &WorkerHandle) {
        for (addr, listener) in &self.listeners {
            let (Place::Sockets { sockets, .. }, Some(counters)) =
                (&listener.place, listener.counters.get(index))
            else {
                continue;
            };
            if let Some(socket) = sockets.get(index) {
                worker.send(Command::Listen {
                    addr: *addr,
                    socket: Arc::clone(socket),
                    counters: counters.clone(),
                });
            }
        }
        self.steering.serve_again(index, worker);
    }

    /// Opens again what steered frontends share, where it was broken. Gives the frontends that must not be steered any more,
    /// because another process of this machine has begun to listen at its own address: the next reconcile says so.
    pub(crate) fn retry(&mut self, workers: &[WorkerHandle]) -> Vec<FrontendAddr> {
        self.steering.restore(workers);
        if !self.steering.has_machine() {
            return Vec::new();
        }
        let steered = |(addr, listener): (&FrontendAddr, &Listener)| {
            let asked = addr.protocol == Protocol::Tcp && self.steering.is_machines(addr.ip);
            (asked && matches!(listener.place, Place::Steered(_))).then_some(*addr)
        };
        let mut steered = self.listeners.iter().filter_map(steered).peekable();
        if steered.peek().is_none() {
            return Vec::new();
        }
        let others = others::listening();
        // Connected sockets are in the way of bind(2), too, and a listener for IPv6 alone is not one for IPv4.
        let taken = |addr: &FrontendAddr| {
            others.iter().any(|other| addr.is_reached_at(*other))
                && bind::probe(*addr).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        };
        let taken: Vec<FrontendAddr> = steered.filter(taken).collect();
        for addr in &taken {
            tracing::warn!(frontend = %addr, "another process of this machine listens there now, so it is not steered any more");
            self.start_over(*addr, workers);
        }
        taken
    }

    /// Names the places where this process listens for other ends, and the addresses of this machine itself. Gives the
    /// frontends that must not be steered any more: the next reconcile says so.
    pub(crate) fn reserve(
        &mut self,
        servers: BTreeSet<SocketAddr>,
        machine: BTreeSet<IpAddr>,
        workers: &[WorkerHandle],
    ) -> Vec<FrontendAddr> {
        self.steering.set_machine(machine);
        let count = servers.len();
        self.capacity.take(count);
        self.capacity.give(std::mem::replace(&mut self.servers, count));
        if !self.steering.reserve(servers) {
            return Vec::new();
        }
        let is_taken = |(addr, listener): (&FrontendAddr, &Listener)| {
            let taken = matches!(listener.place, Place::Steered(_)) && self.steering.is_reserved(*addr);
            taken.then_some(*addr)
        };
        let taken: Vec<FrontendAddr> = self.listeners.iter().filter_map(is_taken).collect();
        taken.iter().for_each(|addr| self.start_over(*addr, workers));
        taken
    }

    /// Lets go of all sockets, so that the workers hold them alone. What was counted stays.
    pub(crate) fn release(&mut self) {
        for listener in self.listeners.values_mut() {
            listener.place.release();
            listener.posture = None;
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
        match self.listeners.get(&frontend).map(|listener| &listener.place) {
            Some(Place::Sockets { sockets, .. }) => {
                sockets.iter().map(|socket| u64::from(drops::of(&**socket).unwrap_or(0))).sum()
            }
            Some(Place::Nowhere | Place::Steered(_)) | None => 0,
        }
    }
}
