//! Counters of each endpoint of each Service: new and open connections and flows, and their bytes while there is a viewer.

use std::cmp::Ordering;

use serde::Serialize;
use sheave_dataplane::Observer;
use sheave_dataplane::select::ActiveTable;
use sheave_model::{Backend, Endpoint, EndpointAddr, EndpointState, Frontend, FrontendAddr};

use super::Counted;
use super::numbered::Label;
use crate::views::routes::{row_name, source_name};

/// Endpoint of a Service, in one of its clusters.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct EndpointLabel {
    service: String,
    source: &'static str,
    cluster: String,
    endpoint: String,
    /// The worst state in any frontend.
    state: EndpointCondition,
    /// Reason for being unhealthy.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    node: String,
}

/// State of an endpoint, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
enum EndpointCondition {
    Unhealthy,
    Terminating,
    /// Gets no new connections; open ones continue.
    Leaving,
    Ready,
}

impl EndpointLabel {
    /// Label of an endpoint of a frontend. If that is split, the endpoint belongs to the Service of its first part that has it.
    fn new(frontend: &Frontend, addr: EndpointAddr, table: &ActiveTable) -> Self {
        let has = |pool: &Frontend| pool.backends.iter().any(|backend| find(backend, addr).is_some());
        let pool = frontend.pools().find(|pool| has(pool)).unwrap_or(frontend);
        let health = table.health().of(&pool.service);
        let found = pool.backends.iter().find_map(|backend| Some(backend).zip(find(backend, addr)));
        let unhealthy = health.and_then(|health| health.reason(addr));
        let endpoint = found.and_then(|(_, endpoint)| endpoint);
        let state = match endpoint.map(|endpoint| endpoint.state) {
            None => EndpointCondition::Leaving,
            Some(_) if unhealthy.is_some() => EndpointCondition::Unhealthy,
            Some(EndpointState::Ready) => EndpointCondition::Ready,
            Some(EndpointState::Terminating) => EndpointCondition::Terminating,
        };
        let why = unhealthy.filter(|_| state == EndpointCondition::Unhealthy);
        Self {
            service: row_name(&pool.service),
            source: source_name(pool.service.source),
            cluster: found.map(|(backend, _)| backend.cluster.as_ref().to_owned()).unwrap_or_default(),
            endpoint: addr.to_string(),
            state,
            why: why.map(|why| why.as_ref().to_owned()).unwrap_or_default(),
            node: endpoint.map(|endpoint| endpoint.node.as_ref().to_owned()).unwrap_or_default(),
        }
    }

    fn key(&self) -> (&str, &str, &str, &str) {
        (&self.service, self.source, &self.cluster, &self.endpoint)
    }
}

/// The endpoint with this address, if the backend has it; without its facts if it only lingers.
fn find(backend: &Backend, addr: EndpointAddr) -> Option<Option<&Endpoint>> {
    match backend.endpoints.binary_search_by_key(&addr, |endpoint| endpoint.addr) {
        Ok(at) => Some(backend.endpoints.get(at)),
        Err(_) => backend.lingering.contains(&addr).then_some(None),
    }
}

impl Label for EndpointLabel {
    const EVENT: &'static str = "endpointTraffic";
    const WIDTH: usize = 4;

    fn compare_keys(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Counted for EndpointLabel {
    fn labels(table: &ActiveTable) -> Vec<(Self, FrontendAddr)> {
        let mut labels = Vec::new();
        for frontend in table.table().frontends() {
            let Some(active) = table.get(frontend.addr) else { continue };
            let label = |addr| (Self::new(frontend, addr, table), frontend.addr);
            labels.extend(active.loads().map(|(addr, _)| label(addr)));
        }
        labels
    }

    fn counts(_: &Observer, table: &ActiveTable, places: &[usize], rows: usize) -> Vec<u64> {
        let mut counts = vec![0; rows * Self::WIDTH];
        let frontends = table.table().frontends().iter();
        let loads = frontends.filter_map(|frontend| table.get(frontend.addr)).flat_map(|it| it.loads());
        for ((_, load), place) in loads.zip(places) {
            let first = *place * Self::WIDTH;
            let listed = [load.picks(), load.active().into(), load.client_bytes(), load.endpoint_bytes()];
            counts[first..].iter_mut().zip(listed).for_each(|(sum, count)| *sum += count);
        }
        counts
    }
}
