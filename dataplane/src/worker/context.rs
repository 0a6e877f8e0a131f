//! What the connections and flows of a worker need: what all workers share, and what the worker has to itself.

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
use crate::udp::upstream_addresses::UpstreamAddresses;

use super::port::{WorkerPort, WorkerPorts};
use super::steps::{Steps, WorkerProgress};
use super::token::Token;

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
    /// What is still open on a frontend that has left the table.
    pub drain: Duration,
}

#[cfg(test)]
impl Timeouts {
    /// The same for everything.
    pub(crate) fn all(time: Duration) -> Self {
        Self { connect: time, idle: time, udp_idle: time, udp_unanswered: time, drain: time }
    }
}

/// What can change while a data plane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How long a worker looks for traffic on its TCP connections after the last before it sleeps. Saves the time that it
    /// takes to be woken, and costs a core while there is traffic; zero = not at all.
    pub busy_poll: Duration,
    /// What all traffic may take together.
    pub capacity: CapacityLimits,
    /// UDP flows that each worker may have; beyond it new ones take the place of old ones.
    pub udp_flows: usize,
}

/// What all workers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) transparency: Arc<Transparency>,
    pub(crate) upstream_addresses: Arc<UpstreamAddresses>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) paths: Arc<Paths>,
    /// What a worker starts with; [`WorkerContext::settings`] are those in force.
    pub(crate) settings: Settings,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) ports: Arc<WorkerPorts>,
    pub(crate) watch_requests: Arc<WatchRequests>,
    pub(crate) connection_log: ConnectionLog,
    /// How far each worker is.
    pub(crate) progress: Arc<[WorkerProgress]>,
    /// Where to report listening sockets that are of no more use.
    pub(crate) broken: mpsc::UnboundedSender<BrokenSocket>,
}

#[cfg(test)]
impl Shared {
    /// An empty table, no limits, and nobody who hears of failures.
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

/// A listening socket that a worker found to be of no more use. If it was closed meanwhile, that is why.
#[derive(Debug)]
pub(crate) struct BrokenSocket {
    pub(crate) addr: FrontendAddr,
    /// Weak, so that its address is free as soon as nobody serves it.
    pub(crate) socket: Weak<Socket>,
    pub(crate) error: io::Error,
}

/// A shortage is logged once in so long.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// What everything on one worker shares. Stays on its thread.
pub(crate) struct WorkerContext {
    pub(crate) shared: Shared,
    /// Which worker this is.
    pub(crate) index: usize,
    pub(crate) poller: Poller,
    pub(crate) random: SplitMix64,
    /// For warnings that the machine is short of something, of all listeners together.
    pub(crate) log_throttle: LogThrottle,
    /// What it is doing.
    pub(crate) steps: Steps,
    /// What a watch is told of.
    pub(crate) tally: Rc<TallyCell>,
    /// Those in force.
    settings: Cell<Settings>,
    /// When this turn of the loop began.
    now: Cell<Instant>,
    table: RefCell<Arc<ActiveTable>>,
    /// Grows each time that `table` becomes another.
    table_number: Cell<u64>,
}

impl WorkerContext {
    /// Nothing is open; the random numbers begin with `random`.
    ///
    /// # Errors
    /// As epoll_create(2) and epoll_ctl(2).
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

    /// How long things may take, for what begins now.
    pub(crate) fn timeouts(&self) -> Timeouts {
        self.settings().timeouts
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Settings {
        self.settings.get()
    }

    /// Goes by other settings from now on. What has its own part of them is to be told.
    pub(crate) fn set_settings(&self, settings: Settings) {
        self.settings.set(settings);
    }

    /// When this turn of the loop began: exact enough for timeouts, and no call.
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Begins a turn: what is looked at from now on is of this moment.
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.now.set(now);
        self.refresh_table();
    }

    /// Looks at the latest table from now on, though the turn began before it was there.
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

    /// Which table that is: what was found in one of the same number is still there.
    pub(crate) fn table_number(&self) -> u64 {
        self.table_number.get()
    }

    /// This worker, as others see it.
    pub(crate) fn port(&self) -> &WorkerPort {
        self.shared.ports.of(self.index)
    }

    /// Counts one TCP connection as open until the answer is dropped.
    pub(crate) fn count_open(self: &Rc<Self>) -> OpenCount {
        self.port().opened();
        OpenCount(Rc::clone(self))
    }

    /// Tells that a listening socket is of no more use.
    pub(crate) fn report_broken(&self, addr: FrontendAddr, held: Arc<Socket>, error: io::Error) {
        let socket = Arc::downgrade(&held);
        drop(held);
        if self.shared.broken.send(BrokenSocket { addr, socket, error }).is_err() {
            tracing::debug!(frontend = %addr, "nobody is left to bind it again");
        }
    }
}

/// One open connection.
pub(crate) struct OpenCount(Rc<WorkerContext>);

impl OpenCount {
    /// The worker that serves it.
    pub(crate) fn worker(&self) -> &WorkerContext {
        &self.0
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.port().closed();
    }
}
