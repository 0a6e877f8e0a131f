//! Worker ports: what other workers see of a worker (its load), what wakes it, and the inbox for connections handed to it.
//!
//! The kernel spreads connections over the workers' sockets by a hash (`SO_REUSEPORT`, socket(7)) without regard to their load. A
//! worker with clearly more connections than another hands on what it accepts, as HAProxy does (`listener_accept` in its
//! src/listener.c).

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};

use sheave_model::{ClientAddr, FrontendAddr};
use socket2::Socket;

use crate::counters::TcpCounters;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::epoll::Waker;
use crate::sys::sockets::reset_on_close;

/// Excess of connections over another worker that is tolerated without handing on, since connections come and go.
const TOLERATED: usize = 2;
/// Divisor of the other worker's connections: this fraction of them is tolerated as well.
const TOLERATED_PART: usize = 8;
/// Maximum number of connections in a worker's inbox.
const LEFT: usize = 16;

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) frontend: FrontendAddr,
    pub(crate) peer: ClientAddr,
    pub(crate) socket: Socket,
    /// Counters of the worker that serves it.
    pub(crate) counters: Arc<TcpCounters>,
}

/// Port of one worker. It has its own cache lines, since each worker writes its own at every connection.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerPort {
    /// Number of TCP connections that the worker serves or has in its inbox; [`AWAY`] or more while no thread serves them.
    open: AtomicUsize,
    /// Whether the worker is asked to release memory.
    relief: AtomicBool,
    pub(crate) waker: Waker,
    inbox: Mutex<Inbox>,
}

/// Offset that marks a worker as absent: more than any worker has.
const AWAY: usize = usize::MAX / 2;

/// Connections that other workers handed to this one.
#[derive(Debug, Default)]
struct Inbox {
    connections: VecDeque<Accepted>,
    /// Whether further connections are refused: the worker drains, has panicked, or has not begun.
    closed: bool,
}

impl WorkerPort {
    /// # Errors
    /// Returns an error if eventfd(2) fails.
    fn new() -> io::Result<Self> {
        let inbox = Inbox { closed: true, ..Inbox::default() };
        let (open, relief) = (AtomicUsize::new(AWAY), AtomicBool::new(false));
        Ok(Self { open, relief, waker: Waker::new()?, inbox: Mutex::new(inbox) })
    }

    /// Number of TCP connections that the worker serves or has in its inbox.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Marks the worker as serving. The connections of an earlier worker must have been closed before.
    pub(crate) fn begin(&self) {
        let mut inbox = self.inbox();
        self.open.store(inbox.connections.len(), Ordering::Relaxed);
        inbox.closed = false;
    }

    /// Marks the worker as ended, and resets the connections in its inbox, which no thread will serve.
    pub(super) fn end(&self) {
        let mut inbox = self.inbox();
        inbox.closed = true;
        for accepted in inbox.connections.drain(..) {
            reset_on_close(&accepted.socket);
        }
        self.open.fetch_add(AWAY, Ordering::Relaxed);
    }

    /// Whether no connection is open and the inbox, closed by [`WorkerPorts::drain`] or the worker's end, is empty.
    pub(super) fn is_drained(&self) -> bool {
        let inbox = self.inbox();
        inbox.closed && inbox.connections.is_empty() && self.open() == 0
    }

    /// Counts one more connection as open.
    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one connection less as open.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes up to `most` connections from the inbox. Each still counts as open: the caller must call [`closed`](Self::closed) for
    /// it.
    pub(super) fn take(&self, most: usize) -> Vec<Accepted> {
        let mut inbox = self.inbox();
        let count = most.min(inbox.connections.len());
        inbox.connections.drain(..count).collect()
    }

