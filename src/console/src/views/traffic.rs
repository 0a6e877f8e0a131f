//! Traffic since the start, in total and for some Services, for `/api/traffic` and the status page. JSON keys may be added, but are
//! never renamed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use sheave_control::api::store::ServiceKey;
use sheave_dataplane::Observer;
use sheave_dataplane::counters::{
    CloseReason, DropReason, FrontendCounters, ShedReason, TcpCounters, UdpCounters,
};
use sheave_model::{FrontendSource, RoutingTable, ServicePort};

use crate::views::View;
use crate::views::explain::parse_service;
use crate::views::routes::source_name;

/// Failures of connections. Clients that source ranges exclude are not failures; those over a limit are counted as [shed](ShedReason).
const FAILED: [CloseReason; 9] = [
    CloseReason::EndpointReset,
    CloseReason::ConnectFailed,
    CloseReason::NoEndpoint,
    CloseReason::InvalidBackend,
    CloseReason::BadProxyHeader,
    CloseReason::BadClientHello,
    CloseReason::NoServerName,
    CloseReason::NoRoute,
    CloseReason::Memory,
];

/// Failures of datagrams; [shed](ShedReason) ones are counted separately.
const LOST: [DropReason; 9] = [
    DropReason::NoEndpoint,
    DropReason::InvalidBackend,
    DropReason::NoSocket,
    DropReason::NoPort,
    DropReason::Loop,
    DropReason::Truncated,
    DropReason::SendToEndpoint,
    DropReason::SendToClient,
    DropReason::Draining,
];

/// What has traffic of its own: a Service, or a listener of a Gateway. Displays as in rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrafficKey {
    pub(crate) object: ServiceKey,
    /// Name of the listener of a Gateway.
    pub(crate) listener: Option<Arc<str>>,
}

impl TrafficKey {
    /// Parses `namespace/gateway/listener`. Without a listener, which a row of Problems lacks, there is no traffic. The name of a
    /// ListenerSet's listener begins with that of the set.
    pub(crate) fn of_listener(text: &str) -> Result<Self, String> {
        let mut words = text.splitn(3, '/');
        let (namespace, gateway) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let key = parse_service(&format!("{namespace}/{gateway}"))?;
        let object = ServiceKey::gateway(&key.namespace, &key.name);
        Ok(Self { object, listener: words.next().map(Into::into) })
    }
}

/// Key of a Service, which has no listeners.
impl From<ServiceKey> for TrafficKey {
    fn from(object: ServiceKey) -> Self {
        Self { object, listener: None }
    }
}

impl From<&ServicePort> for TrafficKey {
    fn from(service: &ServicePort) -> Self {
        let listener = (service.source == FrontendSource::Gateway).then(|| Arc::clone(&service.port_name));
        Self { object: service.into(), listener }
    }
}

impl fmt::Display for TrafficKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object)?;
        self.listener.as_ref().map_or(Ok(()), |listener| write!(f, "/{listener}"))
    }
}

/// Counters since the start. Rates are the difference of two such views.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrafficView {
    /// Milliseconds since the start of the process, for rates.
    pub(crate) uptime_milliseconds: u64,
    /// Sum over all frontends, including removed ones.
    pub(crate) total: TrafficCounts,
    /// The requested Services, as far as they have frontends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<ServiceTraffic>,
}

/// Traffic of one Service on its current frontends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceTraffic {
    /// `namespace/name`; for a listener `namespace/gateway/listener`.
    pub(crate) service: String,
    /// Kind of the object: `Service`, `MultiClusterService` or `Gateway`.
    pub(crate) source: &'static str,
    /// Frontends whose counters are included, sorted. A frontend keeps its counters when it moves to another Service, so counts of
    /// different frontends give no rate.
    pub(crate) frontends: Vec<String>,
    /// Packets that the kernel dropped at sockets of these frontends: from clients that source ranges exclude, or because a queue was
    /// full. Steered frontends have no sockets of their own.
    pub(crate) kernel_dropped_packets: u64,
    #[serde(flatten)]
    pub(crate) counts: TrafficCounts,
}

/// Counters of both protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrafficCounts {
    /// Opened TCP connections and UDP flows.
    pub(crate) opened: u64,
    /// Open TCP connections and UDP flows.
    pub(crate) open: u64,
    /// Bytes from clients to endpoints.
    pub(crate) client_bytes: u64,
    /// Bytes from endpoints to clients.
    pub(crate) endpoint_bytes: u64,
    /// Forwarded datagrams, in both directions.
    pub(crate) datagrams: u64,
    /// Failed connections, dropped datagrams, and what was refused because of a limit.
    pub(crate) errors: u64,
}

impl View for TrafficView {}

impl TrafficView {
    /// Totals only.
    pub(crate) fn of_all(uptime_milliseconds: u64, observer: &Observer) -> Self {
        let totals = observer.totals();
        let mut total = TrafficCounts::default();
        totals.tcp().for_each(|of| total.add_tcp(&of.counters));
        totals.udp().for_each(|of| total.add_udp(&of.counters));
        total.errors += ShedReason::ALL.iter().map(|reason| totals.shed().get(*reason)).sum::<u64>();
        Self { uptime_milliseconds, total, services: Vec::new() }
    }

    /// Totals and these Services.
    pub(crate) fn of_services(uptime_milliseconds: u64, observer: &Observer, asked: &[TrafficKey]) -> Self {
        let services = services(observer, observer.table().table(), asked);
        Self { services, ..Self::of_all(uptime_milliseconds, observer) }
    }
}

fn services(observer: &Observer, table: &RoutingTable, asked: &[TrafficKey]) -> Vec<ServiceTraffic> {
    let mut of_services: BTreeMap<&TrafficKey, ServiceTraffic> =
        asked.iter().map(|key| (key, ServiceTraffic::none(key))).collect();
    for frontend in table.frontends() {
        let Some(traffic) = of_services.get_mut(&TrafficKey::from(&frontend.service)) else { continue };
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
    fn none(key: &TrafficKey) -> Self {
        Self { service: key.to_string(), source: source_name(key.object.source), ..Self::default() }
    }
}

impl TrafficCounts {
    /// Number of counters.
    pub(crate) const WIDTH: usize = 6;

    /// Counters in the order of the event stream.
    pub(crate) fn listed(&self) -> [u64; Self::WIDTH] {
        [self.opened, self.open, self.client_bytes, self.endpoint_bytes, self.datagrams, self.errors]
    }

    /// Adds the counters of a frontend's workers.
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
        let accepted = counters.accepted.get();
        self.opened += counters.opened();
        self.open += accepted.saturating_sub(closed);
        self.client_bytes += counters.client_bytes.get();
        self.endpoint_bytes += counters.endpoint_bytes.get();
        self.errors += FAILED.iter().map(|reason| counters.closed(*reason)).sum::<u64>();
    }

    fn add_udp(&mut self, counters: &UdpCounters) {
        self.opened += counters.opened();
        self.open += counters.flows_active.get();
        self.client_bytes += counters.to_endpoints.bytes.get();
        self.endpoint_bytes += counters.to_clients.bytes.get();
        self.datagrams += counters.to_endpoints.datagrams.get() + counters.to_clients.datagrams.get();
        self.errors += counters.endpoint_errors.get();
        self.errors += LOST.iter().map(|reason| counters.dropped(*reason)).sum::<u64>();
    }
}
