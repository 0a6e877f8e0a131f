//! New connections and flows that were not taken: why, and how many.

use std::sync::Arc;

use super::counter::labelled;
use super::kernel_drops::KernelDrops;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

labelled! {
    /// Why a new connection or flow is not taken.
    pub enum ShedReason {
        /// The gateway has no room left, or the Service has its share of it.
        Capacity = "capacity",
        /// The gateway has no memory left, or the Service has its share of it.
        Memory = "memory",
        /// The Service has as many open as it may.
        Connections = "max_connections",
        /// The Service got as many within a second as it may.
        ConnectionRate = "max_connection_rate",
        /// The client has as many open to the Service as it may.
        ClientConnections = "max_connections_per_client",
        /// The client opened as many within a second as it may.
        ClientConnectionRate = "max_connection_rate_per_client",
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
    kernel_drops: KernelDrops,
    /// It is among those that the control loop has not looked at since it was last refused something.
    noticed: AtomicBool,
}

impl FrontendUse {
    /// That of a frontend whose Service counts here what it has open.
    pub(crate) fn of_service(
        open: Arc<AtomicU32>,
        shed_by_all: Arc<ShedCounts>,
        kernel_drops: KernelDrops,
    ) -> Self {
        Self { open, shed_by_all, kernel_drops, ..Self::default() }
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

    /// What the kernel dropped at the frontend's own sockets.
    pub fn kernel_drops(&self) -> &KernelDrops {
        &self.kernel_drops
    }

    pub(crate) fn add_shed(&self, reason: ShedReason, count: u64) {
        self.shed.add(reason, count);
        self.shed_by_all.add(reason, count);
    }

    /// Whether the control loop is to be notified: it has looked since the frontend was last refused something.
    pub(crate) fn set_noticed(&self) -> bool {
        !self.noticed.load(Ordering::Relaxed) && !self.noticed.swap(true, Ordering::Release)
    }

    /// The control loop wants to be notified of the next refusal, and sees what was counted before the last one.
    pub(crate) fn clear_noticed(&self) {
        self.noticed.swap(false, Ordering::Acquire);
    }

    pub(crate) fn add_open(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract_open(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
