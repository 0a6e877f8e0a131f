//! What others see of a worker: how busy it is, what wakes it, and where they leave connections for it.
//!
//! The kernel spreads connections over the workers' sockets by a hash (`SO_REUSEPORT`, socket(7)), blind to how many each has. Who
//! has clearly more than another hands on what it accepts, as HAProxy does (`listener_accept` in its src/listener.c).

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

/// So many connections more than another worker are no reason to hand one on: they come and go.
const TOLERATED: usize = 2;
/// Nor is this part of what the other has.
const TOLERATED_PART: usize = 8;
/// Connections that wait for a worker at most.
const LEFT: usize = 16;

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) frontend: FrontendAddr,
    pub(crate) peer: ClientAddr,
    pub(crate) socket: Socket,
    /// Of the worker that serves it.
    pub(crate) counters: Arc<TcpCounters>,
}

/// One worker, as others see it. Its own cache lines, since each worker writes its own at every connection.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerPort {
    /// TCP connections that it has, or that were left for it; [`AWAY`] and more while nobody serves them.
    open: AtomicUsize,
    /// Memory is to be given back.
    relief: AtomicBool,
    pub(crate) waker: Waker,
    inbox: Mutex<Inbox>,
}

/// More than any worker has.
const AWAY: usize = usize::MAX / 2;

/// What others have left for a worker.
#[derive(Debug, Default)]
struct Inbox {
    connections: VecDeque<Accepted>,
    /// Nothing more is taken: the worker drains, has panicked, or has not begun.
    closed: bool,
}

impl WorkerPort {
    /// # Errors
    /// As eventfd(2).
    fn new() -> io::Result<Self> {
        let inbox = Inbox { closed: true, ..Inbox::default() };
        let (open, relief) = (AtomicUsize::new(AWAY), AtomicBool::new(false));
        Ok(Self { open, relief, waker: Waker::new()?, inbox: Mutex::new(inbox) })
    }

    /// TCP connections that it has, or that were left for it.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The worker serves from now on. None of an earlier worker's connections may be open.
    pub(crate) fn begin(&self) {
        let mut inbox = self.inbox();
        self.open.store(inbox.connections.len(), Ordering::Relaxed);
        inbox.closed = false;
    }

    /// The worker is over, whatever it has: resets what nobody will serve.
    pub(super) fn end(&self) {
        let mut inbox = self.inbox();
        inbox.closed = true;
        for accepted in inbox.connections.drain(..) {
            reset_on_close(&accepted.socket);
        }
        self.open.fetch_add(AWAY, Ordering::Relaxed);
    }

    /// Whether nothing is open, and nothing more will be left for a worker that keeps to itself.
    pub(super) fn is_drained(&self) -> bool {
        let inbox = self.inbox();
        inbox.closed && inbox.connections.is_empty() && self.open() == 0
    }

    /// Counts one more as open.
    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one less.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes up to so many of what others have left. Each still counts as open: the taker has to say [`closed`](Self::closed).
    pub(super) fn take(&self, most: usize) -> Vec<Accepted> {
        let mut inbox = self.inbox();
        let count = most.min(inbox.connections.len());
        inbox.connections.drain(..count).collect()
    }

    /// Has the worker look for memory to give back.
    pub(crate) fn ask_for_relief(&self) {
        self.relief.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Whether it was asked for since the last time.
    pub(super) fn takes_relief(&self) -> bool {
        self.relief.swap(false, Ordering::Relaxed)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All workers, as they see each other.
#[derive(Debug)]
pub(crate) struct WorkerPorts {
    ports: Box<[WorkerPort]>,
}

impl WorkerPorts {
    /// Of so many workers.
    ///
    /// # Errors
    /// As eventfd(2).
    pub(crate) fn new(workers: usize) -> io::Result<Arc<Self>> {
        let ports = (0..workers).map(|_| WorkerPort::new()).collect::<io::Result<_>>()?;
        Ok(Arc::new(Self { ports }))
    }

    /// How many workers there are.
    pub(crate) fn count(&self) -> usize {
        self.ports.len()
    }

    /// The worker of this index.
    pub(crate) fn of(&self, index: usize) -> &WorkerPort {
        &self.ports[index]
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WorkerPort> {
        self.ports.iter()
    }

    /// From now on each worker keeps what it accepts: whoever has finished must not get anything new.
    pub(crate) fn drain(&self) {
        self.ports.iter().for_each(|port| port.inbox().closed = true);
    }

    /// A worker that has clearly fewer connections than the worker `own`: the lesser of two, which is nearly as good as the least of
    /// all (Mitzenmacher, "The power of two choices in randomized load balancing", 2001).
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

    /// Leaves a connection to another worker.
    ///
    /// # Errors
    /// The connection, if that worker takes none.
    pub(crate) fn hand_on(&self, other: usize, accepted: Accepted) -> Result<(), Accepted> {
        let port = self.of(other);
        let mut inbox = port.inbox();
        // Who does not take what it has been left may be stuck.
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

    /// Lets connections arrive at workers by a hash and end in random order; gives the spread of what each has, from the fewest
    /// to the most, at its worst.
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
            // With a share of 32 or 50 each, eight or ten more are tolerated of one worker against another it looks at.
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
        // It panics with one in hand and one waiting.
        ports.of(1).end();
        assert_eq!(ports.less_busy_than(0, || 1), None);
        ports.of(1).begin();
        ports.drain();
        assert!(ports.hand_on(1, accepted()).is_err() && ports.of(1).is_drained());
        assert!(!ports.of(0).is_drained());
    }
}
