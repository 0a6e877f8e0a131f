//! Frontends and tables for the tests of this module.

use std::sync::Arc;

use sheave_model::{
    Algorithm, Backend, Candidate, ClientSources, Endpoint, EndpointAddr, EndpointState, Frontend,
    FrontendAddr, FrontendSource, Protocol, Route, RoutingTable, ServiceLimits, ServicePort, ServiceTimeouts,
    Weight, test_util,
};

use crate::select::ActiveTable;

/// A frontend whose endpoints all serve; new flows go to those that are Ready, in turn.
pub(in crate::udp) fn frontend(addr: FrontendAddr, endpoints: &[(EndpointAddr, EndpointState)]) -> Frontend {
    let candidates: Arc<[Candidate]> = (0..)
        .zip(endpoints)
        .filter(|(_, (_, state))| *state == EndpointState::Ready)
        .map(|(endpoint, _)| Candidate { backend: 0, endpoint })
        .collect();
    let route = match (endpoints.is_empty(), candidates.is_empty()) {
        (true, _) => Route::Reject,
        (false, true) => Route::Drop,
        (false, false) => Route::Forward(candidates),
    };
    let endpoints = endpoints.iter().map(|(addr, state)| endpoint(*addr, *state)).collect();
    Frontend {
        addr,
        service: ServicePort {
            source: FrontendSource::Service,
            namespace: "shop".into(),
            name: format!("dns-{}", addr.port).into(),
            port_name: "dns".into(),
            protocol: Protocol::Udp,
            settings_of: None,
        },
        external: route.clone(),
        internal: route,
        limits: ServiceLimits::default(),
        timeouts: ServiceTimeouts::default(),
        health: Arc::default(),
        failover: None,
        backends: Arc::new([Backend {
            cluster: "local".into(),
            weight: Weight::default(),
            priority: 0,
            capacity: 0,
            closed: false,
            lingering: Vec::new(),
            endpoints,
        }]),
        ..test_util::frontend(0, Algorithm::RoundRobin, &[])
    }
}

/// The frontend with these client sources.
pub(in crate::udp) fn with_sources(frontend: Frontend, client_sources: ClientSources) -> Frontend {
    Frontend { client_sources, ..frontend }
}

fn endpoint(addr: EndpointAddr, state: EndpointState) -> Endpoint {
    let (node, zone) = ("n1".into(), "a".into());
    Endpoint { addr, node, zone, local: false, state, weight: Weight::default() }
}

/// The table that follows `previous` and has exactly these frontends.
pub(in crate::udp) fn follow(
    previous: &ActiveTable,
    frontends: impl IntoIterator<Item = Frontend>,
) -> ActiveTable {
    let frontends = frontends.into_iter().map(Arc::new).collect();
    let generation = previous.table().generation() + 1;
    ActiveTable::compile(RoutingTable::new(generation, frontends, Arc::default()), previous)
}
