//! Frontends for the tests of every crate: one backend of numbered endpoints, both routes over all of them, no affinity.

use std::net::IpAddr;
use std::sync::Arc;

use super::RoutingTable;
use crate::source_ranges::SourceRanges;
use crate::{
    Affinity, Algorithm, Backend, Candidate, ClientSources, Endpoint, EndpointAddr, EndpointState, Frontend,
    FrontendAddr, FrontendKind, FrontendSource, LogSample, PathChoice, Protocol, Route, ServiceLimits,
    ServicePort, ServiceTimeouts, Weight,
};

/// The address of the `number`th frontend.
pub fn frontend_addr(number: u32) -> FrontendAddr {
    FrontendAddr { ip: IpAddr::V4((0xc633_6400 + number).into()), port: 80, protocol: Protocol::Tcp }
}

/// The address of the `number`th endpoint.
pub fn endpoint_addr(number: u32) -> EndpointAddr {
    EndpointAddr::new(IpAddr::V4((0x0a00_0000 + number).into()), 8080)
}

/// The `number`th endpoint: ready, on no node, in no zone.
pub fn endpoint(number: u32, weight: u16) -> Endpoint {
    Endpoint {
        addr: endpoint_addr(number),
        node: "".into(),
        zone: "".into(),
        local: false,
        state: EndpointState::Ready,
        weight: Weight(weight),
    }
}

/// A backend with these endpoints, as pairs of number and weight.
pub fn backend(cluster: &str, weight: u16, endpoints: &[(u32, u16)]) -> Backend {
    let endpoints = endpoints.iter().map(|&(number, weight)| endpoint(number, weight)).collect();
    Backend {
        cluster: cluster.into(),
        weight: Weight(weight),
        priority: 0,
        capacity: 0,
        endpoints,
        lingering: Vec::new(),
    }
}

/// A route over these pairs of backend and endpoint; Reject if there are none.
pub fn route(candidates: impl IntoIterator<Item = (u32, u32)>) -> Route {
    let candidates: Arc<[Candidate]> =
        candidates.into_iter().map(|(backend, endpoint)| Candidate { backend, endpoint }).collect();
    if candidates.is_empty() { Route::Reject } else { Route::Forward(candidates) }
}

/// A frontend over these endpoints, as pairs of number and weight.
pub fn frontend(number: u32, algorithm: Algorithm, endpoints: &[(u32, u16)]) -> Frontend {
    let all = route((0..).take(endpoints.len()).map(|endpoint| (0, endpoint)));
    Frontend {
        addr: frontend_addr(number),
        kind: FrontendKind::LoadBalancer,
        service: ServicePort {
            source: FrontendSource::Service,
            namespace: "shop".into(),
            name: format!("web-{number}").into(),
            port_name: "http".into(),
            protocol: Protocol::Tcp,
        },
        affinity: Affinity::None,
        source_ranges: Arc::new(SourceRanges::default()),
        proxied_by: None,
        client_sources: ClientSources::default(),
        app_protocol: None,
        algorithm,
        algorithm_named: false,
        path: PathChoice::Proxy,
        node_local: false,
        external: all.clone(),
        internal: all,
        limits: ServiceLimits::default(),
        timeouts: ServiceTimeouts::default(),
        logged: LogSample::NONE,
        health: Arc::default(),
        failover: None,
        backends: Arc::new([backend("local", 100, endpoints)]),
    }
}

/// A table of these frontends, of generation 1.
pub fn table(frontends: impl IntoIterator<Item = Frontend>) -> RoutingTable {
    RoutingTable::new(1, frontends.into_iter().map(Arc::new).collect(), Arc::default())
}
