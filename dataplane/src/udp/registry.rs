//! Sockets that a worker reads for UDP: which are ready, and which pause after an error.
//!
//! An event only queues a socket. One batch is read when its turn comes, and the socket is queued again if there is more, so that
//! no socket waits for another's flood.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{ClientAddr, FrontendAddr};
use socket2::Socket;

use super::sockets::Upstream;
use crate::sys::Errno;
use crate::sys::epoll::Watch;
use crate::sys::mmsg::BATCH;
use crate::worker::context::WorkerContext;
use crate::worker::deadlines::Deadlines;
use crate::worker::token::{Key, KeyedSlab, Token};

/// Maximum number of batches read from a socket that is about to close: more than its receive buffer holds by default.
const LAST_BATCHES: usize = 64;

/// Pause after an error that does not concern a peer (the kernel is out of memory): an immediate retry would only spin.
const PAUSE: Duration = Duration::from_millis(10);

/// A socket that is read, and its owner. Frontends are identified by their key.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A frontend's own socket, which other threads share.
    Frontend(Key, Arc<Socket>),
    /// A socket that steered frontends share, with its own address. Other threads share the socket.
    Inlet(FrontendAddr, Arc<Socket>),
    /// A flow's socket towards its endpoint.
    Endpoint(Key, ClientAddr, Rc<Upstream>),
}

impl Source {
    fn socket(&self) -> &Socket {
        match self {
            Self::Frontend(_, socket) | Self::Inlet(_, socket) => socket,
            Self::Endpoint(_, _, upstream) => upstream.socket(),
        }
    }
}

/// State of a socket after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Progress {
    /// There may be more to read.
    More,
    /// The socket is empty.
    Drained,
    /// The socket cannot be read at the moment.
    Failed,
}

impl Progress {
    /// Progress after a batch of `count` messages. `recvmmsg` stops early only if the queue is empty, so a short batch saves the
    /// read that would confirm it. (An ICMP error after the first message also stops it; the next call of any kind reports that.)
    pub(super) fn of_count(count: usize) -> Self {
        if count == BATCH { Self::More } else { Self::Drained }
    }

    /// Progress after an error.
    pub(super) fn of_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::Drained,
            io::ErrorKind::Interrupted => Self::More,
            // A router on the path has a smaller MTU. The kernel remembers it, so this is no failure.
            _ if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => Self::More,
            _ => Self::Failed,
        }
    }
}

/// Calls `batch` while a socket that is about to close has data.
pub(super) fn drain(mut batch: impl FnMut() -> Progress) {
    for _ in 0..LAST_BATCHES {
        if batch() != Progress::More {
            return;
        }
    }
}

struct Entry {
    source: Source,
    /// Whether it is queued or pauses.
    waiting: bool,
}

/// The sockets that a worker reads.
pub(super) struct Registry {
    worker: Rc<WorkerContext>,
    entries: RefCell<KeyedSlab<Entry>>,
    ready: RefCell<VecDeque<Key>>,
    resting: RefCell<Deadlines<Key>>,
    /// Whether another process has copies of these sockets: closing one here does not end its registration then (epoll(7),
    /// question 6).
    handed: Cell<bool>,
}

/// Registration of a socket, which is read until this is dropped.
pub(super) struct Registration {
    registry: Rc<Registry>,
    key: Key,
}

impl Registry {
    /// Creates a registry without sockets.
    pub(super) fn new(worker: &Rc<WorkerContext>) -> Rc<Self> {
        Rc::new(Self {
            worker: Rc::clone(worker),
            entries: RefCell::default(),
            ready: RefCell::default(),
            resting: RefCell::new(Deadlines::new(PAUSE)),
            handed: Cell::new(false),
        })
    }

    /// Registers a nonblocking socket, which may already have data.
    ///
    /// # Errors
    /// Returns an error if epoll_ctl(2) fails.
    pub(super) fn register(self: &Rc<Self>, source: Source) -> io::Result<Registration> {
        let mut added = Ok(());
        let key = self.entries.borrow_mut().insert_with(|key| {
            added = self.worker.poller.add(source.socket(), Watch::Datagrams, Token::UdpSocket(key).into());
            Entry { source, waiting: false }
        });
        let registration = Registration { registry: Rc::clone(self), key };
        added.map(|()| registration)
    }

    /// Calls `flow` with the frontend and client of each flow in these slots. Returns whether there are slots beyond them.
    pub(super) fn each_flow(&self, places: Range<usize>, mut flow: impl FnMut(Key, ClientAddr)) -> bool {
        let entries = self.entries.borrow();
        for (_, entry) in entries.range(places.clone()) {
            if let Source::Endpoint(place, client, _) = &entry.source {
                flow(*place, *client);
            }
        }
        places.end < entries.capacity()
    }

    /// Records that another process has copies of these sockets.
    pub(super) fn hand_over(&self) {
        self.handed.set(true);
    }

