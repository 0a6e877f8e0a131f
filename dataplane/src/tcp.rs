//! TCP connections from accept to close. A connection stays on the worker that accepted it, or on the one that it was handed to.
//!
//! A connection passes these modules: `accept` takes it from its listening socket; `setup` reads the client's address if the peer is a
//! trusted proxy, and the server name if the frontend has any, and picks an endpoint; `connect` connects to the endpoint; `relay` moves
//! bytes. `connection_table` holds all connections and schedules their turns.

mod accept;
pub(crate) mod client_hello;
mod connect;
mod connection_table;
mod idle_clock;
mod pipe_pool;
mod read_client_hello;
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
use crate::worker::token::Key;
use crate::worker_port::Accepted;
use accept::Listeners;
use connection_table::ConnectionTable;
pub(crate) use pipe_pool::PipeBudget;
use pipe_pool::PipePool;
use splice::RelayBuffers;

/// Pause after a shortage of the resources that sockets need. Neither clients nor endpoints cause it, and the kernel's queues hold the
/// clients meanwhile. HAProxy waits as long (`src/listener.c`).
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// TCP proxy of one worker.
pub(crate) struct Tcp {
    worker: Rc<WorkerContext>,
    listeners: Listeners,
    connections: ConnectionTable,
}

impl Tcp {
    /// Creates a proxy without listeners.
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

    /// Counts the connections that a frontend accepts from now on with these counters of all workers.
    pub(crate) fn count_with(&mut self, addr: FrontendAddr, counters: Arc<[FrontendCounters]>) {
        self.listeners.count_with(addr, counters);
    }

    /// Serves a socket that steered frontends share; `addr` is the socket's own address.
    pub(crate) fn steer(&mut self, addr: FrontendAddr, socket: Arc<Socket>) {
        self.listeners.steer(addr, socket);
    }

    /// Stops accepting on a frontend.
    pub(crate) fn close(&mut self, addr: FrontendAddr) {
        self.listeners.close(addr);
    }

    /// Stops accepting on a frontend that has left the table, and ends its connections after the drain timeout.
    pub(crate) fn remove(&mut self, addr: FrontendAddr) {
        self.close(addr);
        self.connections.remove_frontend(addr);
    }

    /// Accepts the connections that have completed their handshake, and then no more.
    pub(crate) fn drain(&mut self) {
        let Self { listeners, connections, .. } = self;
        listeners.drain(|accepted, active| connections.admit(accepted, active));
    }

    /// Stops accepting while another process is taking over.
    pub(crate) fn pause(&mut self) {
        self.listeners.pause();
    }

    /// Resumes accepting after a pause: the other process did not take over.
    pub(crate) fn resume(&mut self) {
        self.listeners.resume();
    }

    /// Releases the listening sockets, which another process has taken over. Connections continue.
    pub(crate) fn leave(&mut self) {
        self.listeners.leave();
    }

    /// Handles an event of a listening socket: connections wait to be accepted.
    pub(crate) fn on_listener(&mut self, key: Key) {
        self.listeners.on_ready(key);
    }

    pub(crate) fn on_client(&mut self, key: Key, readiness: Readiness) {
        self.connections.on_client(key, readiness);
    }

    pub(crate) fn on_endpoint(&mut self, key: Key, readiness: Readiness) {
        self.connections.on_endpoint(key, readiness);
    }

    /// Admits connections that other workers have accepted.
    pub(crate) fn adopt(&mut self, handed_on: Vec<Accepted>) {
        for accepted in handed_on {
            let active = self.worker.table().get(accepted.frontend).cloned();
            self.connections.admit(accepted, active.as_ref());
            // The connection was counted when it entered the inbox, and again on admission.
            self.worker.port().closed();
        }
    }

    /// Releases memory if more is in use than allowed.
    pub(crate) fn relieve_memory(&mut self) {
        self.connections.relieve_memory(&self.worker.shared.capacity);
    }

    /// Handles the deadlines that are due by `now`.
    pub(crate) fn on_time(&mut self, now: Instant) {
        self.listeners.on_time(now);
        self.connections.on_time(now);
    }

    /// Adds the traffic of the connections in these slots to a watch. Returns whether there are slots beyond them.
    pub(crate) fn collect(&mut self, places: Range<usize>) -> bool {
        self.connections.collect(places)
    }

    /// Serves the listeners and connections that wait for their turn.
    pub(crate) fn serve(&mut self) {
        let Self { listeners, connections, .. } = self;
        listeners.serve(|accepted, active| connections.admit(accepted, active));
        connections.serve();
    }

    /// Whether a listener or connection waits for its turn.
    pub(crate) fn has_work(&self) -> bool {
        self.listeners.has_work() || self.connections.has_work()
    }

    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        [self.listeners.next_deadline(), self.connections.next_deadline()].into_iter().flatten().min()
    }

    /// Applies the worker's new settings.
    pub(crate) fn settings_changed(&mut self) {
        self.connections.set_timeouts(self.worker.timeouts());
    }

    /// Ends every connection.
    pub(crate) fn end_all(&mut self) {
        self.connections.end_all();
    }
}
