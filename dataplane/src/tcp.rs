//! TCP connections from accept to close. Everything runs on the worker that accepted, or on one that it handed the connection to.
//!
//! The way of a connection: `accept` takes it from its listening socket, `setup` reads who the client is if the peer is a trusted proxy
//! and picks an endpoint, `connect` reaches that, `relay` moves bytes. `connection_table` keeps them all and gives them their turns.

mod accept;
mod connect;
mod connection_table;
mod idle_clock;
mod pipe_pool;
mod port_search;
mod read_proxy_header;
mod relay;
mod session;
mod setup;
mod splice;
mod stream;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::FrontendAddr;
use socket2::Socket;

use crate::counters::FrontendCounters;
use crate::listener::steering::frontends::SteeredFrontends;
use crate::sys::epoll::Readiness;
use crate::worker::context::WorkerContext;
use crate::worker::port::Accepted;
use crate::worker::token::Key;
use accept::Listeners;
use connection_table::ConnectionTable;
pub(crate) use pipe_pool::PipeBudget;
use pipe_pool::PipePool;
pub(crate) use port_search::warn_of_slow_connects;
use splice::RelayBuffers;

/// How long to wait while this machine is short of what sockets need: neither clients nor endpoints are to blame, and the
/// kernel's queues hold the clients meanwhile. HAProxy waits as long (`src/listener.c`).
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// TCP on one worker.
pub(crate) struct Tcp {
    worker: Rc<WorkerContext>,
    listeners: Listeners,
    connections: ConnectionTable,
}

impl Tcp {
    /// Listens nowhere yet.
    pub(crate) fn new(worker: &Rc<WorkerContext>, pipes: PipeBudget, steered: Arc<SteeredFrontends>) -> Self {
        let pipes = PipePool::new(pipes, worker.now());
        let buffers = RelayBuffers::new(pipes, Arc::clone(&worker.shared.capacity));
        Self {
            worker: Rc::clone(worker),
            listeners: Listeners::new(worker, steered),
            connections: ConnectionTable::new(worker, buffers),
        }
    }

    /// Serves a frontend's own socket. The counters are those of all workers.
    pub(crate) fn listen(
        &mut self,
        addr: FrontendAddr,
        socket: Arc<Socket>,
        counters: Arc<[FrontendCounters]>,
    ) {
        self.listeners.listen(addr, socket, counters);
    }

    /// Serves a socket of steered frontends; `addr` is its own.
    pub(crate) fn steer(&mut self, addr: FrontendAddr, socket: Arc<Socket>) {
        self.listeners.steer(addr, socket);
    }

    /// Takes nothing new on a frontend.
    pub(crate) fn close(&mut self, addr: FrontendAddr) {
        self.listeners.close(addr);
    }

    /// The frontend has left the table: takes nothing new, and ends its connections after the time of a drain.
    pub(crate) fn remove(&mut self, addr: FrontendAddr) {
        self.close(addr);
        self.connections.remove_frontend(addr);
    }

    /// Takes what has already shaken hands, and then nothing new.
    pub(crate) fn drain(&mut self) {
        let Self { listeners, connections, .. } = self;
        listeners.drain(|accepted, active| connections.admit(accepted, active));
    }

    /// Takes nothing new for as long as another process is taking over.
    pub(crate) fn pause(&mut self) {
        self.listeners.pause();
    }

    /// Goes on, since nobody has taken over.
    pub(crate) fn resume(&mut self) {
        self.listeners.resume();
    }

    /// Lets go of the listening sockets, which another process has taken over. Connections go on.
    pub(crate) fn leave(&mut self) {
        self.listeners.leave();
    }

    /// Connections wait at a listening socket.
    pub(crate) fn on_listener(&mut self, key: Key) {
        self.listeners.on_ready(key);
    }

    /// Something has happened to a client's socket.
    pub(crate) fn on_client(&mut self, key: Key, readiness: Readiness) {
        self.connections.on_client(key, readiness);
    }

    /// Something has happened to an endpoint's socket.
    pub(crate) fn on_endpoint(&mut self, key: Key, readiness: Readiness) {
        self.connections.on_endpoint(key, readiness);
    }

    /// Takes connections that other workers have accepted.
    pub(crate) fn adopt(&mut self, handed_on: Vec<Accepted>) {
        for accepted in handed_on {
            let active = self.worker.table().get(accepted.frontend).cloned();
            self.connections.admit(accepted, active.as_ref());
            // It was counted when it was left here, and has been again.
            self.worker.port().closed();
        }
    }

    /// Looks for memory to give back, if more is taken than there may be.
    pub(crate) fn relieve_memory(&mut self) {
        self.connections.relieve_memory(&self.worker.shared.capacity);
    }

    /// Does what is due.
    pub(crate) fn on_time(&mut self, now: Instant) {
        self.listeners.on_time(now);
        self.connections.on_time(now);
    }

    /// Has a watch know what the connections in these places have. Says whether there are places behind them.
    pub(crate) fn collect(&mut self, places: Range<usize>) -> bool {
        self.connections.collect(places)
    }

    /// Gives everyone a turn who waits for one.
    pub(crate) fn serve(&mut self) {
        let Self { listeners, connections, .. } = self;
        listeners.serve(|accepted, active| connections.admit(accepted, active));
        connections.serve();
    }

    /// Whether somebody waits for a turn.
    pub(crate) fn has_work(&self) -> bool {
        self.listeners.has_work() || self.connections.has_work()
    }

    /// When something is due.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        [self.listeners.next_deadline(), self.connections.next_deadline()].into_iter().flatten().min()
    }

    /// The worker has other settings.
    pub(crate) fn settings_changed(&mut self) {
        self.connections.set_timeouts(self.worker.timeouts());
    }

    /// Ends every connection.
    pub(crate) fn end_all(&mut self) {
        self.connections.end_all();
    }
}
