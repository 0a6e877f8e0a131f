//! Choice of an endpoint for each logged connection, by the picks of a gateway with a clock that the log drives.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_dataplane::balance::hash;
use sheave_dataplane::select::affinity::AffinityTable;
use sheave_dataplane::select::{ActiveFrontend, ActiveTable, Origin, Pick, PickRequest, RefusedShare};
use sheave_dataplane::{LoggedEndpoint, hashed_by_kernel};
use sheave_model::{Affinity, Algorithm, ClientAddr, EndpointAddr, Frontend, FrontendAddr, Protocol};

use super::connection::ReplayedConnection;
use super::names::{EndpointId, EndpointName, FastMap, LoggedNames, LoggedRoute, RouteId, ServiceName};
use super::open_connections::OpenConnections;

/// Beginning of the random numbers, so that the same log has the same result.
const SEED: u64 = 0x7265_706c_6179;

/// Maximum number of entries in each cache. A log can have any number of clients and endpoints.
const MOST_CACHED: usize = 1 << 20;

/// Why a connection gets no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Refusal {
    /// Nothing listens on the address and port.
    NoFrontend,
    /// Another Service has the address and port.
    OtherService,
    /// The source ranges exclude the client.
    SourceRanges,
    /// There is no endpoint.
    NoEndpoint,
    /// The traffic policy allows none of the endpoints on this node.
    NoLocalEndpoint,
    /// The part of the split that was chosen has no backend that can be served.
    InvalidBackend,
}

/// Result for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    Endpoint(EndpointAddr),
    Refused(Refusal),
    /// The server name decides, which the log does not have.
    Undecided,
}

/// A logged endpoint as the table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownEndpoint {
    pub(super) id: EndpointId,
    /// Whether new connections may go there.
    pub(super) is_choice: bool,
}

/// Properties of a frontend that matter for the evaluation of its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrontendTraits {
    /// Whether the same client gets the same endpoint in every run.
    pub(super) exact: bool,
    /// Whether it has session affinity.
    pub(super) sticky: bool,
    /// Whether its Service has limits, which are not replayed.
    pub(super) limited: bool,
    /// Whether open connections count for the choice.
    counts_open: bool,
    /// Whether the kernel carries it.
    by_kernel: bool,
    /// Whether the frontend belongs to another Service than the connection.
    others: bool,
}

/// A route of the log with the frontend that the table has there.
#[derive(Clone, Debug)]
pub(super) struct RouteState {
    pub(super) logged: LoggedRoute,
    pub(super) traits: FrontendTraits,
    /// `None` if nothing listens there.
    frontend: Option<Arc<ActiveFrontend>>,
}

/// State of the choices.
pub(super) struct Chooser {
    affinity: AffinityTable,
    /// The clock's zero: 1970 in the log.
    epoch: Instant,
    draws: u64,
    pub(super) open: OpenConnections,
    /// By route. Valid for one table, as are the following.
    routes: Vec<Option<RouteState>>,
    /// The kernel's choices by route, address of the client, and whether that is inside the cluster.
    by_kernel: FastMap<(RouteId, IpAddr, bool), Option<EndpointAddr>>,
    /// Endpoints as the table has them, by their number in the log.
    known: FastMap<(RouteId, EndpointId), KnownEndpoint>,
    /// Numbers of endpoints that were chosen.
    chosen: FastMap<(RouteId, EndpointAddr), EndpointId>,
}

impl Chooser {
    pub(super) fn new() -> Self {
        Self {
            affinity: AffinityTable::default(),
            epoch: Instant::now(),
            draws: 0,
            open: OpenConnections::default(),
            routes: Vec::new(),
            by_kernel: FastMap::default(),
            known: FastMap::default(),
            chosen: FastMap::default(),
        }
    }

    /// Forgets what is valid for one table only.
    pub(super) fn change_table(&mut self) {
        self.routes.clear();
        self.by_kernel.clear();
        self.known.clear();
        self.chosen.clear();
    }

