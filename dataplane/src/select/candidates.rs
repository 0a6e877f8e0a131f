//! Candidates of one route with their balancer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sheave_model::{
    Affinity, AffinityScope, Algorithm, Backend, Candidate, Endpoint, EndpointAddr, EndpointState, Frontend,
};

use super::PickRequest;
use super::endpoint_health::{FULL_SHARE, ServiceHealth, Trial};
use super::endpoint_load::ServingEndpoints;
use crate::balance::clusters::{ClusterMember, ClusterSpec, Inside, SUSPICIOUS};
use crate::balance::failover::{self, FailoverCandidate, FailoverRules};
use crate::balance::maglev::Maglev;
use crate::balance::shares::{self, Member};
use crate::balance::weights::Weights;
use crate::balance::{Balancer, PickInput, Tried, hash};

/// Candidates compiled for choosing; never empty. Each is identified by its index in the frontend's [`ServingEndpoints`], which do not
/// change during the lifetime of the candidates.
#[derive(Debug)]
pub(super) struct Candidates {
    balancer: Balancer,
    /// Index of each candidate, in ascending order; `None` if all serving endpoints are candidates, as in most frontends.
    places: Option<Box<[u32]>>,
    /// The [`hash::cluster`] of each candidate, in the same order, if there are several and the balancer does not know them.
    clusters: Box<[u64]>,
    /// Number of choices so far. Only counted for round robin: other algorithms do not need a cache line that every pick writes.
    turn: AtomicUsize,
    /// Healthy candidates of the next tier, for connections that keep failing: nothing spills over until the failing endpoints count as
    /// unhealthy.
    spares: Box<[u32]>,
    /// Unhealthy endpoints that one new flow may try.
    trials: Box<[(u32, Arc<Trial>)]>,
}

impl Candidates {
    /// Compiles `candidates`. The turn continues from `previous`, since otherwise each change would start at the first endpoint again.
    /// `None` without candidates.
    pub(super) fn compile(
        frontend: &Frontend,
        algorithm: Algorithm,
        candidates: &[Candidate],
        health: Option<&ServiceHealth>,
        serving: &ServingEndpoints,
        (previous, known): (Option<&Self>, &[Arc<Maglev>]),
    ) -> Option<Self> {
        let mut members = members(frontend, candidates, health, serving);
        // Not with Maglev: all gateways must make the same pick, but each has its own slow start of an endpoint.
        if algorithm != Algorithm::Maglev
            && let Some(health) = health.filter(|health| health.any_slow_start())
        {
            start_slowly(&mut members, health, serving);
        }
        let shares = shares(&members);
        let weights = Weights::new(shares.iter().map(|&(_, share)| share.into()))?;
        let several = frontend.failover.is_some() && frontend.backends.len() > 1;
        let identity = |place: u32| serving.get(place as usize).map_or(0, |it| identity(frontend, it.addr));
        let clusters = several.then(|| clusters(frontend, &members, &shares, identity));
        let (balancer, clusters) = match (inside(algorithm), clusters) {
            (Some(inside), Some(clusters)) => {
                (Balancer::of_clusters(inside, weights, clusters, known), Box::default())
            }
            (_, clusters) => {
                let identities = shares.iter().map(|&(place, _)| identity(place));
                let balancer = Balancer::new(algorithm, weights, identities, known);
                (
                    balancer,
                    clusters.map(|clusters| cluster_of_each(&clusters, shares.len())).unwrap_or_default(),
                )
            }
        };
        Some(Self {
            balancer,
            clusters,
            places: (shares.len() < serving.len()).then(|| shares.iter().map(|&(place, _)| place).collect()),
            turn: previous.map_or(0, Self::peek_turn).into(),
            spares: spares(frontend, candidates, health, serving, &shares),
            trials: trials(frontend, candidates, health, serving, &shares),
        })
    }

    /// The Maglev tables of the balancer.
    pub(super) fn maglevs(&self) -> Vec<Arc<Maglev>> {
        self.balancer.maglevs()
    }

    fn len(&self) -> usize {
        self.balancer.weights().len()
    }

    /// Index in the serving endpoints of the candidate with this index.
    fn place(&self, index: usize) -> usize {
        match &self.places {
            None => index,
            Some(places) => places.get(index).map_or(usize::MAX, |&place| place as usize),
        }
    }

