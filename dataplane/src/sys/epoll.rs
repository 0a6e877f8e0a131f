//! Poller of a worker, an epoll instance, and the means to wake it (epoll(7)). A socket is added once for all of its events, and is
//! removed by closing it.
//!
//! Not mio, which only supports edge-triggered events: a level-triggered listener saves the `accept4` call that returns `EAGAIN`.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Maximum number of events per call.
const EVENTS: usize = 256;

/// Readiness of a socket when the event was fetched (epoll_ctl(2)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness(EpollFlags);

impl Readiness {
    /// Whether there is something to read: data, FIN or an error.
    pub(crate) fn readable(self) -> bool {
        self.0.intersects(
            EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR,
        )
    }

    /// Whether there is room to write, or an error to report.
    pub(crate) fn writable(self) -> bool {
        self.0.intersects(EpollFlags::EPOLLOUT | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR)
    }

    /// Whether the peer's FIN has arrived, with all data before it.
    pub(crate) fn finished(self) -> bool {
        self.0.contains(EpollFlags::EPOLLRDHUP)
    }

    /// Whether an error is pending, mostly a reset.
    pub(crate) fn broken(self) -> bool {
        self.0.contains(EpollFlags::EPOLLERR)
    }

    /// Whether there is urgent data.
    pub(crate) fn urgent(self) -> bool {
        self.0.contains(EpollFlags::EPOLLPRI)
    }
}

/// Events that a socket is polled for, and how often they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Data, room, FIN and urgent data, each change once (EPOLLET). The initial state counts as a change.
    Stream,
    /// Datagrams and ICMP errors, each arrival once. Not room to send, which would wake the worker for each datagram that leaves.
    Datagrams,
    /// Connections, as long as one waits.
    Listener,
    /// Nothing, for now.
    Nothing,
}

impl Watch {
    fn flags(self) -> EpollFlags {
        match self {
            Self::Stream => {
                EpollFlags::EPOLLIN
                    | EpollFlags::EPOLLOUT
                    | EpollFlags::EPOLLRDHUP
                    | EpollFlags::EPOLLPRI
                    | EpollFlags::EPOLLET
            }
            Self::Datagrams => EpollFlags::EPOLLIN | EpollFlags::EPOLLET,
            Self::Listener => EpollFlags::EPOLLIN,
            Self::Nothing => EpollFlags::empty(),
        }
    }
}

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Poller(Epoll);

/// Buffer for one batch of events.
#[derive(Debug)]
pub(crate) struct Events {
    events: Box<[EpollEvent]>,
    count: usize,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { events: vec![EpollEvent::empty(); EVENTS].into(), count: 0 }
    }

    /// The events of the last batch, each with its token.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Readiness)> + use<'_> {
        self.events.iter().take(self.count).map(|event| (event.data(), Readiness(event.events())))
    }
}

impl Poller {
    /// Creates an epoll instance without sockets.
    ///
    /// # Errors
    /// Returns an error if epoll_create(2) fails.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Adds a socket, until its last descriptor is closed; its events carry `token`.
    ///
    /// # Errors
    /// Returns an error if epoll_ctl(2) fails.
    pub(crate) fn add(&self, socket: impl AsFd, watch: Watch, token: u64) -> io::Result<()> {
        Ok(self.0.add(socket, EpollEvent::new(watch.flags(), token))?)
    }

    /// Changes the events that a socket is polled for, which needs no resource that could be exhausted.
    ///
    /// # Errors
    /// Returns an error if epoll_ctl(2) fails.
    pub(crate) fn change(&self, socket: impl AsFd, watch: Watch, token: u64) -> io::Result<()> {
        Ok(self.0.modify(socket, &mut EpollEvent::new(watch.flags(), token))?)
    }

    /// Removes a socket of which there are other descriptors. Not an error if the socket was not added.
    pub(crate) fn remove(&self, socket: impl AsFd) {
        if let Err(error) = self.0.delete(socket) {
            tracing::debug!(%error, "a socket was not watched");
        }
    }

    /// Fetches the pending events. With `sleep`, waits until there is at least one.
    ///
    /// # Errors
    /// Returns an error if epoll_wait(2) fails; an interruption by a signal is no failure.
    pub(crate) fn wait(&self, events: &mut Events, sleep: bool) -> io::Result<()> {
        let timeout = if sleep { EpollTimeout::NONE } else { EpollTimeout::ZERO };
        events.count = 0;
        events.count = match self.0.wait(&mut events.events, timeout) {
            Err(Errno::EINTR) => 0,
            outcome => outcome?,
        };
        Ok(())
    }
}

/// Timer that wakes the thread waiting at a [`Poller`]. It is set once per deadline; a timeout of epoll_wait(2) would be set and
/// cancelled each time the thread sleeps.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: TimerFd,
    at: Option<Instant>,
}

impl Alarm {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// Returns an error if timerfd_create(2) or epoll_ctl(2) fails.
    pub(crate) fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        poller.add(&timer, Watch::Datagrams, token)?;
        Ok(Self { timer, at: None })
    }

    /// Records that the timer has expired.
    pub(crate) fn rang(&mut self) {
        self.at = None;
    }

    /// Ensures that the timer expires at `due` at the latest. It may expire earlier, for a former deadline.
    ///
    /// # Errors
    /// Returns an error if timerfd_settime(2) fails.
    pub(crate) fn ring_by(&mut self, now: Instant, due: Instant) -> io::Result<()> {
        if self.at.is_some_and(|at| at <= due) {
            return Ok(());
        }
        // Zero would cancel the timer.
        let after = due.saturating_duration_since(now).max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(after));
        self.timer.set(once, TimerSetTimeFlags::empty())?;
        self.at = Some(due);
        Ok(())
    }
}

/// Wakes the thread that waits at a [`Poller`].
#[derive(Debug)]
pub(crate) struct Waker(EventFd);

impl Waker {
    /// Creates a waker that is not attached to a poller.
    ///
    /// # Errors
    /// Returns an error if eventfd(2) fails.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Attaches the waker to a poller; an earlier call of [`wake`](Self::wake) takes effect.
    ///
    /// # Errors
    /// Returns an error if epoll_ctl(2) fails.
    pub(crate) fn attach(&self, poller: &Poller, token: u64) -> io::Result<()> {
        // Each write is a separate event (`eventfd_write` in fs/eventfd.c), so the counter is never read.
        poller.add(&self.0, Watch::Datagrams, token)
    }

    /// Wakes the thread, or keeps it from going to sleep.
    pub(crate) fn wake(&self) {
        if let Err(error) = self.0.write(1) {
            tracing::error!(%error, "a worker cannot be woken");
        }
    }
}
