//! What one worker has done for one UDP frontend: plain relaxed atomics, written by that worker and read by whoever
//! reports.
//!
//! It must not know how they are exported.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shed::{FrontendUse, ShedReason};

/// One number. Only its worker writes it, so relaxed order is enough: a reader wants a recent value, nothing more.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, amount: usize) {
        if amount > 0 {
            self.0.fetch_add(amount as u64, Ordering::Relaxed);
        }
    }

    fn subtract(&self, amount: usize) {
        self.0.fetch_sub(amount as u64, Ordering::Relaxed);
    }
}

/// Traffic in one direction.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Datagrams handed to the kernel.
    pub datagrams: Counter,
    /// Their payload.
    pub bytes: Counter,
}

/// Why datagrams were not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Would have opened a flow, and the worker has as many as it may, all of them busy.
    FlowLimit,
    /// Would have opened a flow, and there is no memory for more.
    NoMemory,
    /// Would have opened a flow, and the Service has as many as it may.
    MaxConnections,
    /// Would have opened a flow, and the Service got as many within a second as it may.
    MaxConnectionRate,
    /// Would have opened a flow, and the client has as many to the Service as it may.
    MaxConnectionsPerClient,
    /// Would have opened a flow, and the client opened as many within a second as it may.
    MaxConnectionRatePerClient,
    /// Would have opened a flow while the frontend takes none: it drains or retires.
    Draining,
    /// No endpoint serves, or the frontend has left the table.
    NoEndpoint,
    /// The source ranges leave this client out, and the kernel let it in: its filter may be wider, or the ranges were narrowed
    /// meanwhile.
    Denied,
    /// Endpoints exist, but the policy allows none of them here.
    Policy,
    /// No socket towards the endpoint could be made (descriptors have run out, or there is no route).
    NoSocket,
    /// Would have opened a flow, and all local ports towards its endpoints are in use by flows that are busy.
    NoPort,
    /// Came from a UDP frontend of this gateway: the answer would come back, for ever.
    Loop,
    /// Came to a flow's socket, but not from its endpoint.
    Stranger,
    /// Longer than any UDP datagram can be: received cut, so not forwarded.
    Truncated,
    /// The kernel did not take it towards the endpoint.
    SendToEndpoint,
    /// The kernel did not take it towards the client.
    SendToClient,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 17] = [
        Self::FlowLimit,
        Self::NoMemory,
        Self::MaxConnections,
        Self::MaxConnectionRate,
        Self::MaxConnectionsPerClient,
        Self::MaxConnectionRatePerClient,
        Self::Draining,
        Self::NoEndpoint,
        Self::Denied,
        Self::Policy,
        Self::NoSocket,
        Self::NoPort,
        Self::Loop,
        Self::Stranger,
        Self::Truncated,
        Self::SendToEndpoint,
        Self::SendToClient,
    ];

    /// The reason as the value of a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FlowLimit => "flow_limit",
            Self::NoMemory => "no_memory",
            Self::MaxConnections => ShedReason::Connections.label(),
            Self::MaxConnectionRate => ShedReason::ConnectionRate.label(),
            Self::MaxConnectionsPerClient => ShedReason::ClientConnections.label(),
            Self::MaxConnectionRatePerClient => ShedReason::ClientConnectionRate.label(),
            Self::Draining => "draining",
            Self::NoEndpoint => "no_endpoint",
            Self::Denied => "denied",
            Self::Policy => "policy",
            Self::NoSocket => "no_socket",
            Self::NoPort => "no_port",
            Self::Loop => "loop",
            Self::Stranger => "stranger",
            Self::Truncated => "truncated",
            Self::SendToEndpoint => "send_to_endpoint",
            Self::SendToClient => "send_to_client",
        }
    }

    /// What a new flow was refused for, if that was it.
    pub(super) fn shed_reason(self) -> Option<ShedReason> {
        ShedReason::ALL.into_iter().find(|shed| Self::from(*shed) == self)
    }
}

impl From<ShedReason> for DropReason {
    fn from(reason: ShedReason) -> Self {
        match reason {
            ShedReason::Capacity => Self::FlowLimit,
            ShedReason::Memory => Self::NoMemory,
            ShedReason::Connections => Self::MaxConnections,
            ShedReason::ConnectionRate => Self::MaxConnectionRate,
            ShedReason::ClientConnections => Self::MaxConnectionsPerClient,
            ShedReason::ClientConnectionRate => Self::MaxConnectionRatePerClient,
        }
    }
}

/// What one worker has counted for all UDP frontends together, those that have left included. It is written all the time, so it
/// shares no cache line with another worker's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UdpTotals {
    /// Sums; the usage is nobody's.
    pub counters: UdpCounters,
}

/// Counters of one UDP frontend on one worker.
#[derive(Debug, Default)]
pub struct UdpCounters {
    usage: Arc<FrontendUse>,
    /// Where the worker counts the same for all; none in totals themselves.
    totals: Option<Arc<UdpTotals>>,
    /// From clients to endpoints.
    pub to_endpoints: Traffic,
    /// From endpoints to clients.
    pub to_clients: Traffic,
    /// Flows opened since the start.
    pub flows_opened: Counter,
    /// Flows open now.
    pub flows_active: Counter,
    /// Flows that ended early because others needed the room.
    pub flows_evicted: Counter,
    /// Times that a flow was given another endpoint.
    pub flows_repicked: Counter,
    /// Times that an endpoint was reported unreachable (ICMP) or could not be sent to.
    pub endpoint_errors: Counter,
    /// Times that a flow was given an endpoint that was to see the client's address and sees the gateway's.
    pub source_lost: Counter,
    dropped: [Counter; DropReason::ALL.len()],
}

impl UdpCounters {
    /// All zero, for one of the workers that share `usage`.
    pub(crate) fn new(usage: Arc<FrontendUse>, totals: Arc<UdpTotals>) -> Self {
        Self { usage, totals: Some(totals), ..Self::default() }
    }

    /// What all workers together have of the frontend.
    pub fn usage(&self) -> &Arc<FrontendUse> {
        &self.usage
    }

    /// Datagrams that were not forwarded for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].get()
    }

    pub(super) fn count_dropped(&self, reason: DropReason, datagrams: usize) {
        self.add(|it| &it.dropped[reason as usize], datagrams);
    }

    pub(super) fn add(&self, counter: impl Fn(&Self) -> &Counter, amount: usize) {
        counter(self).add(amount);
        if let Some(totals) = &self.totals {
            counter(&totals.counters).add(amount);
        }
    }

    /// For what counts what there is, not what there was.
    pub(super) fn subtract(&self, counter: impl Fn(&Self) -> &Counter, amount: usize) {
        counter(self).subtract(amount);
        if let Some(totals) = &self.totals {
            counter(&totals.counters).subtract(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drop_reason_has_its_own_slot_and_label() {
        let mut labels: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.as_str()).collect();
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), DropReason::ALL.len());
    }
}
