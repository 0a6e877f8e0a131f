//! Endpoints that are being connected: their deadlines, the tasks that wait for the outcome, and how one becomes a side of a relay.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::time::{Instant, sleep_until};

use super::{ConnectionKey, ConnectionTable, Entry, EntryState, entry};
use crate::sys::epoll::Readiness;
use crate::tcp::relay::{Peer, Relay};
use crate::tcp::session::Session;
use crate::tcp::splice::Direction;
use crate::tcp::stream::Stream;

/// How often to check whether the client still waits for an endpoint that does not answer: no event reports it, since those of
/// the client begin with its relay.
const CLIENT_CHECK: Duration = Duration::from_secs(1);

/// An endpoint that has not answered yet.
#[derive(Debug)]
pub(super) struct Pending {
    stream: Stream,
    until: Instant,
    /// When to give it up, or to look whether the client still waits.
    due: Instant,
    state: Patience,
    waiting: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Waits,
    ChecksClient,
    Over,
}

impl Pending {
    /// Something has happened to its socket.
    pub(super) fn on_ready(&mut self, readiness: Readiness) {
        self.stream.on_ready(readiness);
        self.wake_if_decided();
    }

    /// It is due. Whether it will be again, and when.
    fn check_deadline(&mut self, now: Instant) -> Option<Instant> {
        let over = self.until <= now;
        self.state = if over { Patience::Over } else { Patience::ChecksClient };
        self.due = self.until.min(now + CLIENT_CHECK);
        self.wake_if_decided();
        (!over).then_some(self.due)
    }

    fn wake_if_decided(&mut self) {
        if (self.state != Patience::Waits || self.stream.is_writable())
            && let Some(waker) = self.waiting.take()
        {
            waker.wake();
        }
    }

    fn outcome(&mut self, still_waits: impl FnOnce() -> bool) -> Option<io::Result<()>> {
        if self.stream.is_writable() {
            return Some(self.stream.take_error().map_or(Ok(()), Err));
        }
        match std::mem::replace(&mut self.state, Patience::Waits) {
            Patience::ChecksClient if !still_waits() => Some(Err(io::ErrorKind::ConnectionAborted.into())),
            Patience::Waits | Patience::ChecksClient => None,
            Patience::Over => Some(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl ConnectionTable {
    /// Takes a socket on which connect(2) is under way, and may be for so long. Dropping the answer closes it.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(in crate::tcp) fn connecting(&self, stream: Stream, timeout: Duration) -> io::Result<Connecting<'_>> {
        let mut entries = self.entries.borrow_mut();
        let serial = self.serial.get().wrapping_add(1);
        let place = entries.vacant_entry();
        // Half of the numbers suffice: a connection takes descriptors, and those are an `int`.
        let key = ConnectionKey { index: place.key() as u32, serial };
        stream.watch_by(&self.watch, key.token(Peer::Endpoint))?;
        self.serial.set(serial);
        let now = Instant::now();
        let (until, due) = (now + timeout, now + timeout.min(CLIENT_CHECK));
        let pending = Pending { stream, until, due, state: Patience::Waits, waiting: None };
        place.insert(Entry {
            serial,
            queued: false,
            is_stream: false,
            state: EntryState::Connecting(pending),
        });
        self.limit(due, key);
        Ok(Connecting { relays: self, key })
    }

    /// Notes when an endpoint is due. A timer for each would cost a lock and, as the reactor's next one, a system call.
    fn limit(&self, due: Instant, key: ConnectionKey) {
        self.deadlines.borrow_mut().insert((due, key));
        if self.next_deadline.get().is_none_or(|next| due < next) {
            self.earlier_deadline.notify_one();
        }
    }

    /// Gives up endpoints that have not answered in time, for ever.
    pub(crate) async fn watch_connects(&self) {
        loop {
            let first = self.deadlines.borrow().first().map(|(at, _)| *at);
            self.next_deadline.set(first);
            match first {
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.earlier_deadline.notified() => {}
                },
                None => self.earlier_deadline.notified().await,
            }
            self.check_deadlines(Instant::now());
        }
    }

    fn check_deadlines(&self, now: Instant) {
        let mut deadlines = self.deadlines.borrow_mut();
        while let Some((_, key)) = deadlines.first().copied().filter(|(at, _)| *at <= now) {
            deadlines.pop_first();
            if let Some(pending) = pending(&mut self.entries.borrow_mut(), key) {
                deadlines.extend(pending.check_deadline(now).map(|due| (due, key)));
            }
        }
    }
}

fn pending(entries: &mut Slab<Entry>, key: ConnectionKey) -> Option<&mut Pending> {
    match &mut entry(entries, key)?.state {
        EntryState::Connecting(pending) => Some(pending),
        EntryState::Relaying(..) | EntryState::Changing => None,
    }
}

/// An endpoint that is being connected.
pub(in crate::tcp) struct Connecting<'a> {
    relays: &'a ConnectionTable,
    key: ConnectionKey,
}

impl Connecting<'_> {
    /// Waits until the endpoint has answered. Cancel safe.
    ///
    /// # Errors
    /// As connect(2), `TimedOut` after the connect timeout, and `ConnectionAborted` if the client does not wait any more.
    pub(in crate::tcp) async fn connected(&self, still_waits: impl Fn() -> bool) -> io::Result<()> {
        poll_fn(|cx| {
            let mut entries = self.relays.entries.borrow_mut();
            let Some(pending) = pending(&mut entries, self.key) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            match pending.outcome(&still_waits) {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    pending.waiting = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Relays between the client and this endpoint, which is connected, from now on. `upload` is what goes to the endpoint
    /// first; it ends when nothing has happened for `idle`.
    ///
    /// # Errors
    /// As epoll_ctl(2). The connection is closed then.
    pub(in crate::tcp) fn relay(
        self,
        client: Stream,
        upload: Direction,
        idle: Duration,
        session: Session,
    ) -> io::Result<()> {
        let Self { relays, key } = self;
        client.watch_by(&relays.watch, key.token(Peer::Client))?;
        std::mem::forget(self);
        let mut entries = relays.entries.borrow_mut();
        let Some(entry) = entry(&mut entries, key) else { return Ok(()) };
        let EntryState::Connecting(pending) = std::mem::replace(&mut entry.state, EntryState::Changing)
        else {
            return Ok(());
        };
        relays.deadlines.borrow_mut().remove(&(pending.due, key));
        let relay = Relay::new(client, pending.stream, upload, relays.idle_clock(idle));
        entry.state = EntryState::Relaying(relay, session);
        relays.advance(&mut entries, key);
        if relays.has_queued() {
            relays.driver.borrow().wake_by_ref();
        }
        Ok(())
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        let removed = self.relays.entries.borrow_mut().try_remove(self.key.index as usize);
        if let Some(Entry { state: EntryState::Connecting(pending), .. }) = removed {
            self.relays.deadlines.borrow_mut().remove(&(pending.due, self.key));
        }
    }
}
