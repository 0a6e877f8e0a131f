//! State that the connections and flows of a worker use: the part shared by all workers, and the worker's own.

use std::cell::{Cell, Ref, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use sheave_model::FrontendAddr;
use socket2::Socket;
use tokio::sync::mpsc;

use crate::client_traffic::{TallyCell, WatchRequests};
use crate::connection_log::ConnectionLog;
use crate::health::Reports;
use crate::limits::capacity::{Capacity, CapacityLimits};
use crate::limits::refusals::Refusals;
use crate::log_throttle::LogThrottle;
use crate::paths::Paths;
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::splitmix64::SplitMix64;
use crate::sys::epoll::Poller;
use crate::transparent::Transparency;
use crate::upstream_addresses::UpstreamAddresses;
use crate::worker_port::{WorkerPort, WorkerPorts};

use super::steps::{Steps, WorkerProgress};
use super::token::Token;

/// Timeouts of connections and flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One attempt to connect to an endpoint.
    pub connect: Duration,
    /// A TCP connection without traffic.
    pub idle: Duration,
    /// A UDP flow without traffic.
    pub udp_idle: Duration,
    /// A UDP flow that no endpoint has answered yet.
    pub udp_unanswered: Duration,
    /// Connections that are still open on a frontend that has left the table.
    pub drain: Duration,
}

#[cfg(test)]
impl Timeouts {
    /// Sets every timeout to `time`.
    pub(crate) fn all(time: Duration) -> Self {
        Self { connect: time, idle: time, udp_idle: time, udp_unanswered: time, drain: time }
    }
}

/// Settings that can change while a data plane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Timeouts of connections and flows.
    pub timeouts: Timeouts,
    /// How long a worker polls after the last traffic on its TCP connections before it sleeps. Polling saves the latency
    /// of a wake-up, and costs a core while there is traffic; zero = no polling.
    pub busy_poll: Duration,
    /// Limits of all traffic together.
    pub capacity: CapacityLimits,
    /// Maximum number of UDP flows per worker; beyond it new flows replace old ones.
    pub udp_flows: usize,
}

/// State that all workers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) transparency: Arc<Transparency>,
    pub(crate) upstream_addresses: Arc<UpstreamAddresses>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) paths: Arc<Paths>,
    /// Settings that a worker starts with; [`WorkerContext::settings`] are the current ones.
    pub(crate) settings: Settings,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) ports: Arc<WorkerPorts>,
    pub(crate) watch_requests: Arc<WatchRequests>,
    pub(crate) connection_log: ConnectionLog,
    /// Progress of each worker.
    pub(crate) progress: Arc<[WorkerProgress]>,
    /// Channel for sockets of frontends that have failed.
    pub(crate) broken: mpsc::UnboundedSender<BrokenSocket>,
}

#[cfg(test)]
impl Shared {
    /// An empty table, no limits, and reports that are ignored.
    pub(crate) fn for_tests(timeouts: Timeouts) -> Self {
        let capacity = CapacityLimits { descriptors: usize::MAX / 8, connections: usize::MAX / 8 };
        Self {
            table: Arc::default(),
            affinity: Arc::default(),
            transparency: Arc::default(),
            upstream_addresses: Arc::default(),
            reports: Reports::ignored(),
            paths: Arc::default(),
            settings: Settings { timeouts, busy_poll: Duration::ZERO, capacity, udp_flows: 1 },
            capacity: Capacity::unlimited(),
            refusals: Arc::default(),
            ports: WorkerPorts::new(1).expect("an eventfd"),
            watch_requests: WatchRequests::new(1),
            connection_log: ConnectionLog::new().0,
            progress: WorkerProgress::of_workers(1),
            broken: mpsc::unbounded_channel().0,
        }
    }
}

/// A worker's report that a socket of a frontend has failed. Closing a listening socket can cause it, too: `socket` does not upgrade
/// then.
#[derive(Debug)]
pub(crate) struct BrokenSocket {
    pub(crate) addr: FrontendAddr,
    /// The listening socket. Weak, so that the address is free as soon as the last worker has released it. `None` if a steered frontend
    /// cannot bind a socket through which it answers.
    pub(crate) socket: Option<Weak<Socket>>,
    pub(crate) error: io::Error,
}

