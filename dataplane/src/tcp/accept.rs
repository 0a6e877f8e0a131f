//! The accept loop of one listening socket on one worker. No error ends it: one table maps each errno to an action.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::Socket;
use tokio::io::Interest;

use super::SHORTAGE_PAUSE;
use crate::counters::TcpCounters;
use crate::listener::steering::frontends::SteeredFrontends;
use crate::sys::errnos::is_shortage;
use crate::sys::sockets::Registered;
use crate::sys::{self, Errno};
use crate::worker::context::WorkerContext;
use sheave_model::{ClientAddr, FrontendAddr};

/// What to do about a failed accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum AcceptAction {
    /// This one connection is lost; take the next at once.
    Retry,
    /// The queue is empty: wait for readiness.
    Wait,
    /// A resource is used up: rest, then go on.
    Pause(Duration),
    /// The socket itself is of no more use: it has to be bound again.
    Rebind,
}

impl AcceptAction {
    /// The action for an error of accept(2).
    fn for_error(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EAGAIN) => Self::Wait,
            // Already-pending network errors of the new socket (accept(2), "Error handling"), signals, and what is
            // not the kernel's error at all but one odd peer's.
            None
            | Some(
                Errno::EINTR
                | Errno::ECONNABORTED
                | Errno::EPROTO
                | Errno::ENETDOWN
                | Errno::ENOPROTOOPT
                | Errno::EHOSTDOWN
                | Errno::ENONET
                | Errno::EHOSTUNREACH
                | Errno::EOPNOTSUPP
                | Errno::ENETUNREACH
                | Errno::ETIMEDOUT,
            ) => Self::Retry,
            Some(errno) if is_shortage(errno) => Self::Pause(SHORTAGE_PAUSE),
            Some(Errno::EPERM | Errno::ENOSR) => Self::Pause(SHORTAGE_PAUSE),
            Some(_) => Self::Rebind,
        }
    }
}

/// Connections that a loop takes before it yields to the worker's other tasks.
const BUDGET: usize = 64;

/// The accepting side of one listening socket.
pub(super) struct Acceptor {
    socket: Registered,
    addr: FrontendAddr,
    worker: Rc<WorkerContext>,
}

impl Acceptor {
    pub(super) fn new(socket: Registered, addr: FrontendAddr, worker: &Rc<WorkerContext>) -> Self {
        Self { socket, addr, worker: Rc::clone(worker) }
    }

    /// Hands every connection to `serve` for as long as the socket works; gives the error that ended it. Cancel safe:
    /// no connection is taken and then dropped.
    pub(super) async fn accept_until_broken(&self, mut serve: impl FnMut(Socket, ClientAddr)) -> io::Error {
        let mut taken = 0;
        loop {
            let accepted =
                self.socket.async_io(Interest::READABLE, |socket| sys::sockets::accept(socket)).await;
            let error = match accepted {
                Ok((stream, peer)) => {
                    serve(stream, ClientAddr(peer));
                    taken += 1;
                    if taken % BUDGET == 0 {
                        tokio::task::yield_now().await;
                    }
                    continue;
                }
                Err(error) => error,
            };
            match AcceptAction::for_error(&error) {
                AcceptAction::Retry | AcceptAction::Wait => {}
                AcceptAction::Pause(rest) => {
                    self.log_shortage(&error);
                    tokio::time::sleep(rest).await;
                }
                AcceptAction::Rebind => return error,
            }
        }
    }

    /// Hands the connections that are waiting right now to `serve`.
    pub(super) fn accept_waiting(&self, mut serve: impl FnMut(Socket, ClientAddr)) {
        loop {
            match sys::sockets::accept(self.socket.get_ref()) {
                Ok((stream, peer)) => serve(stream, ClientAddr(peer)),
                Err(error) if AcceptAction::for_error(&error) == AcceptAction::Retry => {}
                Err(_) => return,
            }
        }
    }

    /// Logs what is used up and what helps, but not at each pause of each listener.
    fn log_shortage(&self, error: &io::Error) {
        if !self.worker.log_throttle.admits(Instant::now()) {
            return;
        }
        let advice = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE) => "raise this process's limit of open files (LimitNOFILE, ulimit -n)",
            Some(Errno::ENFILE) => "raise the machine's limit of open files (fs.file-max)",
            Some(Errno::EPERM) => "a firewall rule or security module forbids it",
            _ => "the machine is short of memory for sockets",
        };
        tracing::warn!(frontend = %self.addr, %error, advice, "cannot accept; clients wait in the queue");
    }
}

/// The steered TCP frontends that one worker has met.
#[derive(Debug)]
pub(crate) struct SteeredTcp {
    steered: Arc<SteeredFrontends>,
    /// Which worker this is.
    index: usize,
    met: RefCell<HashMap<FrontendAddr, Arc<TcpCounters>, foldhash::fast::RandomState>>,
}

impl SteeredTcp {
    /// None met so far.
    pub(crate) fn new(steered: Arc<SteeredFrontends>, index: usize) -> Rc<Self> {
        Rc::new(Self { steered, index, met: RefCell::default() })
    }

    /// The frontend is gone, or takes nothing new.
    pub(crate) fn forget(&self, addr: FrontendAddr) {
        self.met.borrow_mut().remove(&addr);
    }

    pub(super) fn counters(&self, addr: FrontendAddr) -> Option<Arc<TcpCounters>> {
        let mut met = self.met.borrow_mut();
        if let Some(counters) = met.get(&addr) {
            return Some(Arc::clone(counters));
        }
        let counters = self.steered.counters(addr, self.index)?.tcp()?;
        met.insert(addr, Arc::clone(&counters));
        Some(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(errno: Errno) -> AcceptAction {
        AcceptAction::for_error(&io::Error::from(errno))
    }

    #[test]
    fn a_connection_that_died_in_the_queue_costs_nothing_but_itself() {
        for errno in [Errno::ECONNABORTED, Errno::EPROTO, Errno::EHOSTUNREACH, Errno::EINTR] {
            assert_eq!(action(errno), AcceptAction::Retry, "{errno}");
        }
    }

    #[test]
    fn running_out_of_descriptors_or_memory_pauses() {
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM] {
            assert_eq!(action(errno), AcceptAction::Pause(SHORTAGE_PAUSE), "{errno}");
        }
    }

    #[test]
    fn an_empty_queue_waits_and_a_dead_socket_is_bound_again() {
        assert_eq!(action(Errno::EAGAIN), AcceptAction::Wait);
        assert_eq!(action(Errno::EBADF), AcceptAction::Rebind);
        assert_eq!(action(Errno::EINVAL), AcceptAction::Rebind);
    }
}
