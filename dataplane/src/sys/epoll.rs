//! A worker's epoll instance and what wakes it (epoll(7)). A socket is added once, for all of its events, and leaves by being closed.
//!
//! Not mio: that offers edges alone, and a listener that is level-triggered needs no `accept4` only to be answered `EAGAIN`.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Events that are taken at a time.
const EVENTS: usize = 256;

/// What is true of a socket at the moment of asking (epoll_ctl(2)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness(EpollFlags);

impl Readiness {
    /// There is something to read: bytes, FIN or an error.
    pub(crate) fn readable(self) -> bool {
        self.0.intersects(
            EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR,
        )
    }

    /// There is room to write, or an error to report.
    pub(crate) fn writable(self) -> bool {
        self.0.intersects(EpollFlags::EPOLLOUT | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR)
    }

    /// The peer's FIN is there, and so is every byte before it.
    pub(crate) fn finished(self) -> bool {
        self.0.contains(EpollFlags::EPOLLRDHUP)
    }

    /// An error is pending: mostly a reset.
    pub(crate) fn broken(self) -> bool {
        self.0.contains(EpollFlags::EPOLLERR)
    }

    /// There is urgent data.
    pub(crate) fn urgent(self) -> bool {
        self.0.contains(EpollFlags::EPOLLPRI)
    }
}

/// For what a socket is watched, and how often that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Bytes, room, FIN, urgent data: each change once (EPOLLET). What is true already counts as a change.
    Stream,
    /// Datagrams and ICMP errors, each arrival once. Not room to send: each datagram that leaves would wake the worker to tell so.
    Datagrams,
    /// Connections, for as long as one waits.
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

/// The epoll instance.
#[derive(Debug)]
pub(crate) struct Poller(Epoll);

/// Room for one batch of events.
#[derive(Debug)]
pub(crate) struct Events {
    events: Box<[EpollEvent]>,
    count: usize,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { events: vec![EpollEvent::empty(); EVENTS].into(), count: 0 }
    }

    /// The events of the latest batch, each with its token.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Readiness)> + use<'_> {
        self.events.iter().take(self.count).map(|event| (event.data(), Readiness(event.events())))
    }
}

impl Poller {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// As epoll_create(2).
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Watches a socket from now on, until it is closed by all who have it; its events carry `token`.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(crate) fn add(&self, socket: impl AsFd, watch: Watch, token: u64) -> io::Result<()> {
        Ok(self.0.add(socket, EpollEvent::new(watch.flags(), token))?)
    }

    /// Watches a socket for something else than before, which takes nothing that this machine could lack.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(crate) fn change(&self, socket: impl AsFd, watch: Watch, token: u64) -> io::Result<()> {
        Ok(self.0.modify(socket, &mut EpollEvent::new(watch.flags(), token))?)
    }

    /// Lets go of a socket that others have, too. One that is not watched is no error.
    pub(crate) fn remove(&self, socket: impl AsFd) {
        if let Err(error) = self.0.delete(socket) {
            tracing::debug!(%error, "a socket was not watched");
        }
    }

    /// Gets the events that there are, and first waits until there is one if `sleep` says so.
    ///
    /// # Errors
    /// As epoll_wait(2); that a signal came first is none.
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

/// Wakes the thread that waits at a [`Poller`] at a certain moment. It is set once per deadline; a timeout of epoll_wait(2) would be
/// set, and taken back, each time that the thread sleeps.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: TimerFd,
    at: Option<Instant>,
}

impl Alarm {
    /// Wakes nobody until it is set.
    ///
    /// # Errors
    /// As timerfd_create(2) and epoll_ctl(2).
    pub(crate) fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        poller.add(&timer, Watch::Datagrams, token)?;
        Ok(Self { timer, at: None })
    }

    /// It has woken the thread.
    pub(crate) fn rang(&mut self) {
        self.at = None;
    }

    /// Makes sure that it rings at `due` at the latest. It may ring earlier, for what was due once.
    ///
    /// # Errors
    /// As timerfd_settime(2).
    pub(crate) fn ring_by(&mut self, now: Instant, due: Instant) -> io::Result<()> {
        if self.at.is_some_and(|at| at <= due) {
            return Ok(());
        }
        // Zero would take it back.
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
    /// Wakes nobody until it is added.
    ///
    /// # Errors
    /// As eventfd(2).
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Has it wake whoever waits at this poller; what is to wake already counts.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(crate) fn attach(&self, poller: &Poller, token: u64) -> io::Result<()> {
        // Each write is an event of its own (`eventfd_write` in fs/eventfd.c), so nobody has to read what was written.
        poller.add(&self.0, Watch::Datagrams, token)
    }

    /// Wakes the thread, or keeps it from falling asleep.
    pub(crate) fn wake(&self) {
        if let Err(error) = self.0.write(1) {
            tracing::error!(%error, "a worker cannot be woken");
        }
    }
}
