//! A worker's own epoll instance, inside that of its reactor: a socket is added once, for all events, and leaves by being closed.
//! tokio's own registration takes a second system call at the end of each socket, and an allocation and a task to wake for each.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Events that are taken at a time.
const EVENTS: usize = 128;

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

/// The epoll instance.
#[derive(Debug)]
pub(crate) struct Watch {
    epoll: AsyncFd<Instance>,
}

#[derive(Debug)]
struct Instance(Epoll);

impl AsRawFd for Instance {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

/// Room for one batch of events.
#[derive(Debug)]
pub(crate) struct Events(Box<[EpollEvent]>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(vec![EpollEvent::empty(); EVENTS].into())
    }
}

impl Watch {
    /// Must be called inside the worker's runtime.
    ///
    /// # Errors
    /// As epoll_create(2).
    pub(crate) fn new() -> io::Result<Self> {
        let instance = Instance(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        // SAFETY: the instance gives the same open descriptor for as long as it lives, and the registration owns it.
        Ok(Self { epoll: unsafe { AsyncFd::register_with_interest(instance, Interest::READABLE) }? })
    }

    /// Watches a socket from now on, until it is closed: each change is reported once (EPOLLET), with `token`. What is true
    /// already counts as a change.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(crate) fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLPRI
            | EpollFlags::EPOLLET;
        Ok(self.epoll.get_ref().0.add(socket, EpollEvent::new(flags, token))?)
    }

    /// Gives a batch of events to `each`, once there is one; true if there may be more.
    pub(crate) fn poll(
        &self,
        cx: &mut Context<'_>,
        events: &mut Events,
        each: impl FnMut(u64, Readiness),
    ) -> Poll<io::Result<bool>> {
        let mut guard = ready!(self.epoll.poll_read_ready(cx))?;
        let more = self.poll_now(events, each)? == events.0.len();
        if !more {
            // What has come since has told the reactor, which runs on this thread and so hears of it later.
            guard.clear_ready();
        }
        Poll::Ready(Ok(more))
    }

    /// Gives the events that there are to `each`, whether or not the reactor has heard of them; how many there were.
    pub(crate) fn poll_now(
        &self,
        events: &mut Events,
        mut each: impl FnMut(u64, Readiness),
    ) -> io::Result<usize> {
        let count = loop {
            match self.epoll.get_ref().0.wait(&mut events.0, EpollTimeout::ZERO) {
                Err(Errno::EINTR) => {}
                outcome => break outcome?,
            }
        };
        for event in &events.0[..count] {
            each(event.data(), Readiness(event.events()));
        }
        Ok(count)
    }
}