    /// The candidates' indices with their shares, in ascending order.
    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, u64)> {
        self.balancer.weights().iter().enumerate().map(|(index, share)| (self.place(index), share))
    }

    /// Whether the serving endpoint with this index is a candidate.
    pub(super) fn contains(&self, place: usize) -> bool {
        self.places.as_ref().is_none_or(|places| places.binary_search(&(place as u32)).is_ok())
    }

    /// The endpoints to avoid: `tried`, or none once every candidate was tried.
    pub(super) fn avoidable<'a>(
        &self,
        tried: &'a [EndpointAddr],
        serving: &ServingEndpoints,
    ) -> &'a [EndpointAddr] {
        if self.is_exhausted(tried, serving) { &[] } else { tried }
    }

    fn is_exhausted(&self, tried: &[EndpointAddr], serving: &ServingEndpoints) -> bool {
        let was_tried = |index| serving.get(self.place(index)).is_none_or(|it| tried.contains(&it.addr));
        tried.len() >= self.len() && (0..self.len()).all(was_tried)
    }

    /// The turn of the next choice, without taking it.
    pub(super) fn peek_turn(&self) -> usize {
        self.turn.load(Ordering::Relaxed)
    }

    /// Takes the turn of a choice.
    pub(super) fn take_turn(&self) -> usize {
        if self.balancer.takes_turns() { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 }
    }

    /// Index of the balancer's choice.
    pub(super) fn choose(
        &self,
        client_hash: u64,
        turn: usize,
        request: &PickRequest<'_>,
        serving: &ServingEndpoints,
    ) -> usize {
        let endpoint = |index| serving.get(self.place(index));
        let load = |index| endpoint(index).map_or(0, |it| it.load.for_choice());
        let input = PickInput { hash: client_hash, random: request.random, turn, load: &load, tried: None };
        if request.tried.is_empty() {
            return self.place(self.balancer.choose(&input));
        }
        if let Some(spare) = self.spare(request, serving) {
            return spare;
        }
        let tried = self.avoidable(request.tried, serving);
        let was_tried = |index: usize| endpoint(index).is_some_and(|it| tried.contains(&it.addr));
        let suspicious = self.suspicious_clusters(&was_tried);
        let avoided = |index: usize| {
            was_tried(index) || self.clusters.get(index).is_some_and(|cluster| suspicious.contains(cluster))
        };
        let input = PickInput { tried: if tried.is_empty() { None } else { Some(&avoided) }, ..input };
        self.place(self.balancer.choose(&input))
    }

    /// Clusters to blame for the failures rather than their endpoints; none if there is no other cluster to try.
    fn suspicious_clusters(&self, was_tried: Tried<'_>) -> Vec<u64> {
        let clusters = || self.clusters.iter().enumerate();
        let mut failed: Vec<u64> =
            clusters().filter(|(index, _)| was_tried(*index)).map(|(_, cluster)| *cluster).collect();
        failed.sort_unstable();
        let blamed = failed.chunk_by(u64::eq).filter(|failures| failures.len() >= SUSPICIOUS);
        let blamed: Vec<u64> = blamed.filter_map(|failures| failures.first().copied()).collect();
        let others = |(index, cluster): (usize, &u64)| !was_tried(index) && !blamed.contains(cluster);
        if clusters().any(others) { blamed } else { Vec::new() }
    }

    /// Takes the trial of an endpoint, if one is on offer; returns the endpoint's index.
    pub(super) fn take_trial(&self, request: &PickRequest<'_>) -> Option<usize> {
        // A client whose flow has failed before is not put at risk.
        let mut trials = self.trials.iter().filter(|_| request.tried.is_empty());
        trials.find(|(_, trial)| trial.take()).map(|&(place, _)| place as usize)
    }

    /// An endpoint of the next tier, if the failures suggest that the clusters in use are to blame, or if all of them were tried.
    fn spare(&self, request: &PickRequest<'_>, serving: &ServingEndpoints) -> Option<usize> {
        let tried = request.tried;
        if self.spares.is_empty() || (tried.len() < SUSPICIOUS && !self.is_exhausted(tried, serving)) {
            return None;
        }
        let first = (hash::mix(request.random) % self.spares.len() as u64) as usize;
        let mut in_turn = self.spares.iter().cycle().skip(first).take(self.spares.len());
        let untried =
            |place: &&u32| serving.get(**place as usize).is_some_and(|spare| !tried.contains(&spare.addr));
        in_turn.find(untried).map(|&place| place as usize)
    }
}

