//! What the connections and flows of a worker need: what all workers share, and what the worker has to itself.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sheave_model::FrontendAddr;
use socket2::Socket;
use tokio::sync::{Notify, mpsc};

use crate::health::Reports;
use crate::limits::capacity::Capacity;
use crate::limits::overload::Refusals;
use crate::log_throttle::LogThrottle;
use crate::paths::Paths;
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::splitmix64::SplitMix64;
use crate::transparent::Transparency;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One attempt to connect an endpoint.
    pub connect: Duration,
    /// A TCP connection on which nothing moves.
    pub idle: Duration,
    /// A UDP flow on which nothing moves.
    pub udp_idle: Duration,
    /// A UDP flow that no endpoint has answered yet.
    pub udp_unanswered: Duration,
}

#[cfg(test)]
impl Timeouts {
    /// The same for everything.
    pub(crate) fn all(time: Duration) -> Self {
        Self { connect: time, idle: time, udp_idle: time, udp_unanswered: time }
    }
}

/// What all workers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) transparency: Arc<Transparency>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) paths: Arc<Paths>,
    pub(crate) timeouts: Timeouts,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) refusals: Arc<Refusals>,
    /// Where to report listening sockets that are of no more use.
    pub(crate) broken: mpsc::UnboundedSender<BrokenSocket>,
}

#[cfg(test)]
impl Shared {
    /// An empty table, no limits, and nobody who hears of failures.
    pub(crate) fn for_tests(timeouts: Timeouts) -> Self {
        Self {
            table: Arc::default(),
            affinity: Arc::default(),
            transparency: Arc::default(),
            reports: Reports::ignored(),
            paths: Arc::default(),
            timeouts,
            capacity: Capacity::unlimited(),
            refusals: Arc::default(),
            broken: mpsc::unbounded_channel().0,
        }
    }
}

/// A listening socket that a worker found to be of no more use. If it was closed meanwhile, that is why.
#[derive(Debug)]
pub(crate) struct BrokenSocket {
    pub(crate) addr: FrontendAddr,
    pub(crate) socket: Arc<Socket>,
    pub(crate) error: io::Error,
}

/// A shortage is logged once in so long.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// What everything on one worker shares. Stays on its thread.
pub(crate) struct WorkerContext {
    pub(crate) shared: Shared,
    pub(crate) random: SplitMix64,
    /// For warnings that the machine is short of something, of all listeners together.
    pub(crate) log_throttle: LogThrottle,
    draining: Cell<bool>,
    drain_begins: Notify,
    open: Cell<usize>,
    all_closed: Notify,
}

impl WorkerContext {
    /// Nothing is open; the random numbers begin with `random`.
    pub(crate) fn new(shared: Shared, random: u64) -> Rc<Self> {
        Rc::new(Self {
            shared,
            random: SplitMix64::new(random),
            log_throttle: LogThrottle::new(LOG_EVERY),
            draining: Cell::new(false),
            drain_begins: Notify::new(),
            open: Cell::new(0),
            all_closed: Notify::new(),
        })
    }

    /// Counts one connection or flow as open until the answer is dropped.
    pub(crate) fn count_open(self: &Rc<Self>) -> OpenCount {
        self.open.set(self.open.get() + 1);
        OpenCount(Rc::clone(self))
    }

    /// Begins to drain: listeners stop.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.drain_begins.notify_waiters();
    }

    /// Waits until the process drains, which it may do already.
    pub(crate) async fn drain_begins(&self) {
        let begins = self.drain_begins.notified();
        if !self.draining.get() {
            begins.await;
        }
    }

    /// Waits until no connection or flow is open.
    pub(crate) async fn all_closed(&self) {
        while self.open.get() > 0 {
            self.all_closed.notified().await;
        }
    }
}

/// One open connection or flow.
pub(crate) struct OpenCount(Rc<WorkerContext>);

impl OpenCount {
    /// The worker that serves it.
    pub(crate) fn worker(&self) -> &WorkerContext {
        &self.0
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        if self.0.open.get() == 0 {
            self.0.all_closed.notify_waiters();
        }
    }
}
