//! Connection table of a worker: every connection from accept to close, as a plain entry. A connection at rest has no timer and no
//! buffer.
//!
//! One turn moves a bounded number of bytes, so that accept, UDP and small exchanges do not wait for bulk transfers: connections
//! that moved little in their last turn are served first, and streams share the rest in turn (RFC 8290 has the same two lists, of
//! sparse and of other flows).

mod deadline;
mod max_age;
mod removed;
mod sweep;
mod unanswered;

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::idle_clock::{IdleClock, Tick, ticks};
use super::relay::{Moved, Peer, Relay, RelayState};
use super::session::Session;
use super::setup::{self, Established, Setup, SetupContext, SetupStep};
use super::splice::RelayBuffers;
use crate::counters::CloseReason;
use crate::port_search::PortSearch;
use crate::select::ActiveFrontend;
use crate::sys::epoll::Readiness;
#[cfg(test)]
use crate::sys::epoll::Watch;
use crate::worker::context::{Timeouts, WorkerContext};
use crate::worker::deadlines::Deadlines;
use crate::worker::steps::Step;
#[cfg(test)]
use crate::worker::token::Token;
use crate::worker::token::{Key, KeyedSlab};
use crate::worker_port::Accepted;
use max_age::{Overage, with_jitter};
use removed::RemovedFrontends;
use sweep::Sweep;
use unanswered::UnansweredConnections;

/// Maximum number of bytes moved per turn of the loop: less than a millisecond's work.
const BYTES_PER_TURN: u64 = 1 << 20;
/// Maximum number of deadlines handled per turn: each may start another attempt to connect.
const DUE_PER_TURN: usize = 256;
/// Number of bytes in one turn that makes a connection a stream.
const STREAM: u64 = 64 << 10;

/// All connections of one worker.
pub(crate) struct ConnectionTable {
    context: SetupContext,
    connections: KeyedSlab<Connection>,
    /// Connections to serve first: they have an event and are not streams.
    sparse: VecDeque<Key>,
    /// Streams that have an event or more to do.
    streams: VecDeque<Key>,
    /// Deadlines of connections without an endpoint.
    setups: Deadlines<Key>,
    /// Deadlines of connections that exceed, or will soon exceed, their maximum age.
    overage: Deadlines<Overage>,
    removed: RemovedFrontends,
    unanswered: UnansweredConnections,
    sweep: Sweep,
}

struct Connection {
    /// Whether it is in one of the queues.
    queued: bool,
    is_stream: bool,
    /// Whether the client sent last, so that the endpoint's answer may be pending.
    awaits_answer: bool,
    /// When it exceeds its maximum age.
    expires: Tick,
    /// When its last byte moved.
    moved: Tick,
    /// When it has to end because its endpoint stopped serving; [`Tick::NEVER`] while the endpoint serves.
    bereft: Tick,
    state: ConnectionState,
}

#[expect(clippy::large_enum_variant, reason = "most connections are of the large one, most of the time")]
enum ConnectionState {
    /// Has no endpoint yet. Boxed, since it is larger than `Relaying`, in which connections spend most of their time.
    Setup(Box<Setup>),
    Relaying(Relay, Session),
    /// Between the two.
    Changing,
}

impl Connection {
    fn new(state: ConnectionState) -> Self {
        Self {
            queued: false,
            is_stream: false,
            awaits_answer: false,
            expires: Tick::NEVER,
            moved: Tick::NEVER,
            bereft: Tick::NEVER,
            state,
        }
    }
}

/// Memory of a connection at rest, apart from its sockets.
const _: () = assert!(size_of::<Connection>() <= 320);

impl ConnectionTable {
    pub(super) fn new(worker: &Rc<WorkerContext>, buffers: RelayBuffers) -> Self {
        let sweep = Sweep::new(worker.now(), worker.timeouts().idle);
        Self {
            context: SetupContext { worker: Rc::clone(worker), ports: PortSearch::new(), buffers },
            connections: KeyedSlab::default(),
            sparse: VecDeque::new(),
            streams: VecDeque::new(),
            setups: Deadlines::new(worker.timeouts().connect),
            overage: Deadlines::new(deadline::PAUSE),
            removed: RemovedFrontends::default(),
            unanswered: UnansweredConnections::default(),
            sweep,
        }
    }

