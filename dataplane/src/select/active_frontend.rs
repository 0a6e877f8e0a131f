//! A frontend compiled for picking: the target of the server name, route, then the part of a split, then affinity, then balancer.

mod compile;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{
    AddressSet, Affinity, AffinityScope, Algorithm, ClientAddr, ClientSource, ClientSources, EndpointAddr,
    Frontend, FrontendAddr, LogSample, ServicePort, ServiceTimeouts,
};

use super::affinity::{AffinityTable, Scope};
use super::candidates::Candidates;
use super::endpoint_load::{EndpointLoad, ServingEndpoints};
use super::server_names::ActiveServerNames;
use super::split::{ActiveSplit, PartId, SplitPool, weighted_shares};
use super::{Origin, Pick, PickRequest, Picked, RefusedShare};
use crate::balance::hash;
use crate::balance::maglev::Maglev;
use crate::limits::service::Limiter;

/// Result of a pick that is only previewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Preview {
    /// Goes to the endpoint in the client's affinity record.
    Affinity {
        /// The endpoint.
        endpoint: EndpointAddr,
        /// Time until the record expires, unless a new connection renews it.
        remaining: Duration,
    },
    /// Goes to this endpoint, chosen by the balancer.
    Balanced(EndpointAddr),
    /// Refused with TCP reset or ICMP port unreachable.
    Reject,
    /// Dropped.
    Drop,
    /// The part of the split frontend that was chosen refuses its share.
    Refused(RefusedShare),
}

/// A route compiled for picking.
#[derive(Debug)]
enum ActiveRoute {
    Forward(Candidates),
    Reject,
    Drop,
    /// The frontend is split; its pools have the routes of all clients. A kind of route, so that frontends without a split, whose picks
    /// match it anyway, pay nothing for it.
    Split(Box<ActiveSplit<ActiveFrontend>>),
    /// The frontend has server names; their targets have the routes of all clients. A kind of route for the same reason.
    ServerNames(Box<ActiveServerNames<ActiveFrontend>>),
}

impl ActiveRoute {
    fn candidates(&self) -> Option<&Candidates> {
        match self {
            Self::Forward(candidates) => Some(candidates),
            Self::Reject | Self::Drop | Self::Split(_) | Self::ServerNames(_) => None,
        }
    }
}

/// Session affinity by client address.
#[derive(Clone, Copy, Debug)]
struct Sticky {
    scope: Scope,
    reach: AffinityScope,
    timeout: Duration,
}

/// A frontend compiled for picking.
///
/// In a gateway with thousands of frontends, a pick consists of cache misses. So the fields that a pick reads come first, refer only to
/// the slice of the endpoints, and include copies of the decisive fields of `spec`.
#[derive(Debug)]
#[repr(C)]
pub struct ActiveFrontend {
    pub(super) addr: FrontendAddr,
    /// Whether source ranges exclude any client.
    ranged: bool,
    client_sources: ClientSources,
    sticky: Option<Sticky>,
    serving: ServingEndpoints,
    external: ActiveRoute,
    /// `None` if it equals the external route, so that both share their turns.
    internal: Option<Box<ActiveRoute>>,
    limiter: Option<Arc<Limiter>>,
    proxied_by: Option<Arc<AddressSet>>,
    timeouts: ServiceTimeouts,
    logged: LogSample,
    spec: Arc<Frontend>,
}

impl ActiveFrontend {
    fn maglevs(&self) -> impl Iterator<Item = Arc<Maglev>> {
        let routes = [Some(&self.external), self.internal.as_deref()];
        routes.into_iter().flatten().filter_map(ActiveRoute::candidates).flat_map(Candidates::maglevs)
    }

    /// The frontend in the routing table.
    pub fn spec(&self) -> &Arc<Frontend> {
        &self.spec
    }

    #[inline]
    fn split(&self) -> Option<&ActiveSplit<Self>> {
        match &self.external {
            ActiveRoute::Split(split) => Some(split),
            ActiveRoute::Forward(_)
            | ActiveRoute::Reject
            | ActiveRoute::Drop
            | ActiveRoute::ServerNames(_) => None,
        }
    }

    fn server_names(&self) -> Option<&ActiveServerNames<Self>> {
        match &self.external {
            ActiveRoute::ServerNames(names) => Some(names),
            ActiveRoute::Forward(_) | ActiveRoute::Reject | ActiveRoute::Drop | ActiveRoute::Split(_) => None,
        }
    }

    /// Whether a connection needs a server name, without which it has no endpoint.
    pub(crate) fn has_server_names(&self) -> bool {
        self.server_names().is_some()
    }

