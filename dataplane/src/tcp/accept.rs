//! Listening sockets of one worker. Accepting survives every error: one table maps each errno to an action.

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
use crate::worker::token::{Key, KeyedSlab, Token};
use crate::worker_port::Accepted;
use sheave_model::{ClientAddr, FrontendAddr, Protocol};

/// Action after a failed accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum AcceptAction {
    /// Take the next connection at once; only this one is lost.
    Retry,
    /// Wait for readiness: the queue is empty.
    Wait,
    /// Pause, then go on: a resource is exhausted.
    Pause(Duration),
    /// Bind the socket again: this one has failed.
    Rebind,
}

impl AcceptAction {
    /// The action for an error of accept(2).
    fn for_error(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EAGAIN) => Self::Wait,
            // Pending network errors of the new socket (accept(2), "Error handling"), signals, and errors without an errno, which
            // concern one odd peer and not the socket.
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

/// Maximum number of connections accepted from one socket before others have their turn, and from all sockets in a turn of the loop.
const MOST_AT_ONCE: usize = 64;
const MOST_PER_TURN: usize = 256;

/// A frontend as the listeners know it: its counters, and its entry in the table.
#[derive(Debug)]
struct Served {
    /// Counters of all workers.
    counters: Arc<[FrontendCounters]>,
    /// The frontend in the table of number `table_number`.
    active: Option<Arc<ActiveFrontend>>,
    table_number: Option<u64>,
}

impl Served {
    fn new(counters: Arc<[FrontendCounters]>) -> Self {
        Self { counters, active: None, table_number: None }
    }

    /// Counters of one worker.
    fn counters_of(&self, worker: usize) -> Option<Arc<TcpCounters>> {
        self.counters.get(worker)?.tcp()
    }

    /// The frontend in the latest table, looked up once per table. It loads that table first: the frontend may have opened during this
    /// turn.
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
    /// The frontend of all its connections; `None` if steered frontends share the socket.
    served: Option<Served>,
    /// Whether it is in the queue of ready sockets.
    queued: bool,
    /// Turn in which it was last served, and the batch size of that turn.
    served_in: u64,
    batch: usize,
}

/// The listening sockets of one worker.
pub(super) struct Listeners {
    worker: Rc<WorkerContext>,
    listeners: KeyedSlab<ListeningSocket>,
    /// Sockets that belong to one frontend.
    of_frontends: HashMap<FrontendAddr, Key>,
    steered: Arc<SteeredFrontends>,
    /// Steered frontends that have had a connection on this worker.
    met: HashMap<FrontendAddr, Served, foldhash::fast::RandomState>,
    ready: VecDeque<Key>,
    /// Number of the current turn of the loop.
    turn: u64,
    rests: Deadlines<Key>,
    /// Whether another process is taking over.
    paused: bool,
}

impl Listeners {
    /// Creates an empty set.
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

    /// Counts the connections that a frontend accepts from now on with these counters.
    pub(super) fn count_with(&mut self, addr: FrontendAddr, counters: Arc<[FrontendCounters]>) {
        // If it is steered, it is looked up again.
        self.met.remove(&addr);
        let own = self.of_frontends.get(&addr).and_then(|key| self.listeners.get_mut(*key));
        if let Some(listener) = own {
            listener.served = Some(Served::new(counters));
        }
    }

    /// Listens on a socket that steered frontends share; `addr` is the socket's own address.
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

    /// Releases the socket of a frontend that is gone or takes no new traffic.
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

    /// Removes a socket that has failed, and reports it.
    fn give_up(&mut self, key: Key, error: io::Error) {
        if let Some(ListeningSocket { addr, socket, .. }) = self.remove(key) {
            if self.of_frontends.get(&addr) == Some(&key) {
                self.of_frontends.remove(&addr);
            }
            self.worker.report_broken(addr, Some(socket), error);
        }
    }

    /// Queues a socket at which connections wait.
    pub(super) fn on_ready(&mut self, key: Key) {
        if let Some(listener) = self.listeners.get_mut(key)
            && !std::mem::replace(&mut listener.queued, true)
        {
            self.ready.push_back(key);
        }
    }

    /// Accepts connections at the ready sockets, a bounded number from each.
    pub(super) fn serve(&mut self, mut admit: impl FnMut(Accepted, Option<&Arc<ActiveFrontend>>)) {
        self.turn += 1;
        let mut taken = 0;
        while self.has_work()
            && taken < MOST_PER_TURN
            && let Some(key) = self.ready.pop_front()
        {
            let Some(listener) = self.listeners.get_mut(key) else { continue };
            // A socket that is ready in consecutive turns has more waiting. Doubling its batch costs one vain accept per burst, not per
            // connection.
            let again = listener.served_in + 1 == self.turn;
            let batch = if again { (2 * listener.batch).min(MOST_AT_ONCE) } else { 1 };
            (listener.queued, listener.served_in, listener.batch) = (false, self.turn, batch);
            taken += self.accept(key, batch, &mut admit);
        }
    }

    /// Whether sockets wait for their turn.
    pub(super) fn has_work(&self) -> bool {
        !self.paused && !self.ready.is_empty()
    }

    /// Resumes sockets whose pause is over.
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

    /// When the next pause of a socket is over.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.paused { None } else { self.rests.next() }
    }

    /// Stops accepting: connections wait in the sockets, which another process is taking over.
    pub(super) fn pause(&mut self) {
        self.paused = true;
        self.watch_all(Watch::Nothing);
    }

    /// Resumes accepting after a pause: the other process did not take over.
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

    /// Releases all sockets and the connections that wait in them: another process has the sockets, too.
    pub(super) fn leave(&mut self) {
        self.keys().into_iter().for_each(|key| drop(self.remove(key)));
        self.of_frontends.clear();
        self.met.clear();
    }

    /// Accepts every connection that has completed its handshake, and releases all sockets.
    pub(super) fn drain(&mut self, mut admit: impl FnMut(Accepted, Option<&Arc<ActiveFrontend>>)) {
        for key in self.keys() {
            let Some(listener) = self.listeners.get_mut(key) else { continue };
            // Bounded, since clients may arrive faster than they are accepted.
            let waiting = sys::stream::waiting_connections(&listener.socket);
            self.accept(key, waiting, &mut admit);
            self.remove(key);
        }
        self.of_frontends.clear();
    }

    /// Accepts up to `most` connections; returns how many.
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
                    // Readiness would be reported continuously.
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

    /// Admits a connection here or hands it to a less loaded worker; resets it if it belongs to no frontend.
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
            // A connection to the socket's own address is to no frontend.
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

/// The address that a client of steered frontends connected to.
fn called(socket: &Socket) -> Option<FrontendAddr> {
    let called = socket.local_addr().ok()?.as_socket()?;
    Some(FrontendAddr { ip: called.ip(), port: called.port(), protocol: Protocol::Tcp })
}

/// A steered frontend; the table shared by all workers is only consulted for its first connection.
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

/// Logs the exhausted resource with advice, throttled over all listeners of the worker.
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