    /// A route of the log in this table.
    pub(super) fn route(&mut self, active: &ActiveTable, id: RouteId, names: &LoggedNames) -> RouteState {
        if self.routes.len() <= id.index() {
            self.routes.resize(id.index() + 1, None);
        }
        let state = || {
            let logged = names.route_of(id);
            let frontend = active.get(frontend_addr(logged.frontend)).cloned();
            let traits = frontend.as_ref().map(|it| traits_of(it, names.service_of(logged.service)));
            // A frontend that is gone refuses for certain.
            let gone = FrontendTraits { exact: true, ..FrontendTraits::default() };
            RouteState { logged, traits: traits.unwrap_or(gone), frontend }
        };
        self.routes[id.index()].get_or_insert_with(state).clone()
    }

    /// Chooses the endpoint of a connection on this route, and counts it as open until it ends.
    pub(super) fn choose(
        &mut self,
        active: &ActiveTable,
        connection: &ReplayedConnection,
        route: &RouteState,
        names: &LoggedNames,
    ) -> Chosen {
        let Some(whole) = &route.frontend else { return Chosen::Refused(Refusal::NoFrontend) };
        let traits = route.traits;
        if traits.others {
            return Chosen::Refused(Refusal::OtherService);
        }
        let client = client_of(whole, connection);
        if !whole.admits(client) {
            return Chosen::Refused(Refusal::SourceRanges);
        }
        let frontend: &ActiveFrontend = match whole.spec().server_names {
            None => whole,
            Some(_) => {
                match connection.endpoint.and_then(|id| target_with(whole, names.endpoint_of(id).0.addr)) {
                    Some(target) => target,
                    None => return Chosen::Undecided,
                }
            }
        };
        let origin = active.origin(whole.spec().addr, client);
        if let Some(endpoint) = self.hashed(connection.route, route, origin, client.ip()) {
            return Chosen::Endpoint(endpoint);
        }
        self.open.end_until(connection.start);
        let now = self.time(connection.start);
        self.draws += 1;
        let random = hash::mix(SEED.wrapping_add(self.draws));
        let request = PickRequest { client, origin, random, now, tried: &[], part: None };
        let part = frontend.part(&request, &self.affinity);
        match frontend.pick(&PickRequest { part, ..request }, &self.affinity) {
            Pick::Forward(picked) => {
                let addr = picked.addr();
                if traits.counts_open {
                    self.open.add(connection.end, picked);
                }
                Chosen::Endpoint(addr)
            }
            Pick::Reject | Pick::Refused(RefusedShare::NoEndpoint) => Chosen::Refused(Refusal::NoEndpoint),
            Pick::Drop => Chosen::Refused(Refusal::NoLocalEndpoint),
            Pick::Refused(RefusedShare::InvalidBackend) => Chosen::Refused(Refusal::InvalidBackend),
        }
    }

    /// The endpoint that the kernel chooses by a hash, where it carries the frontend. Otherwise it chooses at random, as random picks do.
    fn hashed(
        &mut self,
        id: RouteId,
        route: &RouteState,
        origin: Origin,
        client: IpAddr,
    ) -> Option<EndpointAddr> {
        let frontend = route.frontend.as_ref().filter(|_| route.traits.by_kernel)?;
        bound(&mut self.by_kernel);
        let key = (id, client, origin == Origin::Internal);
        *self.by_kernel.entry(key).or_insert_with(|| hashed_by_kernel(frontend, origin, client))
    }

