//! The listening sockets of one worker. No error ends accepting: one table maps each errno to an action.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::SHORTAGE_PAUSE;
use crate::counters::{FrontendCounters, TcpCounters};
use crate::listener::steering::frontends::SteeredFrontends;
use crate::select::ActiveFrontend;
use crate::sys::epoll::Watch;
use crate::sys::errnos::is_shortage;
use crate::sys::{self, Errno};
use crate::worker::context::WorkerContext;
use crate::worker::deadlines::Deadlines;
use crate::worker::port::Accepted;
use crate::worker::token::{Key, KeyedSlab, Token};
use sheave_model::{ClientAddr, FrontendAddr, Protocol};

/// What to do about a failed accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum AcceptAction {
    /// This one connection is lost; take the next at once.
    Retry,
    /// The queue is empty: wait for readiness.
    Wait,
    /// A resource is used up: rest, then go on.
    Pause(Duration),
    /// The socket itself is of no more use: it has to be bound again.
    Rebind,
}

impl AcceptAction {
    /// The action for an error of accept(2).
    fn for_error(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EAGAIN) => Self::Wait,
            // Already-pending network errors of the new socket (accept(2), "Error handling"), signals, and what is
            // not the kernel's error at all but one odd peer's.
            None
            | Some(
                Errno::EINTR
                | Errno::ECONNABORTED
                | Errno::EPROTO
                | Errno::ENETDOWN
                | Errno::ENOPROTOOPT
                | Errno::EHOSTDOWN
                | Errno::ENONET
                | Errno::EHOSTUNREACH
                | Errno::EOPNOTSUPP
                | Errno::ENETUNREACH
                | Errno::ETIMEDOUT,
            ) => Self::Retry,
            Some(errno) if is_shortage(errno) => Self::Pause(SHORTAGE_PAUSE),
            Some(Errno::EPERM | Errno::ENOSR) => Self::Pause(SHORTAGE_PAUSE),
            Some(_) => Self::Rebind,
        }
    }
}

/// Connections that a socket gives before others have their turn, and all sockets together in a turn of the loop.
const MOST_AT_ONCE: usize = 64;
const MOST_PER_TURN: usize = 256;

/// A frontend as the listeners know it: its counters, and where it is in the table.
#[derive(Debug)]
struct Served {
    /// Of all workers.
    counters: Arc<[FrontendCounters]>,
    /// As of the table of this number.
    active: Option<Arc<ActiveFrontend>>,
    table_number: Option<u64>,
}

impl Served {
    fn new(counters: Arc<[FrontendCounters]>) -> Self {
        Self { counters, active: None, table_number: None }
    }

    /// The counters of one worker.
    fn counters_of(&self, worker: usize) -> Option<Arc<TcpCounters>> {
        self.counters.get(worker)?.tcp()
    }

    /// The frontend in the latest table, looked up once per table. It may have opened in this turn, and the connection been made since.
    fn active(&mut self, worker: &WorkerContext, addr: FrontendAddr) -> Option<&Arc<ActiveFrontend>> {
        worker.refresh_table();
        let number = Some(worker.table_number());
        if self.table_number != number {
            self.active = worker.table().get(addr).cloned();
            self.table_number = number;
        }
        self.active.as_ref()
    }
}

/// One listening socket.
struct ListeningSocket {
    socket: Arc<Socket>,
    addr: FrontendAddr,
    /// The frontend of all its connections; `None` if frontends are steered to it.
    served: Option<Served>,
    /// It has been reported and not had its turn yet.
    queued: bool,
    /// When it had its last turn, and how many connections it might give in it.
    served_in: u64,
    batch: usize,
}

/// The listening sockets of one worker.
pub(super) struct Listeners {
    worker: Rc<WorkerContext>,
    listeners: KeyedSlab<ListeningSocket>,
    /// Those that are of one frontend alone.
    of_frontends: HashMap<FrontendAddr, Key>,
    steered: Arc<SteeredFrontends>,
    /// Steered frontends that have had a connection.
    met: HashMap<FrontendAddr, Served, foldhash::fast::RandomState>,
    ready: VecDeque<Key>,
    /// Counts the turns of the loop.
    turn: u64,
    rests: Deadlines<Key>,
    /// Another process is taking over.
    paused: bool,
}

impl Listeners {
    /// Listens nowhere yet.
    pub(super) fn new(worker: &Rc<WorkerContext>, steered: Arc<SteeredFrontends>) -> Self {
        Self {
            worker: Rc::clone(worker),
            listeners: KeyedSlab::default(),
            of_frontends: HashMap::new(),
            steered,
            met: HashMap::default(),
            ready: VecDeque::new(),
            turn: 0,
            rests: Deadlines::new(SHORTAGE_PAUSE),
            paused: false,
        }
    }

    /// Listens on the socket of one frontend.
    pub(super) fn listen(
        &mut self,
        addr: FrontendAddr,
        socket: Arc<Socket>,
        counters: Arc<[FrontendCounters]>,
    ) {
        if let Some(key) = self.add(addr, socket, Some(Served::new(counters))) {
            self.of_frontends.insert(addr, key);
        }
    }

