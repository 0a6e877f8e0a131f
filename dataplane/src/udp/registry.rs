//! What a worker reads for UDP: its sockets, which of them have something, and which rest after an error.
//!
//! An event only queues a socket. One batch is read off it when its turn comes, and it is queued again if there is more: no socket
//! waits for another's flood.

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

/// Batches that are still read off a socket that is about to close: more than its receive buffer holds by default.
const LAST_BATCHES: usize = 64;

/// Pause after an error that tells nothing about a peer (the kernel is out of memory): trying at once would only spin.
const PAUSE: Duration = Duration::from_millis(10);

/// A socket that is read, and for whom. A frontend is named by its place.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// The frontend's own socket, which whoever opened it has, too.
    Frontend(Key, Arc<Socket>),
    /// A socket that steered frontends share, and its own address. Whoever opened it has it, too.
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

/// What one batch says about the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Progress {
    /// There may be more.
    More,
    /// It is empty now.
    Drained,
    /// It cannot be read for the moment.
    Failed,
}

impl Progress {
    /// A batch of `count` messages. `recvmmsg` stops short only when the queue is empty, so the read that would say so
    /// again is saved. (An ICMP error after the first message stops it too; the next call of any kind reports that.)
    pub(super) fn of_count(count: usize) -> Self {
        if count == BATCH { Self::More } else { Self::Drained }
    }

    /// No batch.
    pub(super) fn of_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::Drained,
            io::ErrorKind::Interrupted => Self::More,
            // A router on the way has a smaller MTU. The kernel remembers it; nobody is to blame.
            _ if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => Self::More,
            _ => Self::Failed,
        }
    }
}

/// Calls `batch` while a socket that is about to close still has something.
pub(super) fn drain(mut batch: impl FnMut() -> Progress) {
    for _ in 0..LAST_BATCHES {
        if batch() != Progress::More {
            return;
        }
    }
}

struct Entry {
    source: Source,
    /// It is queued, or rests.
    waiting: bool,
}

/// The sockets that a worker reads.
pub(super) struct Registry {
    worker: Rc<WorkerContext>,
    entries: RefCell<KeyedSlab<Entry>>,
    ready: RefCell<VecDeque<Key>>,
    resting: RefCell<Deadlines<Key>>,
    /// Another process has all of these sockets, too: closing one here does not end its registration (epoll(7), question 6).
    handed: Cell<bool>,
}

/// A socket is read until this is dropped.
pub(super) struct Registration {
    registry: Rc<Registry>,
    key: Key,
}

impl Registry {
    /// Reads nothing yet.
    pub(super) fn new(worker: &Rc<WorkerContext>) -> Rc<Self> {
        Rc::new(Self {
            worker: Rc::clone(worker),
            entries: RefCell::default(),
            ready: RefCell::default(),
            resting: RefCell::new(Deadlines::new(PAUSE)),
            handed: Cell::new(false),
        })
    }

    /// Reads a nonblocking socket from now on, beginning with what it has.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(super) fn register(self: &Rc<Self>, source: Source) -> io::Result<Registration> {
        let mut added = Ok(());
        let key = self.entries.borrow_mut().insert_with(|key| {
            added = self.worker.poller.add(source.socket(), Watch::Datagrams, Token::UdpSocket(key).into());
            Entry { source, waiting: false }
        });
        let registration = Registration { registry: Rc::clone(self), key };
        added.map(|()| registration)
    }

    /// The flows in these places, by frontend and client. Says whether there are places behind them.
    pub(super) fn each_flow(&self, places: Range<usize>, mut flow: impl FnMut(Key, ClientAddr)) -> bool {
        let entries = self.entries.borrow();
        for (_, entry) in entries.range(places.clone()) {
            if let Source::Endpoint(place, client, _) = &entry.source {
                flow(*place, *client);
            }
        }
        places.end < entries.capacity()
    }

    /// Another process has these sockets from now on, too.
    pub(super) fn hand_over(&self) {
        self.handed.set(true);
    }

    /// A socket has something.
    pub(super) fn on_socket(&self, key: Key) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(key)
            && !std::mem::replace(&mut entry.waiting, true)
        {
            self.ready.borrow_mut().push_back(key);
        }
    }

    /// Queues what has rested by `now`.
    pub(super) fn on_time(&self, now: Instant) {
        let rested = std::iter::from_fn(|| self.resting.borrow_mut().pop(now));
        self.ready.borrow_mut().extend(rested.map(|(_, key)| key));
    }

    /// When the next has rested.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.resting.borrow().next()
    }

    /// Whether any is to be read.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// Takes the first that is to be read. Its key is to be given to [`put_back`](Self::put_back).
    pub(super) fn next_ready(&self) -> Option<(Key, Source)> {
        let mut entries = self.entries.borrow_mut();
        loop {
            let key = self.ready.borrow_mut().pop_front()?;
            if let Some(entry) = entries.get_mut(key) {
                return Some((key, entry.source.clone()));
            }
        }
    }

    /// Decides when a socket is read again off which a batch was read.
    pub(super) fn put_back(&self, key: Key, progress: Progress) {
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(key) else { return };
        match progress {
            Progress::More => self.ready.borrow_mut().push_back(key),
            // The next arrival is an event: none has been asked for since the batch.
            Progress::Drained => entry.waiting = false,
            Progress::Failed => {
                self.resting.borrow_mut().push(self.worker.now(), PAUSE, key);
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Dropped after the borrow: it may hold the last reference to a socket that gives back more than itself.
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