/// Resolves candidates to the backend's index, the backend and the endpoint. Skips those that name no endpoint.
fn resolve<'a>(
    frontend: &'a Frontend,
    candidates: &'a [Candidate],
) -> impl Iterator<Item = (u32, &'a Backend, &'a Endpoint)> {
    candidates.iter().filter_map(|candidate| {
        let backend = frontend.backends.get(candidate.backend as usize)?;
        Some((candidate.backend, backend, backend.endpoints.get(candidate.endpoint as usize)?))
    })
}

fn is_unhealthy(endpoint: &Endpoint, health: Option<&ServiceHealth>) -> bool {
    health.is_some_and(|health| health.reason(endpoint.addr).is_some())
}

/// Whether the endpoint may get new connections if it is healthy.
fn may_serve(backend: &Backend, endpoint: &Endpoint) -> bool {
    backend.weight.0 > 0 && endpoint.weight.0 > 0 && endpoint.state == EndpointState::Ready
}

fn has_share(shares: &[(u32, u32)], place: u32) -> bool {
    shares.binary_search_by_key(&place, |&(place, _)| place).is_ok()
}

/// Maximum number of simultaneous trials of a frontend: each new flow checks them.
const MOST_TRIALS: usize = 16;

/// Candidates that are on trial. Excludes those of standby clusters: no client leaves the clusters in use for a trial.
fn trials(
    frontend: &Frontend,
    candidates: &[Candidate],
    health: Option<&ServiceHealth>,
    serving: &ServingEndpoints,
    shares: &[(u32, u32)],
) -> Box<[(u32, Arc<Trial>)]> {
    let on_trial = |endpoint: &Endpoint| health.and_then(|health| health.trial(endpoint.addr));
    if !resolve(frontend, candidates).any(|(_, _, endpoint)| on_trial(endpoint).is_some()) {
        return Box::default();
    }
    let place = |endpoint: &Endpoint| Some(serving.position(endpoint.addr)? as u32);
    let is_in_use = |endpoint: &Endpoint| place(endpoint).is_some_and(|place| has_share(shares, place));
    let in_use = resolve(frontend, candidates).filter(|(_, _, endpoint)| is_in_use(endpoint));
    let last_tier = in_use.map(|(_, backend, _)| backend.priority).max();
    let usable = resolve(frontend, candidates)
        .filter(|(_, backend, endpoint)| Some(backend.priority) <= last_tier && may_serve(backend, endpoint));
    let trial = |(_, _, endpoint): (u32, &Backend, &Endpoint)| {
        Some((place(endpoint)?, Arc::clone(on_trial(endpoint)?)))
    };
    usable.filter_map(trial).take(MOST_TRIALS).collect()
}

/// The healthy candidates of the first tier without a share, in ascending order.
fn spares(
    frontend: &Frontend,
    candidates: &[Candidate],
    health: Option<&ServiceHealth>,
    serving: &ServingEndpoints,
    shares: &[(u32, u32)],
) -> Box<[u32]> {
    if frontend.failover.is_none() {
        return Box::default();
    }
    let spare = |(_, backend, endpoint): (u32, &Backend, &Endpoint)| {
        let place = serving.position(endpoint.addr)? as u32;
        let serves =
            may_serve(backend, endpoint) && !is_unhealthy(endpoint, health) && !has_share(shares, place);
        serves.then_some((backend.priority, place))
    };
    let all: Vec<(u32, u32)> = resolve(frontend, candidates).filter_map(spare).collect();
    let next = all.iter().map(|&(priority, _)| priority).min();
    let mut spares: Vec<u32> =
        all.into_iter().filter(|&(priority, _)| Some(priority) == next).map(|(_, place)| place).collect();
    spares.sort_unstable();
    spares.dedup();
    spares.into()
}

/// The candidates' indices with their weights on both levels.
fn members(
    frontend: &Frontend,
    candidates: &[Candidate],
    health: Option<&ServiceHealth>,
    serving: &ServingEndpoints,
) -> Vec<(u32, Member)> {
    let resolved = || resolve(frontend, candidates);
    let place = |endpoint: &Endpoint| serving.position(endpoint.addr).unwrap_or_default() as u32;
    let all_healthy = resolved().all(|(_, _, endpoint)| !is_unhealthy(endpoint, health));
    if frontend.failover.is_none() && all_healthy {
        let plain = |(number, backend, endpoint): (u32, &Backend, &Endpoint)| Member {
            backend: number,
            backend_weight: backend.weight.0.into(),
            weight: endpoint.weight.0.into(),
        };
        return resolved().map(|found| (place(found.2), plain(found))).collect();
    }
    // If all are Terminating, that does not distinguish them.
    let any_ready = resolved().any(|(_, _, endpoint)| endpoint.state == EndpointState::Ready);
    let of_health = |(backend, _, endpoint): (u32, &Backend, &Endpoint)| {
        let counts = endpoint.state == EndpointState::Ready || !any_ready;
        let healthy = counts && !is_unhealthy(endpoint, health);
        (place(endpoint), FailoverCandidate { backend, weight: endpoint.weight, healthy })
    };
    let (places, judged): (Vec<_>, Vec<_>) = resolved().map(of_health).unzip();
    let members = failover::members(&frontend.backends, &judged, FailoverRules::of(frontend));
    places.into_iter().zip(members).collect()
}

