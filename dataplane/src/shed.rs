//! Why new connections and flows are not taken, and how many were not: what workers count, and the control loop reads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sheave_model::FrontendAddr;
use tokio::sync::Notify;

/// Why a new connection or flow is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub enum ShedReason {
    /// The gateway has no room left, or the Service has its share of it.
    Capacity,
    /// The gateway has no memory left, or the Service has its share of it.
    Memory,
    /// The Service has as many open as it may.
    Connections,
    /// The Service got as many within a second as it may.
    ConnectionRate,
    /// The client has as many open to the Service as it may.
    ClientConnections,
    /// The client opened as many within a second as it may.
    ClientConnectionRate,
}

impl ShedReason {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::Capacity,
        Self::Memory,
        Self::Connections,
        Self::ConnectionRate,
        Self::ClientConnections,
        Self::ClientConnectionRate,
    ];

    /// The reason as the value of a label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Memory => "memory",
            Self::Connections => "max_connections",
            Self::ConnectionRate => "max_connection_rate",
            Self::ClientConnections => "max_connections_per_client",
            Self::ClientConnectionRate => "max_connection_rate_per_client",
        }
    }
}

/// How many new connections and flows were not taken, by reason.
#[derive(Debug, Default)]
pub struct ShedCounts([AtomicU64; ShedReason::ALL.len()]);

impl ShedCounts {
    /// Those that were not taken for this reason.
    pub fn get(&self, reason: ShedReason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    fn add(&self, reason: ShedReason, count: u64) {
        self.0[reason as usize].fetch_add(count, Ordering::Relaxed);
    }
}

/// What one frontend's Service has open, and what the frontend was refused, on all workers together.
#[derive(Debug, Default)]
pub struct FrontendUse {
    open: Arc<AtomicU32>,
    shed: ShedCounts,
    /// Where the same is counted for all frontends.
    shed_by_all: Arc<ShedCounts>,
    /// It is among those that the control loop has not looked at since it was last refused something.
    noticed: AtomicBool,
}

impl FrontendUse {
    /// That of a frontend whose Service counts here what it has open.
    pub(crate) fn of_service(open: Arc<AtomicU32>, shed_by_all: Arc<ShedCounts>) -> Self {
        Self { open, shed_by_all, ..Self::default() }
    }

    /// Connections and flows that the Service has open now, by all its frontends: what there is is shared between Services, or
    /// whoever has many ports would get as many shares.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// New ones that were not taken for this reason.
    pub fn shed(&self, reason: ShedReason) -> u64 {
        self.shed.get(reason)
    }

    pub(crate) fn add_shed(&self, reason: ShedReason, count: u64) {
        self.shed.add(reason, count);
        self.shed_by_all.add(reason, count);
    }

    pub(crate) fn add_open(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract_open(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The frontends that were refused something of late.
#[derive(Debug, Default)]
pub(crate) struct Shedding {
    addrs: Mutex<BTreeSet<FrontendAddr>>,
    changed: Notify,
}

impl Shedding {
    /// A frontend was refused a connection, or flow. Locks only if the control loop has looked since the last one.
    pub(crate) fn count(&self, addr: FrontendAddr, usage: &FrontendUse, reason: ShedReason) {
        usage.add_shed(reason, 1);
        if !usage.noticed.load(Ordering::Relaxed) && !usage.noticed.swap(true, Ordering::Relaxed) {
            self.addrs.lock().unwrap_or_else(PoisonError::into_inner).insert(addr);
            self.changed.notify_one();
        }
    }

    /// Waits until a frontend is refused something that was not since it was last [taken](Self::take). Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Those that were refused something since the last call.
    pub(crate) fn take(&self) -> BTreeSet<FrontendAddr> {
        std::mem::take(&mut *self.addrs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wants to know of the next refusal of a frontend.
    pub(crate) fn watch(&self, usage: &FrontendUse) {
        usage.noticed.store(false, Ordering::Relaxed);
    }
}
