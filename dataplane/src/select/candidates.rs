//! The candidates of one route with their balancer: what a pick chooses from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sheave_model::{Algorithm, Backend, Candidate, Endpoint, EndpointAddr, EndpointState, Frontend};

use super::PickRequest;
use super::endpoint_load::{EndpointLoad, ServingEndpoints};
use super::unhealthy::Unhealthy;
use crate::balance::clusters::{ClusterMember, ClusterSpec, Clusters, Inside, SUSPICIOUS};
use crate::balance::failover::{self, FailoverCandidate};
use crate::balance::shares::{self, Member};
use crate::balance::weights::Weights;
use crate::balance::{Balance, Balancer, PickInput, hash};

/// One endpoint that may be chosen.
#[derive(Debug)]
struct Choice {
    addr: EndpointAddr,
    share: u32,
    load: Arc<EndpointLoad>,
}

/// Candidates ready for choosing; never empty.
#[derive(Debug)]
pub(super) struct Candidates {
    algorithm: Algorithm,
    /// Sorted by address.
    choices: Box<[Choice]>,
    /// Healthy candidates of the next tier, for connections that keep failing: until the chosen endpoints count as unhealthy,
    /// nothing spills over. Their indices follow those of `choices`.
    spares: Box<[Choice]>,
    balancer: Balancer,
    /// Choices so far. Only round robin counts them: other algorithms need no cache line that every pick writes.
    turn: Option<AtomicUsize>,
}

impl Candidates {
    /// Prepares `candidates` with the loads in `serving`. Returns one of `known` if it is the same, so that its turns and Maglev
    /// table are kept; otherwise turns continue from the first of `known`, or each change would begin with the first endpoint
    /// again. `None` without candidates.
    pub(super) fn compile(
        frontend: &Frontend,
        algorithm: Algorithm,
        candidates: &[Candidate],
        unhealthy: &Unhealthy,
        serving: &ServingEndpoints,
        known: &[&Arc<Self>],
    ) -> Option<Arc<Self>> {
        let members = members(frontend, candidates, unhealthy);
        let shares = shares(&members);
        let several = frontend.failover.is_some() && frontend.backends.len() > 1;
        let clusters = inside(algorithm)
            .filter(|_| several)
            .map(|inside| (inside, clusters(frontend, &members, &shares)));
        let spares = spares(frontend, candidates, unhealthy, &shares);
        let same = |known: &&&Arc<Self>| {
            known.is(algorithm, &shares, clusters.as_ref())
                && known.spares.iter().map(|spare| spare.addr).eq(spares.iter().copied())
        };
        if let Some(same) = known.iter().find(same) {
            return Some(Arc::clone(same));
        }
        let weights: Vec<u32> = shares.iter().map(|&(_, share)| share).collect();
        let weights = Weights::new(&weights)?;
        let balancer = match clusters {
            Some((inside, clusters)) => {
                let known = known.iter().find_map(|known| known.clusters());
                Balancer::Clusters(Clusters::new(inside, clusters, known))
            }
            None => {
                let identities = shares.iter().map(|&(addr, _)| hash::endpoint(addr)).collect();
                Balancer::new(algorithm, weights, identities)
            }
        };
        let turn = known.first().map_or(0, |known| known.peek_turn());
        let load = |addr| serving.load(addr).cloned().unwrap_or_default();
        Some(Arc::new(Self {
            algorithm,
            balancer,
            choices: shares
                .into_iter()
                .map(|(addr, share)| Choice { addr, share, load: load(addr) })
                .collect(),
            spares: spares.into_iter().map(|addr| Choice { addr, share: 0, load: load(addr) }).collect(),
            turn: (algorithm == Algorithm::RoundRobin).then(|| AtomicUsize::new(turn)),
        }))
    }

    fn is(
        &self,
        algorithm: Algorithm,
        shares: &[(EndpointAddr, u32)],
        clusters: Option<&(Inside, Vec<ClusterSpec>)>,
    ) -> bool {
        let same_clusters = match (self.clusters(), clusters) {
            (None, None) => true,
            (Some(own), Some((inside, clusters))) => own.is_over(*inside, clusters),
            _ => false,
        };
        self.algorithm == algorithm && self.shares().eq(shares.iter().copied()) && same_clusters
    }

