//! What workers count: for each frontend by protocol, and at the same time for all frontends that ever were. Any thread that exports
//! metrics reads it.

mod counter;
mod kernel_drops;
mod shed;
mod tcp;
mod udp;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use counter::{CoarseHistogram, Counter, FineHistogram, Histogram};
pub use kernel_drops::KernelDrops;
use sheave_model::{FrontendAddr, Protocol};
pub use shed::{FrontendUse, ShedCounts, ShedReason};
pub use tcp::{CloseReason, TcpCounters, TcpTotals};
pub use udp::{DropReason, Traffic, UdpCounters, UdpTotals};

/// There is one for each frontend and worker.
const _: () = assert!(size_of::<TcpCounters>() <= 224);

/// What all frontends together have had since the start. Frontends that leave take nothing away, so no counter ever falls.
#[derive(Debug)]
pub struct Totals {
    workers: Vec<(Arc<TcpTotals>, Arc<UdpTotals>)>,
    shed: Arc<ShedCounts>,
    /// What the kernel dropped at sockets of frontends, as far as it was read.
    kernel_drops: Arc<AtomicU64>,
    /// At those that steered frontends share.
    steered_drops: Arc<KernelDrops>,
}

impl Totals {
    /// All zero, for so many workers, with what is dropped at the sockets that steered frontends share.
    pub(crate) fn new(workers: usize, steered_drops: Arc<KernelDrops>) -> Self {
        let workers = std::iter::repeat_with(Default::default).take(workers).collect();
        Self { workers, shed: Arc::default(), kernel_drops: Arc::default(), steered_drops }
    }

    /// What each worker counted for TCP frontends.
    pub fn tcp(&self) -> impl Iterator<Item = &TcpTotals> {
        self.workers.iter().map(|(tcp, _)| &**tcp)
    }

    /// What each worker counted for UDP frontends.
    pub fn udp(&self) -> impl Iterator<Item = &UdpTotals> {
        self.workers.iter().map(|(_, udp)| &**udp)
    }

    /// New connections and flows that were not taken.
    pub fn shed(&self) -> &ShedCounts {
        &self.shed
    }

    /// Packets that the kernel dropped at listening sockets, those that steered frontends share included.
    fn kernel_drops(&self) -> u64 {
        self.kernel_drops.load(Ordering::Relaxed) + self.steered_drops.packets()
    }
}

/// Where frontends are counted, for scrapes to look up. It holds no counters: whose are gone has left.
#[derive(Debug, Default)]
pub(crate) struct CounterRegistry(Mutex<HashMap<FrontendAddr, Weak<[FrontendCounters]>>>);

impl CounterRegistry {
    /// The counters of each worker for the frontend; none if it is not there (any more).
    pub(crate) fn get(&self, addr: FrontendAddr) -> Option<Weak<[FrontendCounters]>> {
        self.all().get(&addr).cloned()
    }

    /// Reads what the kernel has dropped at the sockets of all frontends.
    pub(crate) fn kernel_drops(&self, totals: &Totals) -> u64 {
        // Asking the kernel takes a while, and the control loop must not wait for the lock.
        let all: Vec<_> = self.all().values().cloned().collect();
        for counters in all.iter().filter_map(Weak::upgrade) {
            if let Some(first) = counters.first() {
                first.usage().kernel_drops().packets();
            }
        }
        totals.kernel_drops()
    }

    pub(crate) fn insert(&self, addr: FrontendAddr, counters: &Arc<[FrontendCounters]>) {
        self.all().insert(addr, Arc::downgrade(counters));
    }

    pub(crate) fn remove(&self, addr: FrontendAddr) {
        self.all().remove(&addr);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<FrontendAddr, Weak<[FrontendCounters]>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of one frontend on one worker.
#[derive(Clone, Debug)]
pub enum FrontendCounters {
    /// A TCP frontend's.
    Tcp(Arc<TcpCounters>),
    /// A UDP frontend's.
    Udp(Arc<UdpCounters>),
}

impl FrontendCounters {
    /// Those of a TCP frontend.
    pub fn tcp(&self) -> Option<Arc<TcpCounters>> {
        match self {
            Self::Tcp(counters) => Some(Arc::clone(counters)),
            Self::Udp(_) => None,
        }
    }

    /// Those of a UDP frontend.
    pub fn udp(&self) -> Option<Arc<UdpCounters>> {
        match self {
            Self::Udp(counters) => Some(Arc::clone(counters)),
            Self::Tcp(_) => None,
        }
    }

    /// Those of a TCP frontend, to be read.
    pub fn as_tcp(&self) -> Option<&TcpCounters> {
        match self {
            Self::Tcp(counters) => Some(counters),
            Self::Udp(_) => None,
        }
    }

    /// Those of a UDP frontend, to be read.
    pub fn as_udp(&self) -> Option<&UdpCounters> {
        match self {
            Self::Udp(counters) => Some(counters),
            Self::Tcp(_) => None,
        }
    }

    /// Whether a worker still has them for a UDP frontend, and so its sockets.
    pub(crate) fn is_used_for_udp(&self) -> bool {
        matches!(self, Self::Udp(counters) if Arc::strong_count(counters) > 1)
    }

    /// What all workers together have of the frontend.
    pub fn usage(&self) -> &Arc<FrontendUse> {
        match self {
            Self::Tcp(counters) => counters.usage(),
            Self::Udp(counters) => counters.usage(),
        }
    }

    /// Those of a frontend on each worker, all zero. `open` counts what its Service has open.
    pub(crate) fn of_workers(protocol: Protocol, totals: &Totals, open: Arc<AtomicU32>) -> Arc<[Self]> {
        let kernel_drops = KernelDrops::new(Arc::clone(&totals.kernel_drops));
        let usage = Arc::new(FrontendUse::of_service(open, Arc::clone(&totals.shed), kernel_drops));
        let one = |(tcp, udp): &(Arc<TcpTotals>, Arc<UdpTotals>)| match protocol {
            Protocol::Tcp => Self::Tcp(Arc::new(TcpCounters::new(Arc::clone(&usage), Arc::clone(tcp)))),
            Protocol::Udp => Self::Udp(Arc::new(UdpCounters::new(Arc::clone(&usage), Arc::clone(udp)))),
        };
        totals.workers.iter().map(one).collect()
    }
}
