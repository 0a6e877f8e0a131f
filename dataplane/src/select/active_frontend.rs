//! One frontend prepared for picking: route, then affinity, then balancer.

use std::sync::Arc;
use std::time::Duration;

use sheave_model::{
    AddressSet, Affinity, Algorithm, Candidate, ClientAddr, ClientSource, EndpointAddr, Frontend, Route,
};

use super::affinity::{AffinityTable, Scope};
use super::candidates::Candidates;
use super::endpoint_load::{EndpointLoad, Picked, ServingEndpoints};
use super::unhealthy::Unhealthy;
use super::{Origin, Pick, PickRequest};
use crate::balance::hash;
use crate::limits::service::Limiter;

/// Where a connection or flow would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Preview {
    /// To the endpoint in the client's affinity record.
    Affinity {
        /// The endpoint.
        endpoint: EndpointAddr,
        /// When the record expires unless a new connection renews it.
        remaining: Duration,
    },
    /// To this endpoint, chosen by the balancer.
    Balanced(EndpointAddr),
    /// Refused with TCP reset or ICMP port unreachable.
    Reject,
    /// Dropped.
    Drop,
}

/// A route prepared for picking.
#[derive(Clone, Debug)]
enum ActiveRoute {
    Forward(Arc<Candidates>),
    Reject,
    Drop,
}

impl ActiveRoute {
    fn new(route: &Route, select: impl FnOnce(&[Candidate]) -> Option<Arc<Candidates>>) -> Self {
        match route {
            Route::Forward(candidates) => select(candidates).map_or(Self::Reject, Self::Forward),
            Route::Reject => Self::Reject,
            Route::Drop => Self::Drop,
        }
    }

    fn candidates(&self) -> Option<&Arc<Candidates>> {
        match self {
            Self::Forward(candidates) => Some(candidates),
            Self::Reject | Self::Drop => None,
        }
    }
}

/// A frontend prepared for picking.
#[derive(Debug)]
pub struct ActiveFrontend {
    spec: Arc<Frontend>,
    /// A copy from `spec`: saves a cache miss.
    affinity: Affinity,
    /// Whether source ranges exclude anybody.
    ranged: bool,
    scope: Scope,
    serving: ServingEndpoints,
    external: ActiveRoute,
    internal: ActiveRoute,
    limiter: Option<Arc<Limiter>>,
}

impl ActiveFrontend {
    /// Prepares `spec`, keeping the loads, turns and Maglev tables of `previous` that are still valid.
    pub(super) fn compile(
        spec: Arc<Frontend>,
        unhealthy: &Unhealthy,
        limiter: Option<Arc<Limiter>>,
        previous: Option<&Self>,
    ) -> Self {
        let nothing = ServingEndpoints::default();
        let serving = ServingEndpoints::new(&spec, previous.map_or(&nothing, |previous| &previous.serving));
        let previous_external = previous.and_then(|previous| previous.external.candidates());
        let previous_internal = previous.and_then(|previous| previous.internal.candidates());
        let algorithm = effective_algorithm(&spec);
        let select = |candidates: &[Candidate], known: [Option<&Arc<Candidates>>; 3]| {
            let known: Vec<_> = known.into_iter().flatten().collect();
            Candidates::compile(&spec, algorithm, candidates, unhealthy, &serving, &known)
        };
        let external = ActiveRoute::new(&spec.external, |candidates| {
            select(candidates, [previous_external, previous_internal, None])
        });
        let internal = ActiveRoute::new(&spec.internal, |candidates| {
            select(candidates, [external.candidates(), previous_internal, previous_external])
        });
        Self {
            affinity: spec.affinity,
            ranged: *spec.source_ranges.allowed() != AddressSet::all(),
            scope: Scope::of(&spec.service),
            serving,
            external,
            internal,
            limiter,
            spec,
        }
    }

    /// The frontend in the routing table.
    pub fn spec(&self) -> &Arc<Frontend> {
        &self.spec
    }

    /// The limiter of its Service, if the Service has limits.
    pub(crate) fn limiter(&self) -> Option<&Arc<Limiter>> {
        self.limiter.as_ref()
    }

    /// Whether the source ranges allow this client.
    pub(crate) fn admits(&self, client: ClientAddr) -> bool {
        !self.ranged || self.spec.source_ranges.allowed().contains(client.ip())
    }

    /// What [`Self::pick`] returns for a client that gets no endpoint; `None` if it would get one.
    pub(crate) fn refusal(&self, origin: Origin, client: ClientAddr) -> Option<Pick> {
        match self.route(origin, client) {
            ActiveRoute::Forward(_) => None,
            ActiveRoute::Reject => Some(Pick::Reject),
            ActiveRoute::Drop => Some(Pick::Drop),
        }
    }