    fn clusters(&self) -> Option<&Clusters> {
        match &self.balancer {
            Balancer::Clusters(clusters) => Some(clusters),
            _ => None,
        }
    }

    /// The candidate at `index`.
    pub(super) fn get(&self, index: usize) -> Option<(EndpointAddr, &Arc<EndpointLoad>)> {
        let spare = || self.spares.get(index.checked_sub(self.choices.len())?);
        self.choices.get(index).or_else(spare).map(|choice| (choice.addr, &choice.load))
    }

    /// The candidates with their shares, sorted.
    pub(super) fn shares(&self) -> impl Iterator<Item = (EndpointAddr, u32)> {
        self.choices.iter().map(|choice| (choice.addr, choice.share))
    }

    /// The index of the endpoint.
    pub(super) fn position(&self, endpoint: EndpointAddr) -> Option<usize> {
        self.choices.binary_search_by_key(&endpoint, |choice| choice.addr).ok()
    }

    /// The endpoints to avoid: `tried`, or none once every candidate was tried.
    pub(super) fn avoidable<'a>(&self, tried: &'a [EndpointAddr]) -> &'a [EndpointAddr] {
        if self.is_exhausted(tried) { &[] } else { tried }
    }

    fn is_exhausted(&self, tried: &[EndpointAddr]) -> bool {
        tried.len() >= self.choices.len() && self.choices.iter().all(|choice| tried.contains(&choice.addr))
    }

    /// The turn of the next choice, for a preview.
    pub(super) fn peek_turn(&self) -> usize {
        self.turn.as_ref().map_or(0, |turn| turn.load(Ordering::Relaxed))
    }

    /// The turn of a choice.
    pub(super) fn take_turn(&self) -> usize {
        self.turn.as_ref().map_or(0, |turn| turn.fetch_add(1, Ordering::Relaxed))
    }

    /// The balancer's choice.
    pub(super) fn choose(&self, client_hash: u64, turn: usize, request: &PickRequest<'_>) -> usize {
        if let Some(spare) = self.spare(request) {
            return spare;
        }
        let tried = self.avoidable(request.tried);
        let was_tried =
            |index: usize| self.choices.get(index).is_some_and(|choice| tried.contains(&choice.addr));
        self.balancer.choose(&PickInput {
            hash: client_hash,
            random: request.random,
            turn,
            load: &|index| self.choices.get(index).map_or(0, |choice| choice.load.active()),
            tried: if tried.is_empty() { None } else { Some(&was_tried) },
        })
    }

    /// An endpoint of the next tier, when the clusters in use are to blame for the failures, or all of them were tried.
    fn spare(&self, request: &PickRequest<'_>) -> Option<usize> {
        let tried = request.tried;
        if self.spares.is_empty() || tried.is_empty() {
            return None;
        }
        if tried.len() < SUSPICIOUS && !self.is_exhausted(tried) {
            return None;
        }
        let first = (hash::mix(request.random) % self.spares.len() as u64) as usize;
        let mut in_turn = (first..self.spares.len()).chain(0..first);
        let untried = |place: &usize| self.spares.get(*place).is_some_and(|it| !tried.contains(&it.addr));
        in_turn.find(untried).map(|place| self.choices.len() + place)
    }
}

/// Looks candidates up: index of the backend, backend and endpoint. Leaves out those that name no endpoint.
fn resolve<'a>(
    frontend: &'a Frontend,
    candidates: &'a [Candidate],
) -> impl Iterator<Item = (u32, &'a Backend, &'a Endpoint)> {
    candidates.iter().filter_map(|candidate| {
        let backend = frontend.backends.get(candidate.backend as usize)?;
        Some((candidate.backend, backend, backend.endpoints.get(candidate.endpoint as usize)?))
    })
}

/// Whether the endpoint is Ready and not known to be unhealthy.
fn is_healthy(frontend: &Frontend, endpoint: &Endpoint, unhealthy: &Unhealthy) -> bool {
    endpoint.state == EndpointState::Ready && !unhealthy.contains(frontend.addr.protocol, endpoint.addr)
}