    /// The target of a server name, which chooses the endpoints of connections with that name: its [picks](Self::pick) and
    /// [previews](Self::preview) are theirs. The name is as [`server_name`](crate::server_name) returns it. `None` if the name leads
    /// nowhere, or the frontend has no server names.
    pub fn target(&self, server_name: &str) -> Option<&Arc<Self>> {
        self.server_names()?.target(server_name)
    }

    /// The frontend that has the connections of this server name: this one if it has no server names, otherwise the name's target.
    /// `None` if the name leads nowhere.
    pub(crate) fn destination(self: &Arc<Self>, server_name: Option<&str>) -> Option<&Arc<Self>> {
        match self.server_names() {
            None => Some(self),
            Some(names) => names.target(server_name?),
        }
    }

    /// The compiled frontends whose traffic goes the same way whatever its server name: this one, or the targets of its server names.
    pub fn targets(&self) -> impl Iterator<Item = &Self> {
        let names = self.server_names();
        let whole = names.is_none().then_some(self);
        whole.into_iter().chain(names.into_iter().flat_map(ActiveServerNames::targets))
    }

    /// The compiled frontends that choose endpoints: this one, or the pools of its parts if it is split, or of its targets if it has
    /// server names.
    pub fn pools(&self) -> impl Iterator<Item = &Self> {
        self.targets().flat_map(|target| {
            let split = target.split();
            let whole = split.is_none().then_some(target);
            whole.into_iter().chain(split.into_iter().flat_map(ActiveSplit::pools))
        })
    }

    /// The Service ports that judge an endpoint of this frontend: those of the pools that have it, each once.
    pub fn judges(&self, endpoint: EndpointAddr) -> impl Iterator<Item = &ServicePort> {
        let having = move || self.pools().filter(move |pool| pool.serving.position(endpoint).is_some());
        let services = having().enumerate().filter(move |(index, pool)| {
            having().take(*index).all(|earlier| earlier.spec.service != pool.spec.service)
        });
        services.map(|(_, pool)| &pool.spec.service)
    }

    /// Whether the Service port is one of the [`judges`](Self::judges).
    pub(crate) fn is_judge(&self, service: &ServicePort, endpoint: EndpointAddr) -> bool {
        self.pools().any(|pool| pool.spec.service == *service && pool.serves(endpoint))
    }

    /// Whether any of the Service ports judges endpoints of this frontend.
    pub(super) fn is_judged_by(&self, services: &HashSet<&ServicePort>) -> bool {
        !services.is_empty() && self.pools().any(|pool| services.contains(&pool.spec.service))
    }

    /// The limiter of the Service, if the Service has limits.
    pub fn limiter(&self) -> Option<&Arc<Limiter>> {
        self.limiter.as_ref()
    }

    /// Peers whose connections begin with a PROXY protocol header.
    pub fn proxied_by(&self) -> Option<&AddressSet> {
        self.proxied_by.as_deref()
    }

    /// Timeouts of the Service.
    pub fn timeouts(&self) -> ServiceTimeouts {
        self.timeouts
    }

    /// Share of the TCP connections that is logged.
    pub(crate) fn logged(&self) -> LogSample {
        self.logged
    }

    /// Whether the source ranges allow this client.
    #[inline]
    pub fn admits(&self, client: ClientAddr) -> bool {
        !self.ranged || self.spec.source_ranges.allowed().contains(client.ip())
    }

    /// The result of [`Self::pick`] for a client that gets no endpoint; `None` if it would get one, or if that depends on the connection:
    /// a split may refuse the share of a part, and a server name may lead nowhere.
    #[inline]
    pub fn refusal(&self, origin: Origin, client: ClientAddr) -> Option<Pick> {
        match self.route(origin, client) {
            ActiveRoute::Forward(_) | ActiveRoute::ServerNames(_) => None,
            ActiveRoute::Reject => Some(Pick::Reject),
            ActiveRoute::Drop => Some(Pick::Drop),
            ActiveRoute::Split(split) => Self::refusal_of_parts(split, origin, client),
        }
    }

    /// See [`Self::pick_in_part`].
    #[inline(never)]
    fn refusal_of_parts(split: &ActiveSplit<Self>, origin: Origin, client: ClientAddr) -> Option<Pick> {
        if !split.forwards(origin) {
            return Some(Pick::Reject);
        }
        split.refusal(origin, client).map(Pick::Refused)
    }