    /// Listens on a socket that steered frontends share; the address is its own.
    pub(super) fn steer(&mut self, addr: FrontendAddr, socket: Arc<Socket>) {
        self.add(addr, socket, None);
    }

    fn add(&mut self, addr: FrontendAddr, socket: Arc<Socket>, served: Option<Served>) -> Option<Key> {
        let listener = ListeningSocket { socket, addr, served, queued: false, served_in: 0, batch: 1 };
        let key = self.listeners.insert_with(|_| listener);
        let listener = self.listeners.get_mut(key)?;
        let watched =
            self.worker.poller.add(&*listener.socket, Watch::Listener, Token::TcpListener(key).into());
        match watched {
            Ok(()) => Some(key),
            Err(error) => {
                self.give_up(key, error);
                None
            }
        }
    }

    /// The frontend is gone, or takes nothing new: lets go of its socket.
    pub(super) fn close(&mut self, addr: FrontendAddr) {
        self.met.remove(&addr);
        if let Some(key) = self.of_frontends.remove(&addr) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: Key) -> Option<ListeningSocket> {
        let listener = self.listeners.remove(key)?;
        self.worker.poller.remove(&*listener.socket);
        Some(listener)
    }

    /// A socket is of no more use.
    fn give_up(&mut self, key: Key, error: io::Error) {
        if let Some(ListeningSocket { addr, socket, .. }) = self.remove(key) {
            if self.of_frontends.get(&addr) == Some(&key) {
                self.of_frontends.remove(&addr);
            }
            self.worker.report_broken(addr, socket, error);
        }
    }

    /// Connections wait at a socket.
    pub(super) fn on_ready(&mut self, key: Key) {
        if let Some(listener) = self.listeners.get_mut(key)
            && !std::mem::replace(&mut listener.queued, true)
        {
            self.ready.push_back(key);
        }
    }

    /// Takes what waits at the sockets that were reported, a bounded number from each.
    pub(super) fn serve(&mut self, mut admit: impl FnMut(Accepted, Option<&Arc<ActiveFrontend>>)) {
        self.turn += 1;
        let mut taken = 0;
        while self.has_work()
            && taken < MOST_PER_TURN
            && let Some(key) = self.ready.pop_front()
        {
            let Some(listener) = self.listeners.get_mut(key) else { continue };
            // Who is reported again at once has more; then it is asked in vain once per burst, not once per connection.
            let again = listener.served_in + 1 == self.turn;
            let batch = if again { (2 * listener.batch).min(MOST_AT_ONCE) } else { 1 };
            (listener.queued, listener.served_in, listener.batch) = (false, self.turn, batch);
            taken += self.accept(key, batch, &mut admit);
        }
    }

    /// Whether sockets wait for their turns.
    pub(super) fn has_work(&self) -> bool {
        !self.paused && !self.ready.is_empty()
    }

    /// Watches sockets again that have rested.
    pub(super) fn on_time(&mut self, now: Instant) {
        while !self.paused
            && let Some((_, key)) = self.rests.pop(now)
        {
            self.watch(key, Watch::Listener);
        }
    }

    fn watch(&mut self, key: Key, watch: Watch) {
        let Some(listener) = self.listeners.get_mut(key) else { return };
        if let Err(error) =
            self.worker.poller.change(&*listener.socket, watch, Token::TcpListener(key).into())
        {
            self.give_up(key, error);
        }
    }