    /// Applies these timeouts to new connections whose Service has none of its own.
    pub(super) fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.setups.set_usual(timeouts.connect);
        self.sweep.set_usual_idle(self.context.worker.now(), timeouts.idle);
    }

    /// Admits a connection; `active` is its frontend in the current table, if it is there.
    pub(super) fn admit(&mut self, accepted: Accepted, active: Option<&Arc<ActiveFrontend>>) {
        self.context.worker.steps.begin(Step::Accept, Some(accepted.frontend));
        let Some(setup) = setup::admit(&self.context.worker, accepted, active) else { return };
        let key = self.connections.insert_with(|key| {
            let state = ConnectionState::Setup(Box::new(setup(key)));
            Connection::new(state)
        });
        self.set_up(key, |setup, context| Some(setup.begin(context, active)));
    }

    pub(super) fn on_client(&mut self, key: Key, readiness: Readiness) {
        self.on_ready(key, Peer::Client, readiness);
    }

    pub(super) fn on_endpoint(&mut self, key: Key, readiness: Readiness) {
        self.on_ready(key, Peer::Endpoint, readiness);
    }

    fn on_ready(&mut self, key: Key, peer: Peer, readiness: Readiness) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match &mut connection.state {
            ConnectionState::Changing => {}
            ConnectionState::Setup(_) => self.set_up(key, |setup, context| match peer {
                Peer::Client => setup.on_client(context, readiness),
                Peer::Endpoint => setup.on_endpoint(context, readiness),
            }),
            ConnectionState::Relaying(relay, _) => {
                relay.on_ready(peer, readiness);
                if !std::mem::replace(&mut connection.queued, true) {
                    let queue = if connection.is_stream { &mut self.streams } else { &mut self.sparse };
                    queue.push_back(key);
                }
            }
        }
    }

    /// Runs the next step of a connection without an endpoint, and handles the outcome.
    fn set_up(&mut self, key: Key, step: impl FnOnce(&mut Setup, &SetupContext) -> Option<SetupStep>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let ConnectionState::Setup(setup) = &mut connection.state else { return };
        self.context.worker.steps.begin(Step::Connect, Some(setup.session.frontend));
        match step(setup, &self.context) {
            None => {}
            Some(SetupStep::Waits(time)) => {
                setup.due = self.setups.push(self.context.worker.now(), time, key);
            }
            Some(SetupStep::Connected) => self.relay(key),
            Some(SetupStep::Ends(reason)) => {
                if let Some(Connection { state: ConnectionState::Setup(setup), .. }) =
                    self.connections.remove(key)
                {
                    setup.end(reason);
                }
            }
        }
    }

    /// Starts to relay a connection whose endpoint has just been connected.
    fn relay(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let state = std::mem::replace(&mut connection.state, ConnectionState::Changing);
        if let ConnectionState::Setup(setup) = state
            && let Some(begin) = setup.establish()
        {
            self.remember_removed(&begin.session);
            self.begin_relay(key, begin);
        }
    }

    fn begin_relay(&mut self, key: Key, begin: Established) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let now = self.context.worker.now();
        let mut idle = self.sweep.idle_clock(now, begin.idle_timeout);
        if begin.keepalives {
            idle.count_keepalives();
        }
        let lives = begin.max_age.map(|age| with_jitter(age, self.context.worker.random.next()));
        let expires = lives.map_or(Tick::NEVER, |lives| self.sweep.tick(now + lives));
        (connection.expires, connection.moved) = (expires, self.sweep.tick(now));
        let relay = Relay::new(begin.client, begin.endpoint, begin.upload, idle);
        connection.state = ConnectionState::Relaying(relay, begin.session);
        // Data may have arrived already and waits for the connection's turn.
        connection.queued = true;
        self.sparse.push_back(key);
        if self.sweep.may_miss(expires, now) {
            self.queue_overage(key, now);
        }
    }

    /// Relays between two given sockets, without a setup.
    #[cfg(test)]
    pub(super) fn relay_between(&mut self, begin: Established) {
        let state = ConnectionState::Changing;
        let key = self.connections.insert_with(|_| Connection::new(state));
        let poller = &self.context.worker.poller;
        poller.add(begin.client.socket(), Watch::Stream, Token::Client(key).into()).unwrap();
        poller.add(begin.endpoint.socket(), Watch::Stream, Token::Endpoint(key).into()).unwrap();
        self.begin_relay(key, begin);
    }

    /// Whether connections wait for their turn.
    pub(super) fn has_work(&self) -> bool {
        !self.sparse.is_empty() || !self.streams.is_empty()
    }

    /// Gives queued connections their turns up to the limit of bytes, and serves at least one stream.
    pub(super) fn serve(&mut self) {
        let mut moved = 0;
        let now = self.sweep.tick(self.context.worker.now());
        while moved < BYTES_PER_TURN
            && let Some(key) = self.sparse.pop_front()
        {
            moved += self.serve_one(key, now);
        }
        for served in 0..self.streams.len() {
            if served > 0 && moved >= BYTES_PER_TURN {
                break;
            }
            let Some(key) = self.streams.pop_front() else { break };
            moved += self.serve_one(key, now);
        }
    }

    fn serve_one(&mut self, key: Key, now: Tick) -> u64 {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        connection.queued = false;
        self.advance(key, now)
    }

    /// Advances a connection, and queues it again if its budget is spent. Returns the number of bytes moved.
    fn advance(&mut self, key: Key, now: Tick) -> u64 {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        let ConnectionState::Relaying(relay, session) = &mut connection.state else { return 0 };
        self.context.worker.steps.begin(Step::Relay, Some(session.frontend));
        let (relayed, Moved { up, down }) = relay.advance(&self.context.buffers, &session.counters);
        let moved = up + down;
        session.add_bytes(up, down);
        connection.is_stream = moved >= STREAM;
        if moved > 0 {
            // If both peers have sent, the order is unknown.
            connection.awaits_answer = up > 0;
            connection.moved = now;
        }
        match relayed {
            RelayState::Waits => {}
            RelayState::BudgetSpent => {
                connection.queued = true;
                self.streams.push_back(key);
            }
            RelayState::Ended(reason) => self.end(key, reason),
        }
        moved
    }

    fn end(&mut self, key: Key, reason: CloseReason) {
        if let Some(Connection { state: ConnectionState::Relaying(relay, session), .. }) =
            self.connections.remove(key)
        {
            if !relay.is_answered() {
                self.unanswered.add(self.context.worker.now(), &session);
            }
            // Counted before a peer can see the sockets closed.
            session.close(reason);
            drop(relay);
        }
    }

    /// Handles the deadlines that are due by `now`.
    pub(super) fn on_time(&mut self, now: Instant) {
        for _ in 0..DUE_PER_TURN {
            let Some((due, key)) = self.setups.pop(now) else { break };
            self.set_up(key, |setup, context| (setup.due == due).then(|| setup.on_time(context)));
        }
        self.sweep(now);
        self.end_overage(now);
        self.unanswered.forget(now);
        self.context.buffers.on_time(now);
    }

    /// Adds the traffic of the connections in these slots to a watch. Returns whether there are slots beyond them.
    pub(super) fn collect(&mut self, places: Range<usize>) -> bool {
        for place in places.start..places.end.min(self.connections.capacity()) {
            let Some(key) = self.connections.key_at(place) else { continue };
            match self.connections.get_mut(key).map(|connection| &mut connection.state) {
                Some(ConnectionState::Setup(setup)) => setup.session.collect(),
                Some(ConnectionState::Relaying(_, session)) => session.collect(),
                Some(ConnectionState::Changing) | None => {}
            }
        }
        places.end < self.connections.capacity()
    }

    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let Self { setups, connections, overage, unanswered, sweep, context, .. } = self;
        // Most connections have an endpoint long before their deadline.
        let setups = setups.next_that(|due, key| match connections.get_mut(key) {
            Some(Connection { state: ConnectionState::Setup(setup), .. }) => setup.due == due,
            _ => false,
        });
        let sweeps = [Some(sweep.due()), overage.next(), unanswered.next_deadline()];
        [setups, context.buffers.next_deadline()].into_iter().chain(sweeps).flatten().min()
    }

    /// Ends every connection at the end of a drain or of the worker.
    pub(super) fn end_all(&mut self) {
        let now = self.sweep.tick(self.context.worker.now());
        for connection in self.connections.drain() {
            connection.time_is_over(now);
            if let ConnectionState::Setup(setup) = connection.state {
                setup.end(CloseReason::Aborted);
            }
        }
    }
}

#[cfg(test)]
mod tests;
