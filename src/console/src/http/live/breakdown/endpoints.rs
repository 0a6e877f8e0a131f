//! Counters of each endpoint of each Service: new and open connections and flows, and their bytes while there is a viewer.

use std::cmp::Ordering;

use serde::Serialize;
use sheave_dataplane::Observer;
use sheave_dataplane::select::{ActiveTable, ServiceHealth};
use sheave_model::{EndpointAddr, EndpointState, Frontend, FrontendAddr};

use super::Counted;
use super::numbered::Label;
use crate::views::routes::source_name;

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
    fn new(frontend: &Frontend, addr: EndpointAddr, health: Option<&ServiceHealth>) -> Self {
        let found = frontend.backends.iter().find_map(|backend| {
            let at = backend.endpoints.binary_search_by_key(&addr, |endpoint| endpoint.addr).ok();
            match at {
                Some(at) => Some((backend, Some(&backend.endpoints[at]))),
                None => backend.lingering.contains(&addr).then_some((backend, None)),
            }
        });
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
            service: frontend.service.to_string(),
            source: source_name(frontend.service.source),
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
            let health = table.health().of(&frontend.service);
            let label = |addr| (Self::new(frontend, addr, health), frontend.addr);
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
