//! One frontend made ready for picking: route, then affinity, then balancer.

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

/// Where a request would go, without sending it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Preview {
    /// To the endpoint that the client's affinity record names.
    Affinity {
        /// Which one.
        endpoint: EndpointAddr,
        /// How long the record counts if no new connection renews it.
        remaining: Duration,
    },
    /// To this endpoint, by the balancer.
    Balanced(EndpointAddr),
    /// Nowhere, visibly.
    Reject,
    /// Nowhere, silently.
    Drop,
}

/// A route made ready.
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

    fn selection(&self) -> Option<&Arc<Candidates>> {
        match self {
            Self::Forward(selection) => Some(selection),
            Self::Reject | Self::Drop => None,
        }
    }
}

/// One frontend, ready for picking.
#[derive(Debug)]
pub struct ActiveFrontend {
    spec: Arc<Frontend>,
    /// The same as in `spec`, but without another cache miss.
    affinity: Affinity,
    /// Whether there are source ranges at all.
    ranged: bool,
    scope: Scope,
    serving: ServingEndpoints,
    external: ActiveRoute,
    internal: ActiveRoute,
    limiter: Option<Arc<Limiter>>,
}

impl ActiveFrontend {
    /// Prepares `spec`, with the loads, turns and Maglev tables of `previous` as far as they still hold.
    pub(super) fn compile(
        spec: Arc<Frontend>,
        unhealthy: &Unhealthy,
        limiter: Option<Arc<Limiter>>,
        previous: Option<&Self>,
    ) -> Self {
        let nothing = ServingEndpoints::default();
        let serving = ServingEndpoints::new(&spec, previous.map_or(&nothing, |previous| &previous.serving));
        let known_external = previous.and_then(|previous| previous.external.selection());
        let known_internal = previous.and_then(|previous| previous.internal.selection());
        let algorithm = effective_algorithm(&spec);
        let select = |candidates: &[Candidate], known: [Option<&Arc<Candidates>>; 3]| {
            let known: Vec<_> = known.into_iter().flatten().collect();
            Candidates::compile(&spec, algorithm, candidates, unhealthy, &serving, &known)
        };
        let external = ActiveRoute::new(&spec.external, |candidates| {
            select(candidates, [known_external, known_internal, None])
        });
        let internal = ActiveRoute::new(&spec.internal, |candidates| {
            select(candidates, [external.selection(), known_internal, known_external])
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

    /// The frontend as the table has it.
    pub fn spec(&self) -> &Arc<Frontend> {
        &self.spec
    }

    /// What holds its Service to its limits, if it has any.
    pub(crate) fn limiter(&self) -> Option<&Arc<Limiter>> {
        self.limiter.as_ref()
    }

    /// Whether the source ranges let this client in.
    pub(crate) fn admits(&self, client: ClientAddr) -> bool {
        !self.ranged || self.spec.source_ranges.allowed().contains(client.ip())
    }

    /// What [`Self::pick`] answers a client that gets no endpoint; `None` if it would get one.
    pub(crate) fn refusal(&self, origin: Origin, client: ClientAddr) -> Option<Pick> {
        match self.target(origin, client) {
            ActiveRoute::Forward(_) => None,
            ActiveRoute::Reject => Some(Pick::Reject),
            ActiveRoute::Drop => Some(Pick::Drop),
        }
    }

    /// Chooses an endpoint for a new connection or flow, by affinity first, and records it there.
    pub fn pick(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Pick {
        let selection = match self.target(request.origin, request.client) {
            ActiveRoute::Forward(selection) => selection,
            ActiveRoute::Reject => return Pick::Reject,
            ActiveRoute::Drop => return Pick::Drop,
        };
        let index = match self.affinity {
            Affinity::None => self.balance(selection, selection.take_turn(), request),
            Affinity::ClientIp { timeout } => self.stick(selection, timeout, request, affinity),
        };
        selection.get(index).map_or(Pick::Reject, |(addr, load)| Pick::Forward(Picked::new(addr, load)))
    }

    /// What [`Self::pick`] would answer, without counting, recording or renewing anything.
    pub fn preview(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Preview {
        let selection = match self.target(request.origin, request.client) {
            ActiveRoute::Forward(selection) => selection,
            ActiveRoute::Reject => return Preview::Reject,
            ActiveRoute::Drop => return Preview::Drop,
        };
        let sticky = match self.affinity {
            Affinity::None => None,
            Affinity::ClientIp { timeout } => affinity
                .peek(self.scope, request.client.ip(), timeout, request.now)
                .filter(|&(endpoint, _)| usable(selection, endpoint, request).is_some()),
        };
        if let Some((endpoint, remaining)) = sticky {
            return Preview::Affinity { endpoint, remaining };
        }
        let index = self.balance(selection, selection.this_turn(), request);
        selection.get(index).map_or(Preview::Reject, |(addr, _)| Preview::Balanced(addr))
    }

    /// How an endpoint is chosen where no affinity record says it.
    pub fn algorithm(&self) -> Algorithm {
        effective_algorithm(&self.spec)
    }

    /// The endpoints that new traffic of one class of clients is spread over, sorted by address: those of the route
    /// that have any share.
    pub fn choices(&self, origin: Origin) -> impl Iterator<Item = EndpointAddr> {
        self.shares(origin).map(|(endpoint, _)| endpoint)
    }

    /// The same endpoints, each with its share; only the proportions mean anything.
    pub fn shares(&self, origin: Origin) -> impl Iterator<Item = (EndpointAddr, u32)> {
        let target = match origin {
            Origin::External => &self.external,
            Origin::Internal => &self.internal,
        };
        target.selection().into_iter().flat_map(|selection| selection.shares())
    }

    /// Whether the health of any of these endpoints decides anything here.
    pub(super) fn depends_on(&self, health: &Unhealthy) -> bool {
        let protocol = self.spec.addr.protocol;
        let any_own = || {
            // The shorter list is walked: a cluster that is cut off has many endpoints, of many frontends.
            if health.len() < self.serving.len() {
                health.iter().any(|(of, endpoint)| of == protocol && self.serves(endpoint))
            } else {
                self.serving.iter().any(|(endpoint, _)| health.contains(protocol, endpoint))
            }
        };
        self.spec.failover.is_some() && any_own()
    }

    /// What endpoints are to see of a client.
    pub fn client_source(&self, origin: Origin) -> ClientSource {
        match origin {
            Origin::External => self.spec.client_sources.external,
            Origin::Internal => self.spec.client_sources.internal,
        }
    }

    /// Whether the endpoint still serves here, Ready or Terminating: then its flows stay.
    pub fn serves(&self, endpoint: EndpointAddr) -> bool {
        self.serving.load(endpoint).is_some()
    }

    /// Every endpoint that still serves here with its load, sorted by address.
    pub fn loads(&self) -> impl Iterator<Item = (EndpointAddr, &Arc<EndpointLoad>)> {
        self.serving.iter()
    }

    /// Source ranges are looked at here as well as in the sockets' filter: a filter may be wider than the ranges, and
    /// a connection may have shaken hands before they were narrowed.
    fn target(&self, origin: Origin, client: ClientAddr) -> &ActiveRoute {
        match origin {
            _ if !self.admits(client) => &ActiveRoute::Drop,
            Origin::External => &self.external,
            Origin::Internal => &self.internal,
        }
    }

    fn balance(&self, selection: &Candidates, turn: usize, request: &PickRequest<'_>) -> usize {
        let client_hash = match self.affinity {
            Affinity::None => hash::client(request.client),
            Affinity::ClientIp { .. } => hash::client_ip(request.client),
        };
        selection.choose(client_hash, turn, request)
    }

    fn stick(
        &self,
        selection: &Candidates,
        timeout: Duration,
        request: &PickRequest<'_>,
        affinity: &AffinityTable,
    ) -> usize {
        let client = request.client.ip();
        let renewed = affinity
            .renew(self.scope, client, timeout, request.now, |endpoint| usable(selection, endpoint, request));
        renewed.unwrap_or_else(|| {
            let index = self.balance(selection, selection.take_turn(), request);
            if let Some((endpoint, _)) = selection.get(index) {
                affinity.record(self.scope, client, endpoint, timeout, request.now);
            }
            index
        })
    }
}

/// With affinity the first pick is a hash of the client's address, so that every gateway makes the same.
fn effective_algorithm(spec: &Frontend) -> Algorithm {
    match spec.affinity {
        Affinity::None => spec.algorithm,
        Affinity::ClientIp { .. } => Algorithm::Maglev,
    }
}

/// The index of a recorded endpoint, if it is in the selected set and did not just fail.
fn usable(selection: &Candidates, endpoint: EndpointAddr, request: &PickRequest<'_>) -> Option<usize> {
    selection.position(endpoint).filter(|_| !selection.avoidable(request.tried).contains(&endpoint))
}
