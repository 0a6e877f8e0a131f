//! Counters of one UDP frontend on one worker.

use std::sync::Arc;

use super::counter::{Counter, labelled};
use super::shed::{FrontendUse, ShedReason};

/// Traffic in one direction.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Datagrams that the kernel accepted.
    pub datagrams: Counter,
    /// Payload bytes of those.
    pub bytes: Counter,
}

labelled! {
    /// Reason why datagrams were not forwarded.
    pub enum DropReason {
        /// A new flow was needed, and the worker has its maximum of flows, all of them busy.
        FlowLimit = "flow_limit",
        /// A new flow was needed, and memory has run out.
        NoMemory = "no_memory",
        /// A new flow was needed, and the Service has its maximum of flows.
        MaxConnections = "max_connections",
        /// A new flow was needed, and the Service has reached its rate of new flows.
        MaxConnectionRate = "max_connection_rate",
        /// A new flow was needed, and the client has its maximum of flows to the Service.
        MaxConnectionsPerClient = "max_connections_per_client",
        /// A new flow was needed, and the client has reached its rate of new flows.
        MaxConnectionRatePerClient = "max_connection_rate_per_client",
        /// A new flow was needed, and the frontend does not accept any: it is draining or being removed.
        Draining = "draining",
        /// No endpoint serves, or the frontend has left the table.
        NoEndpoint = "no_endpoint",
        /// The part of a split that was chosen for this client has no backend that can be served.
        InvalidBackend = "invalid_backend",
        /// The source ranges exclude this client, but the kernel admitted it: its filter may be wider, or the ranges were narrowed
        /// meanwhile.
        Denied = "denied",
        /// Endpoints exist, but the policy allows none of them here.
        Policy = "policy",
        /// No socket towards the endpoint could be opened: descriptors have run out, or there is no route.
        NoSocket = "no_socket",
        /// A new flow was needed, and all local ports towards the endpoints are in use by busy flows.
        NoPort = "no_port",
        /// The sender is a UDP frontend of this gateway, so that answers would loop; or a new flow was needed for a datagram that has
        /// passed several flows of this process already.
        Loop = "loop",
        /// Arrived at a flow's socket, but not from its endpoint.
        Stranger = "stranger",
        /// Longer than any UDP datagram can be: received truncated, so not forwarded.
        Truncated = "truncated",
        /// The kernel did not accept it for sending to the endpoint.
        SendToEndpoint = "send_to_endpoint",
        /// The kernel did not accept it for sending to the client.
        SendToClient = "send_to_client",
    }
}

impl DropReason {
    /// The reason for which a new flow was refused, if that is the cause.
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

/// Totals of one worker over all UDP frontends, including those that have left. They are written all the time, so they share no cache
/// line with another worker's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UdpTotals {
    /// Sums; their usage belongs to no frontend.
    pub counters: UdpCounters,
}

/// Counters of one UDP frontend on one worker.
#[derive(Debug, Default)]
pub struct UdpCounters {
    usage: Arc<FrontendUse>,
    /// The worker's totals of all frontends; `None` in the totals themselves.
    totals: Option<Arc<UdpTotals>>,
    /// Traffic from clients to endpoints.
    pub to_endpoints: Traffic,
    /// Traffic from endpoints to clients.
    pub to_clients: Traffic,
    /// Flows opened by the worker since the start.
    pub flows_opened: Counter,
    /// Flows that the kernel has forwarded, whose ends are not known. Written by the thread that reads what the kernel counts, and not by
    /// the worker.
    pub carried: Counter,
    /// Open flows.
    pub flows_active: Counter,
    /// Flows that were evicted for others.
    pub flows_evicted: Counter,
    /// Number of times that a flow moved to another endpoint.
    pub flows_repicked: Counter,
    /// Number of times that an endpoint was reported unreachable (ICMP) or could not be reached when sending.
    pub endpoint_errors: Counter,
    /// Number of times that a flow was opened whose endpoint should see the client's address but sees the gateway's.
    pub source_lost: Counter,
    dropped: [Counter; DropReason::ALL.len()],
}

impl UdpCounters {
    /// Counters of zero for one of the workers that share `usage`.
    pub(crate) fn new(usage: Arc<FrontendUse>, totals: Arc<UdpTotals>) -> Self {
        Self { usage, totals: Some(totals), ..Self::default() }
    }

    /// Use of the frontend over all workers.
    pub fn usage(&self) -> &Arc<FrontendUse> {
        &self.usage
    }

    /// Number of flows opened, on either path.
    pub fn opened(&self) -> u64 {
        self.flows_opened.get() + self.carried.get()
    }

    /// Number of datagrams that were not forwarded for this reason.
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