    /// Queues a socket that has data.
    pub(super) fn on_socket(&self, key: Key) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(key)
            && !std::mem::replace(&mut entry.waiting, true)
        {
            self.ready.borrow_mut().push_back(key);
        }
    }

    /// Queues the sockets whose pause is over by `now`.
    pub(super) fn on_time(&self, now: Instant) {
        let rested = std::iter::from_fn(|| self.resting.borrow_mut().pop(now));
        self.ready.borrow_mut().extend(rested.map(|(_, key)| key));
    }

    /// When the next pause is over.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.resting.borrow().next()
    }

    /// Whether any socket is queued.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// Takes the first queued socket. The caller must pass its key to [`put_back`](Self::put_back).
    pub(super) fn next_ready(&self) -> Option<(Key, Source)> {
        let mut entries = self.entries.borrow_mut();
        loop {
            let key = self.ready.borrow_mut().pop_front()?;
            if let Some(entry) = entries.get_mut(key) {
                return Some((key, entry.source.clone()));
            }
        }
    }

    /// Schedules the next read of a socket after a batch.
    pub(super) fn put_back(&self, key: Key, progress: Progress) {
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(key) else { return };
        match progress {
            Progress::More => self.ready.borrow_mut().push_back(key),
            // An arrival since the batch still triggers an event, since the poller has not been called in between.
            Progress::Drained => entry.waiting = false,
            Progress::Failed => {
                self.resting.borrow_mut().push(self.worker.now(), PAUSE, key);
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Dropped after the borrow: it may hold the last reference to a socket whose drop has further effects.
        let removed = self.registry.entries.borrow_mut().remove(self.key);
        let Some(Entry { source, .. }) = removed else { return };
        let others = match source {
            Source::Frontend(..) | Source::Inlet(..) => true,
            Source::Endpoint(..) => self.registry.handed.get(),
        };
        if others {
            self.registry.worker.poller.remove(source.socket());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::sys::epoll::Events;
    use crate::worker::context::{Shared, Timeouts};

    /// A registry that reads one socket, and a socket connected to that.
    fn registry() -> (Rc<Registry>, Registration, Arc<Socket>, UdpSocket) {
        let timeouts = Timeouts::all(Duration::from_secs(1));
        let registry = Registry::new(&WorkerContext::new(Shared::for_tests(timeouts), 0, 1).unwrap());
        let (socket, peer) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        peer.connect(socket.local_addr().unwrap()).unwrap();
        let socket = Arc::new(Socket::from(socket));
        let place = KeyedSlab::default().insert_with(|_| ());
        let registration = registry.register(Source::Frontend(place, Arc::clone(&socket))).unwrap();
        (registry, registration, socket, peer)
    }

    fn keys_of_events(registry: &Registry) -> Vec<Key> {
        let mut events = Events::new();
        registry.worker.poller.wait(&mut events, false).unwrap();
        let keys = events.iter().filter_map(|(token, _)| match Token::from(token) {
            Token::UdpSocket(key) => Some(key),
            _ => None,
        });
        keys.collect()
    }

    #[test]
    fn a_socket_is_queued_once_and_again_only_after_a_batch() {
        let (registry, registration, _socket, peer) = registry();
        peer.send(b"a").unwrap();
        assert_eq!(keys_of_events(&registry), [registration.key]);
        registry.on_socket(registration.key);
        registry.on_socket(registration.key);
        for progress in [Progress::More, Progress::Drained] {
            let (key, _) = registry.next_ready().unwrap();
            assert!(!registry.has_ready());
            registry.put_back(key, progress);
        }
        assert!(!registry.has_ready());
        registry.on_socket(registration.key);
        assert!(registry.has_ready());
    }

    #[test]
    fn a_socket_that_cannot_be_read_rests_whatever_arrives() {
        let (registry, registration, ..) = registry();
        registry.on_socket(registration.key);
        let (key, _) = registry.next_ready().unwrap();
        registry.put_back(key, Progress::Failed);
        registry.on_socket(key);
        let now = registry.worker.now();
        registry.on_time(now);
        assert_eq!((registry.has_ready(), registry.next_deadline()), (false, Some(now + PAUSE)));
        registry.on_time(now + PAUSE);
        assert_eq!((registry.has_ready(), registry.next_deadline()), (true, None));
    }

    #[test]
    fn a_socket_that_others_have_too_is_let_go() {
        let (registry, registration, socket, peer) = registry();
        let key = registration.key;
        registry.on_socket(key);
        drop(registration);
        assert!(registry.next_ready().is_none(), "nor is it read though it was queued");
        peer.send(b"a").unwrap();
        assert_eq!(keys_of_events(&registry), []);
        registry.on_socket(key);
        assert!(!registry.has_ready());
        assert_eq!(Arc::strong_count(&socket), 1);
    }
}
