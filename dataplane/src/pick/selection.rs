//! The candidates of one route with their balancer: what a pick chooses from.
//!
//! It must not know routes' policies, affinity records or frontends' addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::serving::Serving;
use super::{EndpointLoad, PickRequest};
use crate::balance::shares::{self, Member};
use crate::balance::weights::Weights;
use crate::balance::{Balance, Balancer, Question, hash};
use crate::model::{Algorithm, Candidate, EndpointAddr, Frontend};

/// One endpoint that may be chosen.
#[derive(Debug)]
struct Choice {
    addr: EndpointAddr,
    share: u32,
    load: Arc<EndpointLoad>,
}

/// Candidates ready for choosing; never empty.
#[derive(Debug)]
pub(super) struct Selection {
    algorithm: Algorithm,
    /// Sorted by address.
    choices: Box<[Choice]>,
    balancer: Balancer,
    /// Choices so far; only round robin counts them, so that others do not share a written cache line.
    turn: Option<AtomicUsize>,
}

impl Selection {
    /// The selection over `candidates` with the loads that `serving` has; one of `known` if it is the same, so that its
    /// turns and Maglev table are kept. Else turns go on from the first known, or each change would begin with the
    /// first endpoint again. `None` without candidates.
    pub(super) fn compile(
        frontend: &Frontend,
        algorithm: Algorithm,
        candidates: &[Candidate],
        serving: &Serving,
        known: &[&Arc<Self>],
    ) -> Option<Arc<Self>> {
        let shares = shares(frontend, candidates);
        if let Some(same) = known.iter().find(|known| known.is(algorithm, &shares)) {
            return Some(Arc::clone(same));
        }
        let weights: Vec<u32> = shares.iter().map(|&(_, share)| share).collect();
        let identities = shares.iter().map(|&(addr, _)| hash::endpoint(addr)).collect();
        let turn = known.first().map_or(0, |known| known.this_turn());
        let load = |addr| serving.load(addr).cloned().unwrap_or_default();
        Some(Arc::new(Self {
            algorithm,
            balancer: Balancer::new(algorithm, Weights::new(&weights)?, identities),
            choices: shares
                .into_iter()
                .map(|(addr, share)| Choice { addr, share, load: load(addr) })
                .collect(),
            turn: (algorithm == Algorithm::RoundRobin).then(|| AtomicUsize::new(turn)),
        }))
    }

    fn is(&self, algorithm: Algorithm, shares: &[(EndpointAddr, u32)]) -> bool {
        let own = self.choices.iter().map(|choice| (choice.addr, choice.share));
        self.algorithm == algorithm && own.eq(shares.iter().copied())
    }

    /// The candidate at `index`.
    pub(super) fn get(&self, index: usize) -> Option<(EndpointAddr, &Arc<EndpointLoad>)> {
        self.choices.get(index).map(|choice| (choice.addr, &choice.load))
    }

    /// The candidates, sorted.
    pub(super) fn addresses(&self) -> impl Iterator<Item = EndpointAddr> {
        self.choices.iter().map(|choice| choice.addr)
    }

    /// Where the endpoint is among the candidates.
    pub(super) fn position(&self, endpoint: EndpointAddr) -> Option<usize> {
        self.choices.binary_search_by_key(&endpoint, |choice| choice.addr).ok()
    }

    /// The part of `tried` that matters: none of it once every candidate was tried.
    pub(super) fn avoidable<'a>(&self, tried: &'a [EndpointAddr]) -> &'a [EndpointAddr] {
        let exhausted = || self.choices.iter().all(|choice| tried.contains(&choice.addr));
        if tried.len() >= self.choices.len() && exhausted() { &[] } else { tried }
    }

    /// The turn of a choice that is only looked at.
    pub(super) fn this_turn(&self) -> usize {
        self.turn.as_ref().map_or(0, |turn| turn.load(Ordering::Relaxed))
    }

    /// The turn of a choice that is made.
    pub(super) fn take_turn(&self) -> usize {
        self.turn.as_ref().map_or(0, |turn| turn.fetch_add(1, Ordering::Relaxed))
    }

    /// The balancer's choice.
    pub(super) fn choose(&self, client_hash: u64, turn: usize, request: &PickRequest<'_>) -> usize {
        let tried = self.avoidable(request.tried);
        let was_tried =
            |index: usize| self.choices.get(index).is_some_and(|choice| tried.contains(&choice.addr));
        self.balancer.choose(&Question {
            hash: client_hash,
            random: request.random,
            turn,
            load: &|index| self.choices.get(index).map_or(0, |choice| choice.load.active()),
            tried: if tried.is_empty() { None } else { Some(&was_tried) },
        })
    }
}

/// The share of each endpoint, sorted by address. Endpoints of share 0 are left out, so affinity does not keep clients
/// there either. One address in two backends is one endpoint with both shares.
fn shares(frontend: &Frontend, candidates: &[Candidate]) -> Vec<(EndpointAddr, u32)> {
    let member = |candidate: &Candidate| {
        let backend = frontend.backends.get(candidate.backend as usize)?;
        let endpoint = backend.endpoints.get(candidate.endpoint as usize)?;
        let member =
            Member { backend: candidate.backend, backend_weight: backend.weight, weight: endpoint.weight };
        Some((endpoint.addr, member))
    };
    let (addresses, members): (Vec<_>, Vec<_>) = candidates.iter().filter_map(member).unzip();
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
