//! The connections of one worker that are relayed, or whose endpoint is being connected: a table of plain entries, driven by one
//! task that polls one epoll instance. A connection at rest is an entry here, and has no task, no timer and no buffer.
//!
//! One poll moves a bounded number of bytes, so that accept, UDP and small exchanges never wait for another's megabytes: connections
//! that moved little in their last turn come first, streams share what is left, one after another (RFC 8290 has the same two lists,
//! of sparse and of other flows).

mod connecting;
mod sweep;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::idle_clock::{IdleClock, Tick, ticks};
use super::relay::{Peer, Relay, RelayState};
use super::session::Session;
use super::splice::RelayBuffers;
use super::stream::Stream;
use crate::counters::CloseReason;
use crate::sys::epoll::{Events, Readiness, Watch};
pub(super) use connecting::Connecting;
use connecting::Pending;

/// Bytes that one poll moves before other tasks of the worker get their turn: less than a millisecond's work.
const BYTES_PER_POLL: u64 = 1 << 20;
/// A connection that moved as much in its last turn is a stream.
const STREAM: u64 = 64 << 10;

/// The table.
pub(crate) struct ConnectionTable {
    watch: Watch,
    entries: RefCell<Slab<Entry>>,
    /// Connections to be served next: an event has come, and they are no streams.
    sparse: RefCell<VecDeque<ConnectionKey>>,
    /// Streams with an event, or whose turn ended before they were done.
    streams: RefCell<VecDeque<ConnectionKey>>,
    /// Until when each endpoint that is being connected may take.
    deadlines: RefCell<BTreeSet<(Instant, ConnectionKey)>>,
    /// The one that is waited for; it may have been met since.
    next_deadline: Cell<Option<Instant>>,
    /// There is an earlier one.
    earlier_deadline: Notify,
    /// Of the task that drives the table.
    driver: RefCell<Waker>,
    serial: Cell<u32>,
    buffers: RelayBuffers,
    /// Of connections whose Service has none of its own.
    idle: Duration,
    /// Idle time is counted from here.
    epoch: Instant,
    /// The shortest idle timeout of any connection, in ticks.
    shortest_idle: Cell<u32>,
    /// The same of what the round that is under way has met, or what has begun since.
    shortest_of_round: Cell<u32>,
    /// It became shorter.
    idle_shortened: Notify,
    /// How long to look for events after the last one, before the thread may sleep.
    busy_poll: Option<Duration>,
    busy_until: Cell<Instant>,
}

/// A place in the table, and whose it is: places are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionKey {
    index: u32,
    serial: u32,
}

impl ConnectionKey {
    /// For events of one of the entry's sockets.
    fn token(self, peer: Peer) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index) << 1 | u64::from(peer == Peer::Client)
    }

    fn of_token(token: u64) -> (Self, Peer) {
        let index = token as u32 >> 1;
        let peer = if token & 1 == 1 { Peer::Client } else { Peer::Endpoint };
        (Self { index, serial: (token >> 32) as u32 }, peer)
    }
}

struct Entry {
    serial: u32,
    /// It is in one of the queues, so it will have a turn anyway.
    queued: bool,
    is_stream: bool,
    state: EntryState,
}

enum EntryState {
    /// An endpoint is being connected, and somebody waits for the outcome.
    Connecting(Pending),
    Relaying(Relay, Session),
    /// Between the two.
    Changing,
}

impl ConnectionTable {
    /// An empty table. A thread that has seen an event looks for more for `busy_poll` before it may sleep, since waking it takes
    /// longer than looking. Must be called inside the worker's runtime.
    ///
    /// # Errors
    /// If the epoll instance cannot be made.
    pub(super) fn new(buffers: RelayBuffers, idle: Duration, busy_poll: Duration) -> io::Result<Self> {
        Ok(Self {
            watch: Watch::new()?,
            entries: RefCell::default(),
            sparse: RefCell::default(),
            streams: RefCell::default(),
            deadlines: RefCell::default(),
            next_deadline: Cell::new(None),
            earlier_deadline: Notify::new(),
            driver: RefCell::new(Waker::noop().clone()),
            serial: Cell::new(0),
            buffers,
            idle,
            epoch: Instant::now(),
            shortest_idle: Cell::new(ticks(idle)),
            shortest_of_round: Cell::new(u32::MAX),
            idle_shortened: Notify::new(),
            busy_poll: Some(busy_poll).filter(|time| !time.is_zero()),
            busy_until: Cell::new(Instant::now()),
        })
    }

    /// What a client has sent already, up to a few KiB.
    ///
    /// # Errors
    /// If the client has reset the connection meanwhile.
    pub(super) fn first_bytes(&self, client: &mut Stream) -> io::Result<Vec<u8>> {
        self.buffers.first_bytes(client)
    }

    /// Serves the table until it is dropped. One task at a time may do so.
    pub(crate) async fn drive(&self) {
        let mut events = Events::new();
        loop {
            poll_fn(|cx| self.poll(cx, &mut events)).await;
            // Not by waking itself: only a task that yields has the reactor asked for what others wait for.
            yield_now().await;
        }
    }