/// Reduces the weights of endpoints in slow start.
fn start_slowly(members: &mut [(u32, Member)], health: &ServiceHealth, serving: &ServingEndpoints) {
    for (place, member) in members {
        let endpoint = serving.get(*place as usize);
        let parts = endpoint.and_then(|endpoint| health.slow_start(endpoint.addr)).unwrap_or(FULL_SHARE);
        member.weight = member.weight.saturating_mul(parts.into());
    }
}

/// The share of each index, sorted. Endpoints of share 0 are omitted, so affinity does not keep clients there either. An address in two
/// backends is one endpoint with the sum of both shares.
fn shares(members: &[(u32, Member)]) -> Vec<(u32, u32)> {
    let (places, members): (Vec<_>, Vec<_>) = members.iter().copied().unzip();
    let mut shares: Vec<_> = places.into_iter().zip(shares::fold(&members)).collect();
    shares.retain(|&(_, share)| share > 0);
    shares.sort_unstable();
    shares.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    shares
}

/// Identity of an endpoint for hashing. If affinity covers the whole Service, all ports of a host have the same identity, so that all
/// ports of the Service, and all gateways, make the same first pick.
fn identity(frontend: &Frontend, endpoint: EndpointAddr) -> u64 {
    match frontend.affinity {
        Affinity::ClientIp { scope: AffinityScope::Service, .. } => {
            hash::endpoint(EndpointAddr { port: 0, ..endpoint })
        }
        Affinity::ClientIp { scope: AffinityScope::Port, .. } | Affinity::None => hash::endpoint(endpoint),
    }
}

/// Choice of an endpoint inside its cluster, for algorithms that choose a cluster first. The others use the shares of all endpoints, and
/// regard clusters only after failures.
fn inside(algorithm: Algorithm) -> Option<Inside> {
    match algorithm {
        Algorithm::Maglev => Some(Inside::Maglev),
        Algorithm::LeastConnections => Some(Inside::LeastConnections),
        Algorithm::RoundRobin | Algorithm::Random => None,
    }
}

/// The identity of the cluster of each of `count` candidates.
fn cluster_of_each(clusters: &[ClusterSpec], count: usize) -> Box<[u64]> {
    let mut of_each = vec![0; count].into_boxed_slice();
    for cluster in clusters {
        for member in &cluster.members {
            if let Some(of_one) = of_each.get_mut(member.index as usize) {
                *of_one = cluster.identity;
            }
        }
    }
    of_each
}

/// The members with a share by cluster, in the order of the clusters' identities: the order of backends may differ between gateways.
fn clusters(
    frontend: &Frontend,
    members: &[(u32, Member)],
    shares: &[(u32, u32)],
    identity: impl Fn(u32) -> u64,
) -> Vec<ClusterSpec> {
    let mut loads: BTreeMap<u64, (BTreeMap<u32, u64>, Vec<ClusterMember>)> = BTreeMap::new();
    for (place, member) in members {
        let index = shares.binary_search_by_key(place, |&(place, _)| place);
        let (Ok(index), Some(backend)) = (index, frontend.backends.get(member.backend as usize)) else {
            continue;
        };
        if member.weight > 0 && member.backend_weight > 0 {
            let (loads, members) = loads.entry(hash::cluster(&backend.cluster)).or_default();
            loads.insert(member.backend, member.backend_weight);
            let (index, identity) = (index as u32, identity(*place));
            members.push(ClusterMember { index, identity, weight: member.weight });
        }
    }
    let cluster = |(identity, (loads, mut members)): (u64, (BTreeMap<u32, u64>, Vec<_>))| {
        members.sort_unstable_by_key(|member: &ClusterMember| member.index);
        ClusterSpec { identity, load: loads.into_values().sum(), members }
    };
    loads.into_iter().map(cluster).collect()
}
