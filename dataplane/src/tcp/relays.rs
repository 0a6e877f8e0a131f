//! The connections of one worker that an endpoint has been found for, or is being connected for: a table of plain
//! entries, driven by one task that asks one epoll instance what has happened. A connection at rest is an entry here, and
//! has no task, no timer and no buffer.
//!
//! It must not know how connections are accepted or endpoints chosen.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::counters::{CloseReason, TcpCounters};
use super::direction::{Direction, RelayBuffers};
use super::relay::{Peer, Relay, Relayed};
use super::stream::Stream;
use crate::sys::epoll::{Events, Happened, Watch};
use crate::worker::Timeouts;

/// Quiet connections are looked for so many times per idle timeout: one is closed after one timeout at the earliest and
/// 1 + 1/LOOKS of it at the latest, and no byte that passes has to touch a timer.
const LOOKS: u32 = 4;
/// They are looked for as often as this at least, since a connection gets some of its options then.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// What a connection has with it for as long as it is relayed. Dropping it says that it was aborted.
pub(crate) trait Story {
    /// Where its bytes are counted.
    fn counters(&self) -> &TcpCounters;

    /// It has come to its end.
    fn end(self, reason: CloseReason);
}

/// The table.
#[derive(Debug)]
pub(crate) struct Relays<S> {
    watch: Watch,
    entries: RefCell<Slab<Entry<S>>>,
    /// Connections whose turn has ended before they were done.
    postponed: RefCell<VecDeque<Key>>,
    /// Until when the endpoints that are being connected may take, in order; some are connected by now.
    deadlines: RefCell<VecDeque<(Instant, Key)>>,
    /// The first of them has come.
    first_deadline: Notify,
    /// Of the task that drives the table.
    driver: RefCell<Waker>,
    serial: Cell<u32>,
    buffers: RelayBuffers,
    timeouts: Timeouts,
    /// How long to look for events after the last one, before the thread may sleep.
    busy_poll: Option<Duration>,
    busy_until: Cell<Instant>,
}

/// A place in the table, and whose it is: places are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    index: u32,
    serial: u32,
}

impl Key {
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

#[derive(Debug)]
struct Entry<S> {
    serial: u32,
    state: State<S>,
}

#[derive(Debug)]
enum State<S> {
    /// An endpoint is being connected, and somebody waits for the outcome.
    Connecting(Pending),
    Relaying(Relay, S),
    /// Between the two.
    Changing,
}

/// An endpoint that has not answered yet.
#[derive(Debug)]
struct Pending {
    stream: Stream,
    late: bool,
    waiting: Option<Waker>,
}

impl Pending {
    /// Lets who waits look, once there is something to see.
    fn tell(&mut self) {
        if (self.late || self.stream.is_decided())
            && let Some(waker) = self.waiting.take()
        {
            waker.wake();
        }
    }

