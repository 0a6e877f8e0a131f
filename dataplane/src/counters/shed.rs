//! Refused connections and flows, by reason.

use std::sync::Arc;

use super::counter::labelled;
use super::kernel_drops::KernelDrops;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::weak_map::{ServiceId, service_id};
use sheave_model::Frontend;

labelled! {
    /// Reason why a new connection or flow is refused.
    pub enum ShedReason {
        /// The gateway has no room left, or the Service has used its share of it.
        Capacity = "capacity",
        /// The gateway has no memory left, or the Service has used its share of it.
        Memory = "memory",
        /// The Service has its maximum number of open connections.
        Connections = "max_connections",
        /// The Service has reached its rate of new connections.
        ConnectionRate = "max_connection_rate",
        /// The client has its maximum number of open connections to the Service.
        ClientConnections = "max_connections_per_client",
        /// The client has reached its rate of new connections.
        ClientConnectionRate = "max_connection_rate_per_client",
    }
}

/// Number of refused connections and flows by reason.
#[derive(Debug, Default)]
pub struct ShedCounts([AtomicU64; ShedReason::ALL.len()]);

impl ShedCounts {
    /// Number refused for this reason.
    pub fn get(&self, reason: ShedReason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    fn add(&self, reason: ShedReason, count: u64) {
        self.0[reason as usize].fetch_add(count, Ordering::Relaxed);
    }
}

/// Open connections of one frontend's Service, and refusals by the frontend, over all workers.
#[derive(Debug, Default)]
pub struct FrontendUse {
    /// The Service that the frontend belonged to when this began; `None` in totals.
    service: Option<ServiceId>,
    open: Arc<AtomicU32>,
    shed: ShedCounts,
    /// Refusals of all frontends.
    shed_by_all: Arc<ShedCounts>,
    kernel_drops: KernelDrops,
    /// Whether the frontend is among those with refusals that the control loop has not checked yet.
    noticed: AtomicBool,
}

impl FrontendUse {
    /// Creates the use of a frontend of this Service; `open` counts the Service's open connections and flows.
    pub(crate) fn of_service(
        service: ServiceId,
        open: Arc<AtomicU32>,
        shed_by_all: Arc<ShedCounts>,
        kernel_drops: KernelDrops,
    ) -> Self {
        Self { service: Some(service), open, shed_by_all, kernel_drops, ..Self::default() }
    }

    /// Whether what counts here began with another Service than the one that `frontend` belongs to.
    pub(crate) fn is_of_another(&self, frontend: &Frontend) -> bool {
        self.service.as_ref().is_some_and(|service| *service != service_id(frontend))
    }

    /// Number of open connections and flows of the Service over all its frontends. Shares of the gateway are per Service,
    /// since a Service with many ports would otherwise get as many shares.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Number of connections and flows refused for this reason.
    pub fn shed(&self, reason: ShedReason) -> u64 {
        self.shed.get(reason)
    }

    /// Kernel drops at the frontend's own sockets.
    pub fn kernel_drops(&self) -> &KernelDrops {
        &self.kernel_drops
    }

    pub(crate) fn add_shed(&self, reason: ShedReason, count: u64) {
        self.shed.add(reason, count);
        self.shed_by_all.add(reason, count);
    }

    /// Marks the frontend as refusing; returns whether to notify the control loop, which has checked it since its last
    /// refusal.
    pub(crate) fn set_noticed(&self) -> bool {
        !self.noticed.load(Ordering::Relaxed) && !self.noticed.swap(true, Ordering::Release)
    }

    /// Requests a notification of the next refusal, and makes earlier counts visible to the control loop.
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