/// Interval between two log lines about a shortage.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// State of one worker. Stays on its thread.
pub(crate) struct WorkerContext {
    pub(crate) shared: Shared,
    /// Index of this worker.
    pub(crate) index: usize,
    pub(crate) poller: Poller,
    pub(crate) random: SplitMix64,
    /// Throttle of warnings about shortages of the machine, for all listeners together.
    pub(crate) log_throttle: LogThrottle,
    /// Current step, for the watchdog.
    pub(crate) steps: Steps,
    /// Traffic counted for a watch.
    pub(crate) tally: Rc<TallyCell>,
    settings: Cell<Settings>,
    /// When this turn of the loop began.
    now: Cell<Instant>,
    table: RefCell<Arc<ActiveTable>>,
    /// Grows each time that `table` is replaced.
    table_number: Cell<u64>,
}

impl WorkerContext {
    /// Creates a context without connections; `random` seeds its random numbers.
    ///
    /// # Errors
    /// Returns an error if epoll_create(2) or epoll_ctl(2) fails.
    pub(crate) fn new(shared: Shared, index: usize, random: u64) -> io::Result<Rc<Self>> {
        let poller = Poller::new()?;
        shared.ports.of(index).waker.attach(&poller, Token::Waker.into())?;
        Ok(Rc::new(Self {
            index,
            poller,
            random: SplitMix64::new(random),
            log_throttle: LogThrottle::new(LOG_EVERY),
            steps: Steps::new(index, Arc::clone(&shared.progress)),
            tally: Rc::default(),
            settings: Cell::new(shared.settings),
            now: Cell::new(Instant::now()),
            table: RefCell::new(shared.table.load_full()),
            table_number: Cell::new(0),
            shared,
        }))
    }

    /// Current timeouts, for what begins now.
    pub(crate) fn timeouts(&self) -> Timeouts {
        self.settings().timeouts
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings.get()
    }

    /// Replaces the settings. Parts that keep a copy of a setting must be updated by the caller.
    pub(crate) fn set_settings(&self, settings: Settings) {
        self.settings.set(settings);
    }

    /// When this turn of the loop began: exact enough for timeouts, and no system call.
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Begins a turn: sets its time and loads the latest table.
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.now.set(now);
        self.refresh_table();
    }

    /// Loads the latest table, which may have been published since the turn began.
    pub(crate) fn refresh_table(&self) {
        let latest = self.shared.table.load();
        if !Arc::ptr_eq(&latest, &self.table.borrow()) {
            *self.table.borrow_mut() = Arc::clone(&latest);
            self.table_number.update(|number| number + 1);
        }
    }

    /// The table of this turn.
    pub(crate) fn table(&self) -> Ref<'_, Arc<ActiveTable>> {
        self.table.borrow()
    }

    /// Number of that table: an index found in a table of the same number is still valid.
    pub(crate) fn table_number(&self) -> u64 {
        self.table_number.get()
    }

    /// This worker's port, through which other workers reach it.
    pub(crate) fn port(&self) -> &WorkerPort {
        self.shared.ports.of(self.index)
    }

    /// Counts one TCP connection as open until the returned value is dropped.
    pub(crate) fn count_open(self: &Rc<Self>) -> OpenCount {
        self.port().opened();
        OpenCount(Rc::clone(self))
    }

    /// Reports that a listening socket has failed, or that one cannot be opened to answer.
    pub(crate) fn report_broken(&self, addr: FrontendAddr, held: Option<Arc<Socket>>, error: io::Error) {
        let socket = held.as_ref().map(Arc::downgrade);
        drop(held);
        if self.shared.broken.send(BrokenSocket { addr, socket, error }).is_err() {
            tracing::debug!(frontend = %addr, "nobody is left to bind it again");
        }
    }
}

/// Guard that counts one connection as open.
pub(crate) struct OpenCount(Rc<WorkerContext>);

impl OpenCount {
    /// The worker that serves the connection.
    pub(crate) fn worker(&self) -> &WorkerContext {
        &self.0
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.port().closed();
    }
}