    fn outcome(&mut self) -> Option<io::Result<()>> {
        if self.stream.is_decided() {
            return Some(self.stream.take_error().map_or(Ok(()), Err));
        }
        self.late.then(|| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Story> Relays<S> {
    /// An empty table, whose connections end when nothing moved on them for the idle timeout. Must be called inside the worker's
    /// runtime.
    ///
    /// # Errors
    /// If the epoll instance cannot be made.
    pub(crate) fn new(buffers: RelayBuffers, timeouts: Timeouts) -> io::Result<Self> {
        Ok(Self {
            watch: Watch::new()?,
            entries: RefCell::default(),
            postponed: RefCell::default(),
            deadlines: RefCell::default(),
            first_deadline: Notify::new(),
            driver: RefCell::new(Waker::noop().clone()),
            serial: Cell::new(0),
            buffers,
            timeouts,
            busy_poll: None,
            busy_until: Cell::new(Instant::now()),
        })
    }

    /// Looks for events for so long after the last one before the thread may sleep: being woken takes longer than looking.
    pub(crate) fn busy_polling(self, time: Duration) -> Self {
        Self { busy_poll: Some(time).filter(|time| !time.is_zero()), ..self }
    }

    /// Takes a socket on which connect(2) is under way, and may be for the connect timeout. Dropping the answer closes it.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(super) fn connecting(&self, stream: Stream) -> io::Result<Connecting<'_, S>> {
        let mut entries = self.entries.borrow_mut();
        let serial = self.serial.get().wrapping_add(1);
        let place = entries.vacant_entry();
        // Half of the numbers suffice: a connection takes descriptors, and those are an `int`.
        let key = Key { index: place.key() as u32, serial };
        stream.watch_by(&self.watch, key.token(Peer::Endpoint))?;
        self.serial.set(serial);
        let pending = Pending { stream, late: false, waiting: None };
        place.insert(Entry { serial, state: State::Connecting(pending) });
        self.limit(&mut entries, key);
        Ok(Connecting { relays: self, key })
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
        poll_fn(|cx| self.poll(cx, &mut events)).await;
    }

    fn poll(&self, cx: &mut Context<'_>, events: &mut Events) -> Poll<()> {
        self.driver.borrow_mut().clone_from(cx.waker());
        let postponed = self.postponed.borrow().len();
        let more = self.poll_events(cx, events).unwrap_or_else(|error| {
            tracing::error!(%error, "a worker hears no more of its connections");
            false
        });
        for _ in 0..postponed {
            let Some(key) = self.postponed.borrow_mut().pop_front() else { break };
            let turn = self.advance(&mut self.entries.borrow_mut(), key);
            self.postpone_if_ended(turn, key);
        }
        if more || !self.postponed.borrow().is_empty() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Tells connections what has happened to them; true if there may be more soon.
    fn poll_events(&self, cx: &mut Context<'_>, events: &mut Events) -> io::Result<bool> {
        let mut entries = self.entries.borrow_mut();
        let mut told = false;
        let mut tell = |token, happened| {
            told = true;
            let (key, peer) = Key::of_token(token);
            let turn = self.tell(&mut entries, key, peer, happened);
            self.postpone_if_ended(turn, key);
        };
        loop {
            match self.watch.poll(cx, events, &mut tell)? {
                // Nothing is left; asking again lets the reactor know whom to wake.
                Poll::Ready(false) => {}
                Poll::Ready(true) => return Ok(true),
                Poll::Pending => break,
            }
        }
        let Some(busy_poll) = self.busy_poll else { return Ok(false) };
        self.watch.look(events, &mut tell)?;
        let now = Instant::now();
        if told {
            self.busy_until.set(now + busy_poll);
        }
        Ok(now < self.busy_until.get())
    }

    fn postpone_if_ended(&self, turn: Turn, key: Key) {
        if turn == Turn::Ended {
            self.postponed.borrow_mut().push_back(key);
        }
    }

    /// Lets a connection know what happened to one of its sockets.
    fn tell(&self, entries: &mut Slab<Entry<S>>, key: Key, peer: Peer, happened: Happened) -> Turn {
        match state(entries, key) {
            None | Some(State::Changing) => Turn::Done,
            Some(State::Connecting(pending)) => {
                pending.stream.note(happened);
                pending.tell();
                Turn::Done
            }
            Some(State::Relaying(relay, _)) => {
                relay.note(peer, happened);
                self.advance(entries, key)
            }
        }
    }

    fn advance(&self, entries: &mut Slab<Entry<S>>, key: Key) -> Turn {
        let Some(State::Relaying(relay, story)) = state(entries, key) else { return Turn::Done };
        match relay.advance(&self.buffers, story.counters()) {
            Relayed::Waits => Turn::Done,
            Relayed::ItsTurnEnds => Turn::Ended,
            Relayed::Ended(reason) => {
                end(entries, key.index, reason);
                Turn::Done
            }
        }
    }

    /// Notes until when an endpoint may take. All have the same time, so the deadlines are in order; a timer for each would
    /// cost a lock and, as the reactor's next one, a system call.
    fn limit(&self, entries: &mut Slab<Entry<S>>, key: Key) {
        let mut deadlines = self.deadlines.borrow_mut();
        for _ in 0..2 {
            if deadlines.front().is_some_and(|(_, first)| pending(entries, *first).is_none()) {
                deadlines.pop_front();
            }
        }
        if deadlines.is_empty() {
            self.first_deadline.notify_one();
        }
        deadlines.push_back((Instant::now() + self.timeouts.connect, key));
    }

    /// Gives up endpoints that have not answered within the connect timeout, for ever.
    pub(crate) async fn watch_connects(&self) {
        loop {
            let first = self.deadlines.borrow().front().map(|(at, _)| *at);
            match first {
                Some(at) => sleep_until(at).await,
                None => self.first_deadline.notified().await,
            }
            self.give_up(Instant::now());
        }
    }

    fn give_up(&self, now: Instant) {
        let mut deadlines = self.deadlines.borrow_mut();
        while let Some((_, key)) = deadlines.pop_front_if(|(at, _)| *at <= now) {
            if let Some(pending) = pending(&mut self.entries.borrow_mut(), key) {
                pending.late = true;
                pending.tell();
            }
        }
    }

    /// Ends connections that have become quiet, for ever.
    pub(crate) async fn watch_quiet(&self) {
        let idle = self.timeouts.idle;
        let every = (idle / LOOKS).clamp(Duration::from_millis(1), LONGEST_LOOK);
        let allowed = idle.as_nanos().div_ceil(every.as_nanos());
        let allowed = u32::try_from(allowed).unwrap_or(u32::MAX);
        loop {
            sleep(every).await;
            let mut entries = self.entries.borrow_mut();
            let mut ended = Vec::new();
            for (index, entry) in entries.iter_mut() {
                if let State::Relaying(relay, _) = &mut entry.state
                    && let Relayed::Ended(reason) = relay.look(allowed)
                {
                    ended.push((index, reason));
                }
            }
            for (index, reason) in ended {
                end(&mut entries, index as u32, reason);
            }
        }
    }

    /// Resets every connection.
    pub(crate) fn cut(&self) {
        for entry in self.entries.borrow_mut().drain() {
            if let State::Relaying(relay, _story) = entry.state {
                relay.cut();
            }
        }
    }
}

/// Whether a connection has done what it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Turn {
    Done,
    Ended,
}

fn state<S>(entries: &mut Slab<Entry<S>>, key: Key) -> Option<&mut State<S>> {
    let entry = entries.get_mut(key.index as usize)?;
    (entry.serial == key.serial).then_some(&mut entry.state)
}

fn pending<S>(entries: &mut Slab<Entry<S>>, key: Key) -> Option<&mut Pending> {
    match state(entries, key) {
        Some(State::Connecting(pending)) => Some(pending),
        Some(State::Relaying(..) | State::Changing) | None => None,
    }
}

fn end<S: Story>(entries: &mut Slab<Entry<S>>, index: u32, reason: CloseReason) {
    if let Some(Entry { state: State::Relaying(relay, story), .. }) = entries.try_remove(index as usize) {
        // Counted before anybody can see the sockets closed.
        story.end(reason);
        drop(relay);
    }
}

/// An endpoint that is being connected.
#[derive(Debug)]
pub(crate) struct Connecting<'a, S> {
    relays: &'a Relays<S>,
    key: Key,
}

impl<S: Story> Connecting<'_, S> {
    /// Waits until the endpoint has answered. Cancel safe.
    ///
    /// # Errors
    /// As connect(2), `TimedOut` after the connect timeout.
    pub(super) async fn connected(&self) -> io::Result<()> {
        poll_fn(|cx| {
            let mut entries = self.relays.entries.borrow_mut();
            match state(&mut entries, self.key) {
                Some(State::Connecting(pending)) => match pending.outcome() {
                    Some(outcome) => Poll::Ready(outcome),
                    None => {
                        pending.waiting = Some(cx.waker().clone());
                        Poll::Pending
                    }
                },
                Some(State::Relaying(..) | State::Changing) | None => {
                    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
                }
            }
        })
        .await
    }

    /// Relays between the client and this endpoint, which is connected, from now on. `upload` is what goes to the endpoint
    /// first.
    ///
    /// # Errors
    /// As epoll_ctl(2). The connection is closed then.
    pub(super) fn relay(self, client: Stream, upload: Direction, story: S) -> io::Result<()> {
        let Self { relays, key } = self;
        client.watch_by(&relays.watch, key.token(Peer::Client))?;
        std::mem::forget(self);
        let mut entries = relays.entries.borrow_mut();
        let Some(entry) = entries.get_mut(key.index as usize) else { return Ok(()) };
        let State::Connecting(pending) = std::mem::replace(&mut entry.state, State::Changing) else {
            return Ok(());
        };
        entry.state = State::Relaying(Relay::new(client, pending.stream, upload), story);
        let turn = relays.advance(&mut entries, key);
        relays.postpone_if_ended(turn, key);
        if turn == Turn::Ended {
            relays.driver.borrow().wake_by_ref();
        }
        Ok(())
    }
}

impl<S> Drop for Connecting<'_, S> {
    fn drop(&mut self) {
        self.relays.entries.borrow_mut().try_remove(self.key.index as usize);
    }
}
