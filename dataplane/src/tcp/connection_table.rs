//! The connections of one worker, from accept to close: a table of plain entries. A connection at rest is an entry here, and has no
//! timer and no buffer.
//!
//! One turn moves a bounded number of bytes, so that accept, UDP and small exchanges never wait for another's megabytes: connections
//! that moved little in their last turn come first, streams share what is left, one after another (RFC 8290 has the same two lists,
//! of sparse and of other flows).

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
use super::port_search::PortSearch;
use super::relay::{Moved, Peer, Relay, RelayState};
use super::session::Session;
use super::setup::{self, Established, Setup, SetupContext, SetupStep};
use super::splice::RelayBuffers;
use crate::counters::CloseReason;
use crate::select::ActiveFrontend;
use crate::sys::epoll::Readiness;
#[cfg(test)]
use crate::sys::epoll::Watch;
use crate::worker::context::{Timeouts, WorkerContext};
use crate::worker::deadlines::Deadlines;
use crate::worker::port::Accepted;
use crate::worker::steps::Step;
#[cfg(test)]
use crate::worker::token::Token;
use crate::worker::token::{Key, KeyedSlab};
use max_age::{Overage, with_jitter};
use removed::RemovedFrontends;
use sweep::Sweep;
use unanswered::UnansweredConnections;

/// Bytes that one turn moves before others of the worker have theirs: less than a millisecond's work.
const BYTES_PER_TURN: u64 = 1 << 20;
/// Deadlines that are looked at in a turn: each may lead to another attempt to connect.
const DUE_PER_TURN: usize = 256;
/// A connection that moved as much in its last turn is a stream.
const STREAM: u64 = 64 << 10;

/// The table.
pub(crate) struct ConnectionTable {
    context: SetupContext,
    connections: KeyedSlab<Connection>,
    /// Connections to be served next: an event has come, and they are no streams.
    sparse: VecDeque<Key>,
    /// Streams with an event, or whose turn ended before they were done.
    streams: VecDeque<Key>,
    /// When those that have no endpoint yet are looked at.
    setups: Deadlines<Key>,
    /// When those that are too old are looked at.
    overage: Deadlines<Overage>,
    removed: RemovedFrontends,
    unanswered: UnansweredConnections,
    sweep: Sweep,
}

struct Connection {
    /// It is in one of the queues, so it will have a turn anyway.
    queued: bool,
    is_stream: bool,
    /// The endpoint did not have the last word.
    awaits_answer: bool,
    /// When it is too old.
    expires: Tick,
    /// When a byte of it moved last.
    moved: Tick,
    /// When it has to end since its endpoint serves no more; [`Tick::NEVER`] while that serves.
    bereft: Tick,
    state: ConnectionState,
}

#[expect(clippy::large_enum_variant, reason = "most connections are of the large one, most of the time")]
enum ConnectionState {
    /// It has no endpoint yet. Boxed, since this is larger than what it becomes, and most stay that for longer.
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

/// What a connection at rest takes beside its sockets.
const _: () = assert!(size_of::<Connection>() <= 320);

impl ConnectionTable {
    /// An empty table.
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

    /// New connections have these times, if their Service has none of its own.
    pub(super) fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.setups.set_usual(timeouts.connect);
        self.sweep.set_usual_idle(self.context.worker.now(), timeouts.idle);
    }

    /// Takes a connection; `active` is its frontend in the present table, if it is there.
    pub(super) fn admit(&mut self, accepted: Accepted, active: Option<&Arc<ActiveFrontend>>) {
        self.context.worker.steps.begin(Step::Accept, Some(accepted.frontend));
        let Some(setup) = setup::admit(&self.context.worker, accepted, active) else { return };
        let key = self.connections.insert_with(|key| {
            let state = ConnectionState::Setup(Box::new(setup(key)));
            Connection::new(state)
        });
        self.set_up(key, |setup, context| Some(setup.begin(context, active)));
    }

    /// Applies an event of a client's socket.
    pub(super) fn on_client(&mut self, key: Key, readiness: Readiness) {
        self.on_ready(key, Peer::Client, readiness);
    }

    /// Applies an event of an endpoint's socket.
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

    /// Has a connection without an endpoint make its next step, and goes on from there.
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

    /// Relays a connection whose endpoint is connected from now on.
    fn relay(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let state = std::mem::replace(&mut connection.state, ConnectionState::Changing);
        if let ConnectionState::Setup(setup) = state
            && let Some(begin) = setup.establish()
        {
            self.remember_removed(begin.session.frontend);
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
        // What is there already waits for its turn like everything else.
        connection.queued = true;
        self.sparse.push_back(key);
        if self.sweep.may_miss(expires, now) {
            self.queue_overage(key, now);
        }
    }

    /// Relays between two sockets that were not set up here.
    #[cfg(test)]
    pub(super) fn relay_between(&mut self, begin: Established) {
        let state = ConnectionState::Changing;
        let key = self.connections.insert_with(|_| Connection::new(state));
        let poller = &self.context.worker.poller;
        poller.add(begin.client.socket(), Watch::Stream, Token::Client(key).into()).unwrap();
        poller.add(begin.endpoint.socket(), Watch::Stream, Token::Endpoint(key).into()).unwrap();
        self.begin_relay(key, begin);
    }

    /// Whether connections wait for their turns.
    pub(super) fn has_work(&self) -> bool {
        !self.sparse.is_empty() || !self.streams.is_empty()
    }

    /// Gives queued connections their turns, as far as one turn of the loop may go, and at least one stream.
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

    /// Gives a connection its turn; if that ends before it has done what it can, it gets another one. How many bytes it moved.
    fn advance(&mut self, key: Key, now: Tick) -> u64 {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        let ConnectionState::Relaying(relay, session) = &mut connection.state else { return 0 };
        self.context.worker.steps.begin(Step::Relay, Some(session.frontend));
        let (relayed, Moved { up, down }) = relay.advance(&self.context.buffers, &session.counters);
        let moved = up + down;
        session.add_bytes(up, down);
        connection.is_stream = moved >= STREAM;
        if moved > 0 {
            // Whose bytes came last, if both have sent some, is not known.
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
            // Counted before anybody can see the sockets closed.
            session.close(reason);
            drop(relay);
        }
    }

    /// Looks at what is due.
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

    /// Has a watch know what the connections in these places have. Says whether there are places behind them.
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

    /// When something is due.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let Self { setups, connections, overage, unanswered, sweep, context, .. } = self;
        // Most connections have an endpoint long before.
        let setups = setups.next_that(|due, key| match connections.get_mut(key) {
            Some(Connection { state: ConnectionState::Setup(setup), .. }) => setup.due == due,
            _ => false,
        });
        let sweeps = [Some(sweep.due()), overage.next(), unanswered.next_deadline()];
        [setups, context.buffers.next_deadline()].into_iter().chain(sweeps).flatten().min()
    }

    /// Ends every connection, whose time is over.
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