    /// Ready when there is more to do at once.
    fn poll(&self, cx: &mut Context<'_>, events: &mut Events) -> Poll<()> {
        self.driver.borrow_mut().clone_from(cx.waker());
        let more = self.poll_events(cx, events).unwrap_or_else(|error| {
            tracing::error!(%error, "a worker gets no more events of its connections");
            false
        });
        self.serve();
        if more || self.has_queued() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_queued(&self) -> bool {
        !self.sparse.borrow().is_empty() || !self.streams.borrow().is_empty()
    }

    /// Gives queued connections their turns, as far as one poll may go, and at least one stream.
    fn serve(&self) {
        let mut moved = 0;
        while moved < BYTES_PER_POLL && self.serve_next(&self.sparse, &mut moved) {}
        let streams = self.streams.borrow().len();
        for served in 0..streams {
            if served > 0 && moved >= BYTES_PER_POLL || !self.serve_next(&self.streams, &mut moved) {
                break;
            }
        }
    }

    /// Gives the first connection of a queue its turn; false if there is none.
    fn serve_next(&self, queue: &RefCell<VecDeque<ConnectionKey>>, moved: &mut u64) -> bool {
        let Some(key) = queue.borrow_mut().pop_front() else { return false };
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entry(&mut entries, key) {
            entry.queued = false;
            *moved += self.advance(&mut entries, key);
        }
        true
    }

    /// Gives connections their events; true if there may be more soon.
    fn poll_events(&self, cx: &mut Context<'_>, events: &mut Events) -> io::Result<bool> {
        let mut entries = self.entries.borrow_mut();
        let mut notified = false;
        let mut on_ready = |token, readiness| {
            notified = true;
            let (key, peer) = ConnectionKey::of_token(token);
            self.on_ready(&mut entries, key, peer, readiness);
        };
        loop {
            match self.watch.poll(cx, events, &mut on_ready)? {
                // Nothing is left; asking again lets the reactor know whom to wake.
                Poll::Ready(false) => {}
                Poll::Ready(true) => return Ok(true),
                Poll::Pending => break,
            }
        }
        let Some(busy_poll) = self.busy_poll else { return Ok(false) };
        self.watch.poll_now(events, &mut on_ready)?;
        let now = Instant::now();
        if notified {
            self.busy_until.set(now + busy_poll);
        }
        Ok(now < self.busy_until.get())
    }

    /// Applies an event of one of a connection's sockets.
    fn on_ready(&self, entries: &mut Slab<Entry>, key: ConnectionKey, peer: Peer, readiness: Readiness) {
        let Some(entry) = entry(entries, key) else { return };
        match &mut entry.state {
            EntryState::Changing => {}
            EntryState::Connecting(pending) => pending.on_ready(readiness),
            EntryState::Relaying(relay, _) => {
                relay.on_ready(peer, readiness);
                if !std::mem::replace(&mut entry.queued, true) {
                    let queue = if entry.is_stream { &self.streams } else { &self.sparse };
                    queue.borrow_mut().push_back(key);
                }
            }
        }
    }

    /// Gives a connection its turn; if that ends before it has done what it can, it gets another one. How many bytes it moved.
    fn advance(&self, entries: &mut Slab<Entry>, key: ConnectionKey) -> u64 {
        let Some(entry) = entry(entries, key) else { return 0 };
        let EntryState::Relaying(relay, session) = &mut entry.state else { return 0 };
        let (relayed, moved) = relay.advance(&self.buffers, &session.counters);
        entry.is_stream = moved >= STREAM;
        match relayed {
            RelayState::Waits => {}
            RelayState::BudgetSpent => {
                entry.queued = true;
                self.streams.borrow_mut().push_back(key);
            }
            RelayState::Ended(reason) => end(entries, key.index, reason),
        }
        moved
    }

    /// A connection that may be idle for so long.
    fn idle_clock(&self, timeout: Duration) -> IdleClock {
        let clock = IdleClock::new(Tick::now(self.epoch), timeout);
        // It may begin behind the back of a round that is under way.
        self.shortest_of_round.update(|shortest| shortest.min(clock.timeout()));
        if clock.timeout() < self.shortest_idle.get() {
            self.shortest_idle.set(clock.timeout());
            self.idle_shortened.notify_one();
        }
        clock
    }

    /// Resets every connection.
    pub(crate) fn reset_all(&self) {
        let entries = std::mem::take(&mut *self.entries.borrow_mut());
        for (_, entry) in entries {
            if let EntryState::Relaying(relay, _session) = entry.state {
                relay.cut();
            }
        }
    }
}

fn entry(entries: &mut Slab<Entry>, key: ConnectionKey) -> Option<&mut Entry> {
    entries.get_mut(key.index as usize).filter(|entry| entry.serial == key.serial)
}

fn end(entries: &mut Slab<Entry>, index: u32, reason: CloseReason) {
    if let Some(Entry { state: EntryState::Relaying(relay, session), .. }) =
        entries.try_remove(index as usize)
    {
        // Counted before anybody can see the sockets closed.
        session.close(reason);
        drop(relay);
    }
}

#[cfg(test)]
mod tests;