    /// Asks the worker to release memory, and wakes it.
    pub(crate) fn ask_for_relief(&self) {
        self.relief.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Whether relief was requested since the last call.
    pub(super) fn takes_relief(&self) -> bool {
        self.relief.swap(false, Ordering::Relaxed)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ports of all workers.
#[derive(Debug)]
pub(crate) struct WorkerPorts {
    ports: Box<[WorkerPort]>,
}

impl WorkerPorts {
    /// Creates the ports of `workers` workers.
    ///
    /// # Errors
    /// Returns an error if eventfd(2) fails.
    pub(crate) fn new(workers: usize) -> io::Result<Arc<Self>> {
        let ports = (0..workers).map(|_| WorkerPort::new()).collect::<io::Result<_>>()?;
        Ok(Arc::new(Self { ports }))
    }

    pub(crate) fn count(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn of(&self, index: usize) -> &WorkerPort {
        &self.ports[index]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WorkerPort> {
        self.ports.iter()
    }

    /// Closes all inboxes: each worker keeps what it accepts, since a worker that has drained must not get another connection.
    pub(crate) fn drain(&self) {
        self.ports.iter().for_each(|port| port.inbox().closed = true);
    }

    /// Picks a worker that has clearly fewer connections than the worker `own`, if there is one: the less loaded of two at random,
    /// which is nearly as good as the least loaded of all (Mitzenmacher, "The power of two choices in randomized load balancing",
    /// 2001).
    pub(crate) fn less_busy_than(&self, own: usize, random: impl FnOnce() -> u64) -> Option<usize> {
        let others = self.ports.len() - 1;
        let (first, second) = match others {
            0 => return None,
            1 => (0, 0),
            2 => (0, 1),
            _ => {
                let random = random() as usize;
                let first = random % others;
                (first, (first + 1 + random / others % (others - 1)) % others)
            }
        };
        let number = |other: usize| if other < own { other } else { other + 1 };
        let other = [first, second].map(number).into_iter().min_by_key(|other| self.of(*other).open())?;
        let (own, theirs) = (self.of(own).open(), self.of(other).open());
        (own > theirs + TOLERATED + theirs / TOLERATED_PART).then_some(other)
    }

    /// Hands a connection to another worker.
    ///
    /// # Errors
    /// Returns the connection if that worker's inbox is closed or full.
    pub(crate) fn hand_on(&self, other: usize, accepted: Accepted) -> Result<(), Accepted> {
        let port = self.of(other);
        let mut inbox = port.inbox();
        // A worker that does not empty its inbox may be stuck.
        if inbox.closed || inbox.connections.len() >= LEFT {
            return Err(accepted);
        }
        port.opened();
        inbox.connections.push_back(accepted);
        if inbox.connections.len() == 1 {
            port.waker.wake();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use sheave_model::test_util;
    use socket2::{Domain, Type};

    use super::*;
    use crate::splitmix64::SplitMix64;

    fn accepted() -> Accepted {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let peer = ClientAddr((Ipv4Addr::LOCALHOST, 1).into());
        Accepted { frontend: test_util::frontend_addr(1), peer, socket, counters: Arc::default() }
    }

    /// Simulates connections that arrive at workers by a hash and end in random order. Returns the largest difference between the
    /// most and the least loaded worker.
    fn worst_spread(workers: usize, arrivals: usize, at_once: usize, hands_on: bool) -> usize {
        let ports = WorkerPorts::new(workers).unwrap();
        ports.iter().for_each(WorkerPort::begin);
        let (random, mut open, mut worst) = (SplitMix64::new(7), Vec::<usize>::new(), 0);
        for arrival in 0..arrivals {
            if open.len() == at_once {
                let ended = open.swap_remove(random.next() as usize % open.len());
                ports.of(ended).closed();
            }
            let own = random.next() as usize % workers;
            ports.of(own).opened();
            let taker = ports.less_busy_than(own, || random.next()).filter(|_| hands_on).unwrap_or(own);
            if taker != own {
                ports.of(own).closed();
                ports.hand_on(taker, accepted()).unwrap();
                assert_eq!(ports.of(taker).take(9).len(), 1);
            }
            open.push(taker);
            if arrival > 2 * at_once {
                let counts = || (0..workers).map(|index| ports.of(index).open());
                worst = worst.max(counts().max().unwrap() - counts().min().unwrap());
            }
        }
        worst
    }

    #[test]
    fn connections_are_spread_evenly_over_workers() {
        for (workers, at_once) in [(2, 64), (8, 400)] {
            let (alone, together) =
                (worst_spread(workers, 4000, at_once, false), worst_spread(workers, 4000, at_once, true));
            // With a share of 32 or 50 each, a worker tolerates eight or ten more than another worker that it compares with.
            assert!(
                together <= 18 && 3 * together <= 2 * alone,
                "{workers}: {together}, {alone} by hash alone"
            );
        }
    }

    #[test]
    fn who_drains_or_is_away_gets_nothing() {
        let ports = WorkerPorts::new(2).unwrap();
        ports.of(0).begin();
        assert!(ports.hand_on(1, accepted()).is_err(), "it has not begun");
        (0..100).for_each(|_| ports.of(0).opened());
        assert_eq!(ports.less_busy_than(0, || 1), None);
        ports.of(1).begin();
        assert_eq!(ports.less_busy_than(0, || 1), Some(1));
        (0..LEFT).for_each(|_| ports.hand_on(1, accepted()).unwrap());
        assert!(ports.hand_on(1, accepted()).is_err(), "it may be stuck");
        assert_eq!((ports.of(1).open(), ports.of(1).take(1).len()), (LEFT, 1));
        // The worker panics with one connection in hand and one in its inbox.
        ports.of(1).end();
        assert_eq!(ports.less_busy_than(0, || 1), None);
        ports.of(1).begin();
        ports.drain();
        assert!(ports.hand_on(1, accepted()).is_err() && ports.of(1).is_drained());
        assert!(!ports.of(0).is_drained());
    }
}
