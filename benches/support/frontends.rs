//! Frontends for the benches: numbered, each with its own run of endpoints.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use sheave_model::{
    Affinity, Algorithm, Backend, Candidate, ClientSources, Endpoint, EndpointAddr, EndpointState, Frontend,
    FrontendAddr, FrontendKind, FrontendSource, Protocol, Route, RoutingTable, ServiceLimits, ServicePort,
    ServiceTimeouts, SourceRanges, Weight,
};

/// The address of the `number`th frontend.
pub(crate) fn frontend_addr(number: u32) -> FrontendAddr {
    let ip = IpAddr::V4(Ipv4Addr::from(0xc612_0000 + number));
    FrontendAddr { ip, port: 80, protocol: Protocol::Tcp }
}

/// The address of the `number`th endpoint.
pub(crate) fn endpoint_addr(number: u32) -> EndpointAddr {
    EndpointAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)), 8080)
}

fn endpoint(number: u32) -> Endpoint {
    Endpoint {
        addr: endpoint_addr(number),
        node: "node".into(),
        zone: "zone".into(),
        local: false,
        state: EndpointState::Ready,
        weight: Weight::default(),
    }
}

/// A frontend with that many endpoints.
pub(crate) fn frontend(number: u32, algorithm: Algorithm, affinity: Affinity, endpoints: u32) -> Frontend {
    let candidates: Arc<[Candidate]> =
        (0..endpoints).map(|endpoint| Candidate { backend: 0, endpoint }).collect();
    let first = number * 16;
    let backend = Backend {
        cluster: "local".into(),
        weight: Weight::default(),
        priority: 0,
        capacity: 0,
        remote: false,
        lingering: Vec::new(),
        endpoints: (first..first + endpoints).map(endpoint).collect(),
    };
    Frontend {
        addr: frontend_addr(number),
        kind: FrontendKind::LoadBalancer,
        service: ServicePort {
            namespace: "bench".into(),
            name: format!("service-{number}").into(),
            port_name: "http".into(),
            protocol: Protocol::Tcp,
        },
        source: FrontendSource::Service,
        affinity,
        source_ranges: Arc::new(SourceRanges::default()),
        proxied_by: None,
        client_sources: ClientSources::default(),
        app_protocol: None,
        algorithm,
        external: Route::Forward(candidates.clone()),
        internal: Route::Forward(candidates),
        limits: ServiceLimits::default(),
        timeouts: ServiceTimeouts::default(),
        failover: None,
        backends: Arc::new([backend]),
    }
}

/// A table of these frontends.
pub(crate) fn table(frontends: impl IntoIterator<Item = Frontend>) -> RoutingTable {
    RoutingTable::new(1, frontends.into_iter().map(Arc::new).collect(), Arc::default())
}