    /// When a socket has rested enough.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.paused { None } else { self.rests.next() }
    }

    /// Takes nothing from now on: connections wait in the sockets, which another process is taking over.
    pub(super) fn pause(&mut self) {
        self.paused = true;
        self.watch_all(Watch::Nothing);
    }

    /// Goes on, since nobody has taken over.
    pub(super) fn resume(&mut self) {
        self.paused = false;
        self.watch_all(Watch::Listener);
    }

    fn watch_all(&mut self, watch: Watch) {
        self.keys().into_iter().for_each(|key| self.watch(key, watch));
    }

    fn keys(&mut self) -> Vec<Key> {
        self.listeners.iter_mut().map(|(key, _)| key).collect()
    }

    /// Lets go of all sockets, and of what waits in them: another process has them.
    pub(super) fn leave(&mut self) {
        self.keys().into_iter().for_each(|key| drop(self.remove(key)));
        self.of_frontends.clear();
        self.met.clear();
    }

    /// Takes everything that has shaken hands, and lets go of all sockets.
    pub(super) fn drain(&mut self, mut admit: impl FnMut(Accepted, Option<&Arc<ActiveFrontend>>)) {
        for key in self.keys() {
            let Some(listener) = self.listeners.get_mut(key) else { continue };
            // Clients may come faster than they are served.
            let waiting = sys::stream::waiting_connections(&listener.socket);
            self.accept(key, waiting, &mut admit);
            self.remove(key);
        }
        self.of_frontends.clear();
    }

    /// Takes so many connections, unless there are fewer; gives how many.
    fn accept(
        &mut self,
        key: Key,
        most: usize,
        admit: &mut impl FnMut(Accepted, Option<&Arc<ActiveFrontend>>),
    ) -> usize {
        let mut taken = 0;
        while taken < most {
            let Some(listener) = self.listeners.get_mut(key) else { break };
            let error = match sys::sockets::accept(&*listener.socket) {
                Ok((socket, peer)) => {
                    taken += 1;
                    self.accepted(key, socket, ClientAddr(peer), admit);
                    continue;
                }
                Err(error) => error,
            };
            match AcceptAction::for_error(&error) {
                AcceptAction::Retry => {}
                AcceptAction::Wait => {
                    listener.batch = 1;
                    break;
                }
                AcceptAction::Pause(pause) => {
                    log_shortage(&self.worker, listener.addr, &error);
                    // It would be reported all the time.
                    self.watch(key, Watch::Nothing);
                    self.rests.push(self.worker.now(), pause, key);
                    break;
                }
                AcceptAction::Rebind => {
                    self.give_up(key, error);
                    break;
                }
            }
        }
        taken
    }

    /// Gives a connection to whoever is to serve it; one that is to no frontend is reset.
    fn accepted(
        &mut self,
        key: Key,
        socket: Socket,
        peer: ClientAddr,
        admit: &mut impl FnMut(Accepted, Option<&Arc<ActiveFrontend>>),
    ) {
        let Self { worker, listeners, met, steered, .. } = self;
        let Some(ListeningSocket { addr, served, .. }) = listeners.get_mut(key) else { return };
        let found = match served {
            Some(served) => Some((*addr, served)),
            // Who calls the socket itself is no client of anyone.
            None => called(&socket)
                .filter(|called| called != addr)
                .and_then(|called| Some((called, meet(met, steered, called)?))),
        };
        let (own, ports) = (worker.index, &worker.shared.ports);
        let other = ports.less_busy_than(own, || worker.random.next());
        let taker = other.unwrap_or(own);
        let Some((frontend, served, counters)) = found.and_then(|(frontend, served)| {
            let counters = served.counters_of(taker)?;
            Some((frontend, served, counters))
        }) else {
            return sys::sockets::reset_on_close(&socket);
        };
        let accepted = Accepted { frontend, peer, socket, counters };
        if taker == own {
            return admit(accepted, served.active(worker, frontend));
        }
        if let Err(mut accepted) = ports.hand_on(taker, accepted)
            && let Some(counters) = served.counters_of(own)
        {
            accepted.counters = counters;
            admit(accepted, served.active(worker, frontend));
        }
    }
}

/// The address that a client of steered frontends has called.
fn called(socket: &Socket) -> Option<FrontendAddr> {
    let called = socket.local_addr().ok()?.as_socket()?;
    Some(FrontendAddr { ip: called.ip(), port: called.port(), protocol: Protocol::Tcp })
}

/// A steered frontend, looked up where all workers look only when it is met for the first time.
fn meet<'m>(
    met: &'m mut HashMap<FrontendAddr, Served, foldhash::fast::RandomState>,
    steered: &SteeredFrontends,
    addr: FrontendAddr,
) -> Option<&'m mut Served> {
    match met.entry(addr) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(new) => Some(new.insert(Served::new(steered.counters(addr)?))),
    }
}

/// Logs what is used up and what helps, but not at each pause of each listener.
fn log_shortage(worker: &WorkerContext, addr: FrontendAddr, error: &io::Error) {
    if !worker.log_throttle.admits(worker.now()) {
        return;
    }
    let advice = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => "raise this process's limit of open files (LimitNOFILE, ulimit -n)",
        Some(Errno::ENFILE) => "raise the machine's limit of open files (fs.file-max)",
        Some(Errno::EPERM) => "a firewall rule or security module forbids it",
        _ => "the machine is short of memory for sockets",
    };
    tracing::warn!(frontend = %addr, %error, advice, "cannot accept; clients wait in the queue");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(errno: Errno) -> AcceptAction {
        AcceptAction::for_error(&io::Error::from(errno))
    }

    #[test]
    fn a_connection_that_died_in_the_queue_costs_nothing_but_itself() {
        for errno in [Errno::ECONNABORTED, Errno::EPROTO, Errno::EHOSTUNREACH, Errno::EINTR] {
            assert_eq!(action(errno), AcceptAction::Retry, "{errno}");
        }
    }

    #[test]
    fn running_out_of_descriptors_or_memory_pauses() {
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM] {
            assert_eq!(action(errno), AcceptAction::Pause(SHORTAGE_PAUSE), "{errno}");
        }
    }

    #[test]
    fn an_empty_queue_waits_and_a_dead_socket_is_bound_again() {
        assert_eq!(action(Errno::EAGAIN), AcceptAction::Wait);
        assert_eq!(action(Errno::EBADF), AcceptAction::Rebind);
        assert_eq!(action(Errno::EINVAL), AcceptAction::Rebind);
    }
}
