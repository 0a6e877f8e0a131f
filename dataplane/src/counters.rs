//! Counters of workers: for each frontend by protocol, and in parallel for all frontends that ever existed. Any thread that exports
//! metrics reads them.

mod counter;
mod kernel_drops;
mod shed;
mod tcp;
mod udp;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::weak_map::ServiceId;
pub use counter::{CoarseHistogram, Counter, FineHistogram, Histogram};
pub use kernel_drops::KernelDrops;
use sheave_model::{FrontendAddr, Protocol};
pub use shed::{FrontendUse, ShedCounts, ShedReason};
pub use tcp::{CloseReason, TcpCounters, TcpTotals};
pub use udp::{DropReason, Traffic, UdpCounters, UdpTotals};

/// Size per frontend and worker.
const _: () = assert!(size_of::<TcpCounters>() <= 264);

/// Totals of all frontends since the start. Frontends that leave are not subtracted, so no counter ever decreases.
#[derive(Debug)]
pub struct Totals {
    workers: Vec<(Arc<TcpTotals>, Arc<UdpTotals>)>,
    shed: Arc<ShedCounts>,
    /// Kernel drops at sockets of frontends, as of the last read.
    kernel_drops: Arc<AtomicU64>,
    /// Kernel drops at the sockets that steered frontends share.
    steered_drops: Arc<KernelDrops>,
}

impl Totals {
    /// Creates totals of zero for `workers` workers; `steered_drops` counts at the sockets that steered frontends share.
    pub(crate) fn new(workers: usize, steered_drops: Arc<KernelDrops>) -> Self {
        let workers = std::iter::repeat_with(Default::default).take(workers).collect();
        Self { workers, shed: Arc::default(), kernel_drops: Arc::default(), steered_drops }
    }

    /// Totals of TCP frontends by worker.
    pub fn tcp(&self) -> impl Iterator<Item = &TcpTotals> {
        self.workers.iter().map(|(tcp, _)| &**tcp)
    }

    /// Totals of UDP frontends by worker.
    pub fn udp(&self) -> impl Iterator<Item = &UdpTotals> {
        self.workers.iter().map(|(_, udp)| &**udp)
    }

    /// Numbers of new connections and flows that were refused.
    pub fn shed(&self) -> &ShedCounts {
        &self.shed
    }

    /// Number of packets that the kernel dropped at listening sockets, including those that steered frontends share.
    fn kernel_drops(&self) -> u64 {
        self.kernel_drops.load(Ordering::Relaxed) + self.steered_drops.packets()
    }
}

/// Counters by frontend, for scrapes. It keeps only weak references, so it does not extend the life of counters.
#[derive(Debug, Default)]
pub(crate) struct CounterRegistry(Mutex<HashMap<FrontendAddr, Weak<[FrontendCounters]>>>);

impl CounterRegistry {
    /// The frontend's counters by worker; `None` if there is no such frontend.
    pub(crate) fn get(&self, addr: FrontendAddr) -> Option<Weak<[FrontendCounters]>> {
        self.all().get(&addr).cloned()
    }

    /// Reads the kernel drops at the sockets of all frontends.
    pub(crate) fn kernel_drops(&self, totals: &Totals) -> u64 {
        // Copied, since asking the kernel takes a while, and the control loop must not wait for the lock.
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
    /// Counters of a TCP frontend.
    Tcp(Arc<TcpCounters>),
    /// Counters of a UDP frontend.
    Udp(Arc<UdpCounters>),
}

impl FrontendCounters {
    /// The counters of a TCP frontend.
    pub fn tcp(&self) -> Option<Arc<TcpCounters>> {
        match self {
            Self::Tcp(counters) => Some(Arc::clone(counters)),
            Self::Udp(_) => None,
        }
    }

    /// The counters of a UDP frontend.
    pub fn udp(&self) -> Option<Arc<UdpCounters>> {
        match self {
            Self::Udp(counters) => Some(Arc::clone(counters)),
            Self::Tcp(_) => None,
        }
    }

    /// The counters of a TCP frontend, borrowed.
    pub fn as_tcp(&self) -> Option<&TcpCounters> {
        match self {
            Self::Tcp(counters) => Some(counters),
            Self::Udp(_) => None,
        }
    }

    /// The counters of a UDP frontend, borrowed.
    pub fn as_udp(&self) -> Option<&UdpCounters> {
        match self {
            Self::Udp(counters) => Some(counters),
            Self::Tcp(_) => None,
        }
    }

    /// Whether a worker still references the counters of a UDP frontend, and so may have its sockets.
    pub(crate) fn is_used_for_udp(&self) -> bool {
        matches!(self, Self::Udp(counters) if Arc::strong_count(counters) > 1)
    }

    /// Use of the frontend over all workers.
    pub fn usage(&self) -> &Arc<FrontendUse> {
        match self {
            Self::Tcp(counters) => counters.usage(),
            Self::Udp(counters) => counters.usage(),
        }
    }

    /// Creates the counters of this Service's frontend for each worker, all zero. `open` counts the Service's open connections and flows.
    pub(crate) fn of_workers(
        protocol: Protocol,
        totals: &Totals,
        service: ServiceId,
        open: Arc<AtomicU32>,
    ) -> Arc<[Self]> {
        let kernel_drops = KernelDrops::new(Arc::clone(&totals.kernel_drops));
        let usage = Arc::new(FrontendUse::of_service(service, open, Arc::clone(&totals.shed), kernel_drops));
        let one = |(tcp, udp): &(Arc<TcpTotals>, Arc<UdpTotals>)| match protocol {
            Protocol::Tcp => Self::Tcp(Arc::new(TcpCounters::new(Arc::clone(&usage), Arc::clone(tcp)))),
            Protocol::Udp => Self::Udp(Arc::new(UdpCounters::new(Arc::clone(&usage), Arc::clone(udp)))),
        };
        totals.workers.iter().map(one).collect()
    }
}