/// The healthy candidates of the first tier without a share, sorted by address.
fn spares(
    frontend: &Frontend,
    candidates: &[Candidate],
    unhealthy: &Unhealthy,
    shares: &[(EndpointAddr, u32)],
) -> Vec<EndpointAddr> {
    if frontend.failover.is_none() {
        return Vec::new();
    }
    let spare = |(_, backend, endpoint): (u32, &Backend, &Endpoint)| {
        let serves = backend.weight.0 > 0
            && endpoint.weight.0 > 0
            && is_healthy(frontend, endpoint, unhealthy)
            && shares.binary_search_by_key(&endpoint.addr, |&(addr, _)| addr).is_err();
        serves.then_some((backend.priority, endpoint.addr))
    };
    let all: Vec<(u32, EndpointAddr)> = resolve(frontend, candidates).filter_map(spare).collect();
    let next = all.iter().map(|&(priority, _)| priority).min();
    let mut spares: Vec<EndpointAddr> =
        all.into_iter().filter(|&(priority, _)| Some(priority) == next).map(|(_, addr)| addr).collect();
    spares.sort_unstable();
    spares.dedup();
    spares
}

/// The candidates with their weights on both levels.
fn members(
    frontend: &Frontend,
    candidates: &[Candidate],
    unhealthy: &Unhealthy,
) -> Vec<(EndpointAddr, Member)> {
    let resolved = resolve(frontend, candidates);
    let Some(rules) = &frontend.failover else {
        let plain = |(number, backend, endpoint): (u32, &Backend, &Endpoint)| Member {
            backend: number,
            backend_weight: backend.weight.0.into(),
            weight: endpoint.weight.0.into(),
        };
        return resolved.map(|found| (found.2.addr, plain(found))).collect();
    };
    let place = |(backend, _, endpoint): (u32, &Backend, &Endpoint)| {
        let healthy = is_healthy(frontend, endpoint, unhealthy);
        (endpoint.addr, FailoverCandidate { backend, weight: endpoint.weight, healthy })
    };
    let (addresses, places): (Vec<_>, Vec<_>) = resolved.map(place).unzip();
    addresses.into_iter().zip(failover::members(&frontend.backends, &places, rules)).collect()
}

/// The share of each endpoint, sorted by address. Endpoints of share 0 are left out, so affinity does not keep clients
/// there either. One address in two backends is one endpoint with the sum of both shares.
fn shares(members: &[(EndpointAddr, Member)]) -> Vec<(EndpointAddr, u32)> {
    let (addresses, members): (Vec<_>, Vec<_>) = members.iter().copied().unzip();
    let mut shares: Vec<_> = addresses.into_iter().zip(shares::fold(&members)).collect();
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

/// How the algorithms that choose a cluster first choose an endpoint inside it. The others use the shares of all endpoints.
fn inside(algorithm: Algorithm) -> Option<Inside> {
    match algorithm {
        Algorithm::Maglev => Some(Inside::Maglev),
        Algorithm::LeastConnections => Some(Inside::LeastConnections),
        Algorithm::RoundRobin | Algorithm::Random => None,
    }
}

/// The members that have a share by cluster, in the order of the clusters' identities: the order of backends may differ
/// between gateways.
fn clusters(
    frontend: &Frontend,
    members: &[(EndpointAddr, Member)],
    shares: &[(EndpointAddr, u32)],
) -> Vec<ClusterSpec> {
    let mut loads: BTreeMap<u64, (BTreeMap<u32, u64>, Vec<ClusterMember>)> = BTreeMap::new();
    for (addr, member) in members {
        let place = shares.binary_search_by_key(addr, |&(addr, _)| addr);
        let (Ok(index), Some(backend)) = (place, frontend.backends.get(member.backend as usize)) else {
            continue;
        };
        if member.weight > 0 && member.backend_weight > 0 {
            let (loads, members) = loads.entry(hash::cluster(&backend.cluster)).or_default();
            loads.insert(member.backend, member.backend_weight);
            let (index, identity) = (index as u32, hash::endpoint(*addr));
            members.push(ClusterMember { index, identity, weight: member.weight });
        }
    }
    let cluster = |(identity, (loads, mut members)): (u64, (BTreeMap<u32, u64>, Vec<_>))| {
        members.sort_unstable_by_key(|member: &ClusterMember| member.index);
        ClusterSpec { identity, load: loads.into_values().sum(), members }
    };
    loads.into_iter().map(cluster).collect()
}
