//! What one worker counts for one UDP frontend.

use std::sync::Arc;

use super::counter::{Counter, labelled};
use super::shed::{FrontendUse, ShedReason};

/// Traffic in one direction.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Datagrams handed to the kernel.
    pub datagrams: Counter,
    /// Their payload.
    pub bytes: Counter,
}

labelled! {
    /// Why datagrams were not forwarded.
    pub enum DropReason {
        /// Would have opened a flow, and the worker has as many as it may, all of them busy.
        FlowLimit = "flow_limit",
        /// Would have opened a flow, and there is no memory for more.
        NoMemory = "no_memory",
        /// Would have opened a flow, and the Service has as many as it may.
        MaxConnections = "max_connections",
        /// Would have opened a flow, and the Service got as many within a second as it may.
        MaxConnectionRate = "max_connection_rate",
        /// Would have opened a flow, and the client has as many to the Service as it may.
        MaxConnectionsPerClient = "max_connections_per_client",
        /// Would have opened a flow, and the client opened as many within a second as it may.
        MaxConnectionRatePerClient = "max_connection_rate_per_client",
        /// Would have opened a flow while the frontend takes none: it drains or retires.
        Draining = "draining",
        /// No endpoint serves, or the frontend has left the table.
        NoEndpoint = "no_endpoint",
        /// The source ranges leave this client out, and the kernel let it in: its filter may be wider, or the ranges were narrowed
        /// meanwhile.
        Denied = "denied",
        /// Endpoints exist, but the policy allows none of them here.
        Policy = "policy",
        /// No socket towards the endpoint could be made (descriptors have run out, or there is no route).
        NoSocket = "no_socket",
        /// Would have opened a flow, and all local ports towards its endpoints are in use by flows that are busy.
        NoPort = "no_port",
        /// Came from a UDP frontend of this gateway, so that the answer would come back, for ever; or would have opened a flow, and has
        /// passed several of this process already.
        Loop = "loop",
        /// Came to a flow's socket, but not from its endpoint.
        Stranger = "stranger",
        /// Longer than any UDP datagram can be: received cut, so not forwarded.
        Truncated = "truncated",
        /// The kernel did not take it towards the endpoint.
        SendToEndpoint = "send_to_endpoint",
        /// The kernel did not take it towards the client.
        SendToClient = "send_to_client",
    }
}

impl DropReason {
    /// What a new flow was refused for, if that was it.
    pub(crate) fn shed_reason(self) -> Option<ShedReason> {
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

    pub(crate) fn count_dropped(&self, reason: DropReason, datagrams: usize) {
        self.add(|it| &it.dropped[reason as usize], datagrams);
    }

    pub(crate) fn add(&self, counter: impl Fn(&Self) -> &Counter, amount: usize) {
        if amount == 0 {
            return;
        }
        counter(self).add(amount as u64);
        if let Some(totals) = &self.totals {
            counter(&totals.counters).add(amount as u64);
        }
    }

    pub(crate) fn add_flow(&self) {
        self.add(|it| &it.flows_active, 1);
        self.usage.add_open();
    }

    pub(crate) fn subtract_flow(&self) {
        self.flows_active.subtract(1);
        if let Some(totals) = &self.totals {
            totals.counters.flows_active.subtract(1);
        }
        self.usage.subtract_open();
    }
}
