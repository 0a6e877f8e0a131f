//! Frontends for the tests of every crate: one backend of numbered endpoints, both routes over all of them, no affinity.

use std::net::IpAddr;
use std::sync::Arc;

use super::RoutingTable;
use crate::source_ranges::SourceRanges;
use crate::{
    Affinity, Algorithm, Backend, Candidate, ClientSources, Endpoint, EndpointAddr, EndpointState, Frontend,
    FrontendAddr, FrontendKind, FrontendSource, LogSample, PartTarget, PathChoice, Protocol, RefusedPart,
    Route, ServerNamePattern, ServerNames, ServiceLimits, ServicePort, ServiceTimeouts, Split, SplitPart,
    Weight,
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
        closed: false,
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
            settings_of: None,
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
        split: None,
        server_names: None,
    }
}

/// A part of a split: the pool of the Service of the `number`th [`frontend`], over these endpoints.
pub fn pool(number: u32, weight: u32, endpoints: &[(u32, u16)]) -> SplitPart {
    let pool = frontend(number, Algorithm::Random, endpoints);
    SplitPart {
        name: format!("Service {}/{}:80", pool.service.namespace, pool.service.name).into(),
        weight,
        target: PartTarget::Pool(Arc::new(pool)),
    }
}

/// A refused part of a split.
pub fn refused(name: &str, weight: u32) -> SplitPart {
    SplitPart { name: name.into(), weight, target: PartTarget::Refused(RefusedPart::BackendNotFound) }
}

/// The `number`th frontend, of a Gateway, split over these parts. Their pools get its address and protocol, and the algorithm.
pub fn split(number: u32, algorithm: Algorithm, parts: impl IntoIterator<Item = SplitPart>) -> Frontend {
    let mut whole = frontend(number, algorithm, &[]);
    whole.service.source = FrontendSource::Gateway;
    whole.backends = Arc::new([]);
    let parts = parts.into_iter().collect();
    whole.split = Some(Arc::new(Split { route: "TCPRoute default/route".into(), superseded: 0, parts }));
    let addr = whole.addr;
    change_pools(&mut whole, |pool| {
        (pool.addr, pool.algorithm, pool.service.protocol) = (addr, algorithm, addr.protocol);
    });
    whole
}

/// Changes each pool of a split frontend.
pub fn change_pools(whole: &mut Frontend, mut change: impl FnMut(&mut Frontend)) {
    let Some(split) = &mut whole.split else { return };
    for part in &mut Arc::make_mut(split).parts {
        if let PartTarget::Pool(pool) = &mut part.target {
            change(Arc::make_mut(pool));
        }
    }
}

/// Moves a split frontend and its pools to another address.
pub fn move_split(whole: &mut Frontend, addr: FrontendAddr) {
    (whole.addr, whole.service.protocol) = (addr, addr.protocol);
    change_pools(whole, |pool| (pool.addr, pool.service.protocol) = (addr, addr.protocol));
}

/// The `number`th frontend, of a Gateway, with these server names and what they lead to.
pub fn with_server_names<'a>(
    number: u32,
    targets: impl IntoIterator<Item = (&'a str, Frontend)>,
) -> Frontend {
    let mut whole = frontend(number, Algorithm::Random, &[]);
    whole.service.source = FrontendSource::Gateway;
    set_server_names(&mut whole, targets);
    whole
}

/// Gives a frontend these server names, which lead to frontends that are split: their routes are called by the names, and they get the
/// address and the Service port.
pub fn set_server_names<'a>(whole: &mut Frontend, targets: impl IntoIterator<Item = (&'a str, Frontend)>) {
    let (names, targets): (Vec<_>, Vec<_>) = targets.into_iter().unzip();
    let named = |(name, mut target): (&&str, Frontend)| {
        move_split(&mut target, whole.addr);
        target.service = whole.service.clone();
        if let Some(split) = &mut target.split {
            Arc::make_mut(split).route = format!("TLSRoute default/{name}").into();
        }
        Arc::new(target)
    };
    let targets = names.iter().zip(targets).map(named).collect();
    let patterns = names.iter().zip(0..).map(|(name, index)| (ServerNamePattern::new(name), Some(index)));
    whole.server_names = Some(Arc::new(ServerNames::new(targets, patterns)));
    (whole.external, whole.internal, whole.backends) = (Route::Reject, Route::Reject, Arc::new([]));
}

/// A table of these frontends, of generation 1.
pub fn table(frontends: impl IntoIterator<Item = Frontend>) -> RoutingTable {
    RoutingTable::new(1, frontends.into_iter().map(Arc::new).collect(), Arc::default())
}