    /// Chooses an endpoint for a new connection or flow, by affinity first, and records the choice for affinity.
    pub fn pick(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Pick {
        let candidates = match self.route(request.origin, request.client) {
            ActiveRoute::Forward(candidates) => candidates,
            ActiveRoute::Reject => return Pick::Reject,
            ActiveRoute::Drop => return Pick::Drop,
        };
        let index = match self.affinity {
            Affinity::None => self.balance(candidates, candidates.take_turn(), request),
            Affinity::ClientIp { timeout } => self.pick_sticky(candidates, timeout, request, affinity),
        };
        candidates.get(index).map_or(Pick::Reject, |(addr, load)| Pick::Forward(Picked::new(addr, load)))
    }

    /// What [`Self::pick`] would return, without counting, recording or renewing anything.
    pub fn preview(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Preview {
        let candidates = match self.route(request.origin, request.client) {
            ActiveRoute::Forward(candidates) => candidates,
            ActiveRoute::Reject => return Preview::Reject,
            ActiveRoute::Drop => return Preview::Drop,
        };
        let sticky = match self.affinity {
            Affinity::None => None,
            Affinity::ClientIp { timeout } => affinity
                .peek(self.scope, request.client.ip(), timeout, request.now)
                .filter(|&(endpoint, _)| usable(candidates, endpoint, request).is_some()),
        };
        if let Some((endpoint, remaining)) = sticky {
            return Preview::Affinity { endpoint, remaining };
        }
        let index = self.balance(candidates, candidates.peek_turn(), request);
        candidates.get(index).map_or(Preview::Reject, |(addr, _)| Preview::Balanced(addr))
    }

    /// The algorithm that chooses an endpoint where no affinity record does.
    pub fn algorithm(&self) -> Algorithm {
        effective_algorithm(&self.spec)
    }

    /// The endpoints that new traffic of one class of clients is spread over, sorted by address: those with a share in the
    /// route.
    pub fn choices(&self, origin: Origin) -> impl Iterator<Item = EndpointAddr> {
        self.shares(origin).map(|(endpoint, _)| endpoint)
    }

    /// The same endpoints with their shares; only the proportions are meaningful.
    pub fn shares(&self, origin: Origin) -> impl Iterator<Item = (EndpointAddr, u32)> {
        let route = match origin {
            Origin::External => &self.external,
            Origin::Internal => &self.internal,
        };
        route.candidates().into_iter().flat_map(|candidates| candidates.shares())
    }

    /// Whether the health of any of these endpoints affects this frontend.
    pub(super) fn depends_on(&self, health: &Unhealthy) -> bool {
        let protocol = self.spec.addr.protocol;
        let any_own = || {
            // Walk the shorter list: an unreachable cluster has many endpoints, of many frontends.
            if health.len() < self.serving.len() {
                health.iter().any(|(of, endpoint)| of == protocol && self.serves(endpoint))
            } else {
                self.serving.iter().any(|(endpoint, _)| health.contains(protocol, endpoint))
            }
        };
        self.spec.failover.is_some() && any_own()
    }

    /// What endpoints see of a client.
    pub fn client_source(&self, origin: Origin) -> ClientSource {
        match origin {
            Origin::External => self.spec.client_sources.external,
            Origin::Internal => self.spec.client_sources.internal,
        }
    }

    /// Whether the endpoint still serves this frontend, so that its flows stay.
    pub fn serves(&self, endpoint: EndpointAddr) -> bool {
        self.serving.load(endpoint).is_some()
    }

    /// Every endpoint that still serves this frontend with its load, sorted by address.
    pub fn loads(&self) -> impl Iterator<Item = (EndpointAddr, &Arc<EndpointLoad>)> {
        self.serving.iter()
    }

    /// Checks source ranges here as well as in the sockets' filter: a filter may be wider than the ranges, and a connection
    /// may have been established before they were narrowed.
    fn route(&self, origin: Origin, client: ClientAddr) -> &ActiveRoute {
        match origin {
            _ if !self.admits(client) => &ActiveRoute::Drop,
            Origin::External => &self.external,
            Origin::Internal => &self.internal,
        }
    }

    fn balance(&self, candidates: &Candidates, turn: usize, request: &PickRequest<'_>) -> usize {
        let client_hash = match self.affinity {
            Affinity::None => hash::client(request.client),
            Affinity::ClientIp { .. } => hash::client_ip(request.client),
        };
        candidates.choose(client_hash, turn, request)
    }

    fn pick_sticky(
        &self,
        candidates: &Candidates,
        timeout: Duration,
        request: &PickRequest<'_>,
        affinity: &AffinityTable,
    ) -> usize {
        let client = request.client.ip();
        let renewed = affinity.renew(self.scope, client, timeout, request.now, |endpoint| {
            usable(candidates, endpoint, request)
        });
        renewed.unwrap_or_else(|| {
            let index = self.balance(candidates, candidates.take_turn(), request);
            if let Some((endpoint, _)) = candidates.get(index) {
                affinity.record(self.scope, client, endpoint, timeout, request.now);
            }
            index
        })
    }
}

/// With affinity the first pick is a hash of the client's address, so that every gateway makes the same pick.
fn effective_algorithm(spec: &Frontend) -> Algorithm {
    match spec.affinity {
        Affinity::None => spec.algorithm,
        Affinity::ClientIp { .. } => Algorithm::Maglev,
    }
}

/// The index of a recorded endpoint, if it is among the candidates and did not just fail.
fn usable(candidates: &Candidates, endpoint: EndpointAddr, request: &PickRequest<'_>) -> Option<usize> {
    candidates.position(endpoint).filter(|_| !candidates.avoidable(request.tried).contains(&endpoint))
}