    /// The clock of the picks at a time of the log. The origin of the log's times is the start of this process: only differences count.
    fn time(&self, nanoseconds: i64) -> Instant {
        let since = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0));
        self.epoch.checked_add(since).unwrap_or(self.epoch)
    }

    /// The number of an endpoint that was chosen.
    pub(super) fn chosen(
        &mut self,
        id: RouteId,
        route: &RouteState,
        endpoint: EndpointAddr,
        names: &mut LoggedNames,
    ) -> Option<EndpointId> {
        if let Some(known) = self.chosen.get(&(id, endpoint)) {
            return Some(*known);
        }
        let spec = route.frontend.as_ref().map(|frontend| frontend.spec());
        let place = LoggedEndpoint::of(endpoint, spec.map(|spec| &**spec)).place;
        let (cluster, node) = place.unwrap_or_default();
        let chosen = names.endpoint(endpoint.socket_addr(), &cluster, &node).ok()?;
        bound(&mut self.chosen);
        self.chosen.insert((id, endpoint), chosen);
        Some(chosen)
    }

    /// A logged endpoint as the table has it: a log may have no name of the cluster, or another one.
    pub(super) fn known(
        &mut self,
        id: RouteId,
        route: &RouteState,
        logged: EndpointId,
        names: &mut LoggedNames,
    ) -> KnownEndpoint {
        if let Some(known) = self.known.get(&(id, logged)) {
            return *known;
        }
        let (EndpointName { addr, cluster }, _) = names.endpoint_of(logged);
        let (addr, cluster) = (*addr, Arc::clone(cluster));
        let compiled = route.frontend.as_ref();
        let places = compiled.map(|it| places(it.spec(), addr)).unwrap_or_default();
        let endpoint = match &places[..] {
            [(only, node)] if **only != *cluster => names.endpoint(addr, only, node).unwrap_or(logged),
            _ => logged,
        };
        let may_be_chosen = |it: &Arc<ActiveFrontend>| {
            let mut choices = it.choices(Origin::External).chain(it.choices(Origin::Internal));
            choices.any(|choice| choice.socket_addr() == addr)
        };
        let known = KnownEndpoint { id: endpoint, is_choice: compiled.is_some_and(may_be_chosen) };
        bound(&mut self.known);
        self.known.insert((id, logged), known);
        known
    }
}

/// Empties a cache that is full.
fn bound<K, V>(cache: &mut FastMap<K, V>) {
    if cache.len() >= MOST_CACHED {
        cache.clear();
    }
}

/// The clusters with an endpoint at this address, and its node there.
fn places(frontend: &Frontend, addr: SocketAddr) -> Vec<(Arc<str>, Arc<str>)> {
    let backends = frontend.pools().flat_map(|pool| pool.backends.iter());
    let mut places: Vec<_> = backends
        .flat_map(|backend| backend.endpoints.iter().map(move |endpoint| (backend, endpoint)))
        .filter(|(_, endpoint)| endpoint.addr.socket_addr() == addr)
        .map(|(backend, endpoint)| (Arc::clone(&backend.cluster), Arc::clone(&endpoint.node)))
        .collect();
    places.sort_unstable();
    places.dedup_by(|next, kept| next.0 == kept.0);
    places
}

pub(super) fn frontend_addr(addr: SocketAddr) -> FrontendAddr {
    FrontendAddr { ip: addr.ip(), port: addr.port(), protocol: Protocol::Tcp }
}

/// The client by whom a connection goes: whom the PROXY header names, if the peer is trusted to send one.
fn client_of(frontend: &ActiveFrontend, connection: &ReplayedConnection) -> ClientAddr {
    let peer = ClientAddr(connection.proxy.unwrap_or(connection.client));
    let is_trusted = frontend.proxied_by().is_some_and(|trusted| trusted.contains(peer.ip()));
    if is_trusted { ClientAddr(connection.client) } else { peer }
}

/// The target of server names that has the endpoint. Logs have no server names.
fn target_with(frontend: &ActiveFrontend, endpoint: SocketAddr) -> Option<&ActiveFrontend> {
    let has = |target: &&ActiveFrontend| !target.spec().pools().all(|pool| places(pool, endpoint).is_empty());
    let mut targets = frontend.targets().filter(has);
    let first = targets.next()?;
    targets.next().is_none().then_some(first)
}

fn traits_of(frontend: &ActiveFrontend, service: &ServiceName) -> FrontendTraits {
    let owner = &frontend.spec().service;
    let (namespace, name) = service.parts();
    let all_hash = frontend.pools().all(|pool| pool.algorithm() == Algorithm::Maglev);
    let few = |origin| frontend.choices(origin).take(2).count() < 2;
    FrontendTraits {
        exact: all_hash || (few(Origin::External) && few(Origin::Internal)),
        sticky: frontend.pools().any(|pool| pool.spec().affinity != Affinity::None),
        counts_open: frontend.pools().any(|pool| pool.algorithm() == Algorithm::LeastConnections),
        limited: frontend.limiter().is_some(),
        by_kernel: frontend.spec().kernel_path().is_ok(),
        others: (owner.source, &*owner.namespace, &*owner.name) != (service.source, namespace, name),
    }
}
