//! The connections of one worker that an endpoint has been found for, or is being connected for: a table of plain
//! entries, driven by one task that asks one epoll instance what has happened. A connection at rest is an entry here, and
//! has no task, no timer and no buffer.
//!
//! It must not know how connections are accepted or endpoints chosen.

mod connecting;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::counters::{CloseReason, TcpCounters};
use super::direction::RelayBuffers;
use super::relay::{Peer, Relay, Relayed};
use super::stream::Stream;
use crate::sys::epoll::{Events, Happened, Watch};
use crate::worker::Timeouts;
pub(super) use connecting::Connecting;
use connecting::Pending;

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
    /// It will have another turn anyway.
    postponed: bool,
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
            let mut entries = self.entries.borrow_mut();
            if let Some(entry) = entry(&mut entries, key) {
                entry.postponed = false;
            }
            self.advance(&mut entries, key);
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
            self.tell(&mut entries, key, peer, happened);
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

    /// Lets a connection know what happened to one of its sockets.
    fn tell(&self, entries: &mut Slab<Entry<S>>, key: Key, peer: Peer, happened: Happened) {
        let Some(entry) = entry(entries, key) else { return };
        match &mut entry.state {
            State::Changing => {}
            State::Connecting(pending) => pending.tell(happened),
            State::Relaying(relay, _) => {
                relay.note(peer, happened);
                if !entry.postponed {
                    self.advance(entries, key);
                }
            }
        }
    }

    /// Gives a connection its turn; if that ends before it has done what it can, it gets another one.
    fn advance(&self, entries: &mut Slab<Entry<S>>, key: Key) {
        let Some(entry) = entry(entries, key) else { return };
        let State::Relaying(relay, story) = &mut entry.state else { return };
        match relay.advance(&self.buffers, story.counters()) {
            Relayed::Waits => {}
            Relayed::ItsTurnEnds => {
                entry.postponed = true;
                self.postponed.borrow_mut().push_back(key);
            }
            Relayed::Ended(reason) => end(entries, key.index, reason),
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

fn entry<S>(entries: &mut Slab<Entry<S>>, key: Key) -> Option<&mut Entry<S>> {
    entries.get_mut(key.index as usize).filter(|entry| entry.serial == key.serial)
}

fn end<S: Story>(entries: &mut Slab<Entry<S>>, index: u32, reason: CloseReason) {
    if let Some(Entry { state: State::Relaying(relay, story), .. }) = entries.try_remove(index as usize) {
        // Counted before anybody can see the sockets closed.
        story.end(reason);
        drop(relay);
    }
}