    /// The part of a split for a new connection or flow: by the client's affinity record, otherwise by weight. `None` if the frontend
    /// is not split, or no part has a weight.
    #[inline]
    pub fn part(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<PartId> {
        self.split()?.part(request, affinity)
    }

    /// Picks an endpoint for a new connection or flow, by affinity first, and records the pick for affinity. Rejects if the frontend
    /// has server names: the [target](Self::target) picks.
    pub fn pick(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Pick {
        let candidates = match self.route(request.origin, request.client) {
            ActiveRoute::Forward(candidates) => candidates,
            ActiveRoute::Reject | ActiveRoute::ServerNames(_) => return Pick::Reject,
            ActiveRoute::Drop => return Pick::Drop,
            ActiveRoute::Split(split) => return Self::pick_in_part(split, request, affinity),
        };
        let place = match &self.sticky {
            None => self.new_choice(candidates, request),
            Some(sticky) => self.pick_sticky(candidates, sticky, request, affinity),
        };
        self.serving.pick(place).map_or(Pick::Reject, Pick::Forward)
    }

    /// [`Self::pick`] of a split frontend, out of line: picks of all others do not make room for it.
    #[inline(never)]
    fn pick_in_part(split: &ActiveSplit<Self>, request: &PickRequest<'_>, affinity: &AffinityTable) -> Pick {
        if !split.forwards(request.origin) {
            return Pick::Reject;
        }
        split.pool(request, affinity).map_or_else(Pick::Refused, |pool| pool.pick(request, affinity))
    }

    /// Counts a flow that another process has assigned to this endpoint; `None` if the endpoint no longer serves.
    pub(crate) fn take_over(&self, endpoint: EndpointAddr) -> Option<Picked> {
        self.serving.pick(self.serving.position(endpoint)?)
    }

    /// The endpoint that [`Self::pick`] would return, without counting, recording or renewing anything.
    pub fn preview(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Preview {
        let candidates = match self.route(request.origin, request.client) {
            ActiveRoute::Forward(candidates) => candidates,
            ActiveRoute::Reject | ActiveRoute::ServerNames(_) => return Preview::Reject,
            ActiveRoute::Drop => return Preview::Drop,
            ActiveRoute::Split(split) if !split.forwards(request.origin) => return Preview::Reject,
            ActiveRoute::Split(split) => {
                let pool = split.pool(request, affinity);
                return pool.map_or_else(Preview::Refused, |pool| pool.preview(request, affinity));
            }
        };
        let sticky = self.sticky.and_then(|sticky| {
            let Sticky { scope, timeout, .. } = sticky;
            let (recorded, remaining) = affinity.peek(scope, request.client.ip(), timeout, request.now)?;
            let place = self.usable(candidates, &sticky, recorded, request)?;
            Some((self.serving.get(place)?.addr, remaining))
        });
        if let Some((endpoint, remaining)) = sticky {
            return Preview::Affinity { endpoint, remaining };
        }
        let place = self.balance(candidates, candidates.peek_turn(), request);
        self.serving.get(place).map_or(Preview::Reject, |endpoint| Preview::Balanced(endpoint.addr))
    }

    /// The algorithm that picks an endpoint without an affinity record.
    pub fn algorithm(&self) -> Algorithm {
        effective_algorithm(&self.spec)
    }

    /// The endpoints over which new traffic of one class of clients is spread, sorted by address: those with a share in the route.
    pub fn choices(&self, origin: Origin) -> impl Iterator<Item = EndpointAddr> {
        self.shares(origin).map(|(endpoint, _)| endpoint)
    }

    /// The endpoints of [`Self::choices`] with their shares; only the proportions are meaningful. If the frontend has server names, as
    /// if all targets had the same traffic, since only clients know which names they ask for.
    pub fn shares(&self, origin: Origin) -> impl Iterator<Item = (EndpointAddr, u64)> {
        let shares = self.route_of(origin).candidates().into_iter().flat_map(Candidates::shares);
        let own = shares.filter_map(|(place, share)| Some((self.serving.get(place)?.addr, share)));
        let of_parts = self.split().into_iter().flat_map(move |split| split.shares(origin));
        let of_targets = self.server_names().into_iter().flat_map(move |names| {
            weighted_shares(names.targets().map(|target| (1, SplitPool::shares(target, origin))))
        });
        own.chain(of_parts).chain(of_targets)
    }

    /// Client source for this class of clients.
    pub fn client_source(&self, origin: Origin) -> ClientSource {
        match origin {
            Origin::External => self.client_sources.external,
            Origin::Internal => self.client_sources.internal,
        }
    }

    /// Whether the endpoint still serves this frontend, so that its flows stay.
    pub fn serves(&self, endpoint: EndpointAddr) -> bool {
        self.serving.position(endpoint).is_some()
    }

    /// The endpoints that still [serve](Self::serves), chosen for new traffic or not.
    pub(crate) fn serving(&self) -> impl Iterator<Item = EndpointAddr> {
        self.serving.iter().map(|endpoint| endpoint.addr)
    }

    /// Whether the endpoint has answered flows before `since` but none after it, while another endpoint has answered since. An endpoint
    /// that never answered may speak a protocol without answers, and if no endpoint answers, clients may be sending no requests.
    pub(crate) fn has_fallen_silent(&self, endpoint: EndpointAddr, since: Instant) -> bool {
        self.pools().any(|Self { serving, .. }| {
            let own = serving.position(endpoint).and_then(|place| serving.get(place));
            own.is_some_and(|own| own.load.is_silent_since(since))
                && serving.iter().any(|other| other.load.has_answered_since(since))
        })
    }

    /// Counts connections that the kernel has forwarded to an endpoint.
    pub(crate) fn add_picks(&self, endpoint: SocketAddr, connections: u64) {
        let addr = EndpointAddr::new(endpoint.ip(), endpoint.port());
        if let Some(endpoint) = self.serving.position(addr).and_then(|place| self.serving.get(place)) {
            endpoint.load.add_picks(connections);
        }
    }

    /// Every endpoint that still serves this frontend with its load, sorted by address.
    pub fn loads(&self) -> impl Iterator<Item = (EndpointAddr, &EndpointLoad)> {
        self.serving.iter().map(|endpoint| (endpoint.addr, &endpoint.load))
    }

    /// The route of a client. Checks source ranges here as well as in the sockets' filter: a filter may be wider than the ranges, and a
    /// connection may have been established before they were narrowed.
    #[inline]
    fn route(&self, origin: Origin, client: ClientAddr) -> &ActiveRoute {
        if self.admits(client) { self.route_of(origin) } else { &ActiveRoute::Drop }
    }

    #[inline]
    fn route_of(&self, origin: Origin) -> &ActiveRoute {
        match origin {
            Origin::External => &self.external,
            Origin::Internal => self.internal.as_deref().unwrap_or(&self.external),
        }
    }

    /// Index of the balancer's choice among the serving endpoints.
    fn balance(&self, candidates: &Candidates, turn: usize, request: &PickRequest<'_>) -> usize {
        let client_hash = match self.sticky {
            None => hash::client(request.client),
            Some(_) => hash::client_ip(request.client),
        };
        candidates.choose(client_hash, turn, request, &self.serving)
    }

    /// Index of the endpoint for a new connection or flow: one on trial, otherwise the balancer's choice.
    fn new_choice(&self, candidates: &Candidates, request: &PickRequest<'_>) -> usize {
        let trial = candidates.take_trial(request);
        trial.unwrap_or_else(|| self.balance(candidates, candidates.take_turn(), request))
    }

    fn pick_sticky(
        &self,
        candidates: &Candidates,
        sticky: &Sticky,
        request: &PickRequest<'_>,
        affinity: &AffinityTable,
    ) -> usize {
        let (client, &Sticky { scope, timeout, .. }) = (request.client.ip(), sticky);
        let renewed = affinity.renew(scope, client, timeout, request.now, |endpoint| {
            self.usable(candidates, sticky, endpoint, request)
        });
        renewed.unwrap_or_else(|| {
            let place = self.new_choice(candidates, request);
            if let Some(endpoint) = self.serving.get(place) {
                affinity.record(scope, client, endpoint.addr, timeout, request.now);
            }
            place
        })
    }

    /// Index of the recorded endpoint, or of another one on its host if the record covers the whole Service. `None` if it is no candidate
    /// or has just failed.
    fn usable(
        &self,
        candidates: &Candidates,
        sticky: &Sticky,
        recorded: EndpointAddr,
        request: &PickRequest<'_>,
    ) -> Option<usize> {
        let is_candidate = |place: &usize| candidates.contains(*place);
        let place = self.serving.position(recorded).filter(is_candidate).or_else(|| match sticky.reach {
            AffinityScope::Port => None,
            AffinityScope::Service => self.serving.of_host(recorded).find(is_candidate),
        })?;
        let endpoint = self.serving.get(place)?.addr;
        let avoided = candidates.avoidable(request.tried, &self.serving);
        (!avoided.contains(&endpoint)).then_some(place)
    }
}

impl SplitPool for ActiveFrontend {
    fn forwards(&self, origin: Origin) -> bool {
        matches!(self.route_of(origin), ActiveRoute::Forward(_))
    }

    fn is_sticky(&self) -> bool {
        self.sticky.is_some()
    }

    fn time_since_record(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<Duration> {
        let Sticky { scope, timeout, .. } = self.sticky?;
        let forwards = self.forwards(request.origin);
        let (_, remaining) =
            forwards.then(|| affinity.peek(scope, request.client.ip(), timeout, request.now)).flatten()?;
        Some(timeout.saturating_sub(remaining))
    }

    fn shares(&self, origin: Origin) -> Vec<(EndpointAddr, u64)> {
        Self::shares(self, origin).collect()
    }
}

/// The algorithm of the first pick. With affinity it is a hash of the client's address, so that every gateway makes the same pick.
fn effective_algorithm(spec: &Frontend) -> Algorithm {
    match spec.affinity {
        Affinity::None => spec.algorithm,
        Affinity::ClientIp { .. } => Algorithm::Maglev,
    }
}
