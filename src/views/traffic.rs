//! What was forwarded since the start, in total and for some Services, as `/api/traffic` and the status page show it. The JSON is a
//! contract: keys are added, never renamed.

use std::collections::BTreeMap;

use serde::Serialize;
use sheave_control::api::store::ServiceKey;
use sheave_dataplane::Observer;
use sheave_dataplane::counters::{
    CloseReason, DropReason, FrontendCounters, ShedReason, TcpCounters, UdpCounters,
};
use sheave_model::RoutingTable;

use crate::views::View;
use crate::views::routes::source_name;

/// Ends of connections that nobody asked for. Clients that source ranges leave out are no failure.
const FAILED: [CloseReason; 6] = [
    CloseReason::EndpointReset,
    CloseReason::ConnectFailed,
    CloseReason::NoEndpoint,
    CloseReason::BadProxyHeader,
    CloseReason::OverLimit,
    CloseReason::Memory,
];

/// The same of datagrams; what is [shed](ShedReason) is counted there.
const LOST: [DropReason; 8] = [
    DropReason::NoEndpoint,
    DropReason::NoSocket,
    DropReason::NoPort,
    DropReason::Loop,
    DropReason::Truncated,
    DropReason::SendToEndpoint,
    DropReason::SendToClient,
    DropReason::Draining,
];

/// Counters since the start. Rates are what two of them differ by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrafficView {
    /// Since the start of the process: what rates are over.
    pub(crate) uptime_milliseconds: u64,
    /// Of all frontends, those that have gone included.
    pub(crate) total: TrafficCounts,
    /// Of the Services that were asked for, as far as they have frontends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<ServiceTraffic>,
}

/// What one Service has had on the frontends that it has now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceTraffic {
    /// `namespace/name`.
    pub(crate) service: String,
    /// The kind of the object: `Service` or `MultiClusterService`.
    pub(crate) source: &'static str,
    /// Whose counters these are, sorted. Counters of a frontend outlast a move to another Service, so that there is no rate between
    /// counts of different frontends.
    pub(crate) frontends: Vec<String>,
    /// Packets that the kernel dropped at sockets of these frontends: from clients that source ranges leave out, or because a queue was
    /// full. Steered frontends have none of their own.
    pub(crate) kernel_dropped_packets: u64,
    #[serde(flatten)]
    pub(crate) counts: TrafficCounts,
}

/// Counters of both protocols together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrafficCounts {
    /// TCP connections and UDP flows that were opened.
    pub(crate) opened: u64,
    /// Those that are open.
    pub(crate) open: u64,
    /// From clients to endpoints.
    pub(crate) client_bytes: u64,
    /// From endpoints to clients.
    pub(crate) endpoint_bytes: u64,
    /// Datagrams that were forwarded, in both directions.
    pub(crate) datagrams: u64,
    /// Connections that failed, datagrams that were dropped, and what was refused because there was too much.
    pub(crate) errors: u64,
}

impl View for TrafficView {}

impl TrafficView {
    /// The totals alone.
    pub(crate) fn of_all(uptime_milliseconds: u64, observer: &Observer) -> Self {
        let totals = observer.totals();
        let mut total = TrafficCounts::default();
        totals.tcp().for_each(|of| total.add_tcp(&of.counters));
        totals.udp().for_each(|of| total.add_udp(&of.counters));
        total.errors += ShedReason::ALL.iter().map(|reason| totals.shed().get(*reason)).sum::<u64>();
        Self { uptime_milliseconds, total, services: Vec::new() }
    }

    /// The same, with these Services.
    pub(crate) fn of_services(uptime_milliseconds: u64, observer: &Observer, asked: &[ServiceKey]) -> Self {
        let services = services(observer, observer.table().table(), asked);
        Self { services, ..Self::of_all(uptime_milliseconds, observer) }
    }
}

fn services(observer: &Observer, table: &RoutingTable, asked: &[ServiceKey]) -> Vec<ServiceTraffic> {
    let mut of_services: BTreeMap<&ServiceKey, ServiceTraffic> =
        asked.iter().map(|key| (key, ServiceTraffic::none(key))).collect();
    for frontend in table.frontends() {
        let Some(traffic) = of_services.get_mut(&ServiceKey::from(&frontend.service)) else { continue };
        traffic.frontends.push(frontend.addr.to_string());
        let Some(workers) = observer.counters(frontend.addr).and_then(|weak| weak.upgrade()) else {
            continue;
        };
        traffic.counts.add_frontend(&workers);
        let usage = workers.first().map(FrontendCounters::usage);
        traffic.kernel_dropped_packets += usage.map_or(0, |usage| usage.kernel_drops().packets());
    }
    of_services.into_values().filter(|service| !service.frontends.is_empty()).collect()
}

impl ServiceTraffic {
    fn none(key: &ServiceKey) -> Self {
        Self { service: key.to_string(), source: source_name(key.source), ..Self::default() }
    }
}

impl TrafficCounts {
    /// How many there are.
    pub(crate) const WIDTH: usize = 6;

    /// In the order in which streams send them.
    pub(crate) fn listed(&self) -> [u64; Self::WIDTH] {
        [self.opened, self.open, self.client_bytes, self.endpoint_bytes, self.datagrams, self.errors]
    }

    /// Adds what a frontend has had, by the counters of its workers.
    pub(crate) fn add_frontend(&mut self, workers: &[FrontendCounters]) {
        workers.iter().for_each(|worker| self.add(worker));
        if let Some(worker) = workers.first() {
            self.errors += ShedReason::ALL.iter().map(|reason| worker.usage().shed(*reason)).sum::<u64>();
        }
    }

    fn add(&mut self, worker: &FrontendCounters) {
        if let Some(tcp) = worker.as_tcp() {
            self.add_tcp(tcp);
        }
        if let Some(udp) = worker.as_udp() {
            self.add_udp(udp);
        }
    }

    fn add_tcp(&mut self, counters: &TcpCounters) {
        let closed: u64 = CloseReason::ALL.iter().map(|reason| counters.closed(*reason)).sum();
        let opened = counters.accepted.get();
        self.opened += opened;
        self.open += opened.saturating_sub(closed);
        self.client_bytes += counters.client_bytes.get();
        self.endpoint_bytes += counters.endpoint_bytes.get();
        self.errors += FAILED.iter().map(|reason| counters.closed(*reason)).sum::<u64>();
    }

    fn add_udp(&mut self, counters: &UdpCounters) {
        self.opened += counters.flows_opened.get();
        self.open += counters.flows_active.get();
        self.client_bytes += counters.to_endpoints.bytes.get();
        self.endpoint_bytes += counters.to_clients.bytes.get();
        self.datagrams += counters.to_endpoints.datagrams.get() + counters.to_clients.datagrams.get();
        self.errors += counters.endpoint_errors.get();
        self.errors += LOST.iter().map(|reason| counters.dropped(*reason)).sum::<u64>();
    }
}
