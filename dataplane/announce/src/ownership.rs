//! Which candidate owns which address: a pure function that every gateway computes alike.
//!
//! Rendezvous hashing with a bounded share. Each address prefers candidates in the order of their scores for it, and a candidate takes those that
//! score best with it, up to its share (deferred acceptance: the result does not depend on any order of input). A score is the *rank* of the address
//! among all by the hash of address and candidate. Ranks are spread evenly where hashes are not, so that fewer addresses hit the bound.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::Claim;
use crate::ability::InterfaceId;
use crate::hash::{mix, name_hash};
use crate::heartbeat::Applied;
use crate::membership::{Candidate, Standing, view_hash};

mod handover;

#[cfg(test)]
mod tests;

pub use handover::{Handover, HandoverSteps};

/// The largest share, as a multiple of the mean.
///
/// 1,000 addresses on 10 gateways of which one leaves, 1,000 times; 100 must move in the mean. `moves_by_share` prints this:
///
/// | share | moves, mean | moves, at most |
/// |---|---|---|
/// | 100 % | 116 | 131 |
/// | 102 % | 110 | 125 |
/// | 104 % | 106 | 119 |
/// | 106 % | 104 | 119 |
/// | 108 % | 102 | 117 |
/// | 110 % | 101 | 117 |
/// | no bound | 100 | 120 |
///
/// A lower bound moves more addresses of those who stay; a higher one moves as many when the fullest gateway leaves.
const SHARE_PERCENT: usize = 108;

/// Why nobody owns an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoOwner {
    /// This gateway does not know: it is fenced, or has just begun.
    Unknown,
    /// There is no candidate.
    NoCandidate,
    /// None of the candidates can serve it.
    CannotServe,
    /// Each gateway that can serve it announces it, and this one can.
    Shared,
    /// Each gateway that can serve it announces it, and this one cannot.
    SharedElsewhere,
}

/// Owners of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Node of the owner of each claimed address, or why nobody owns it.
    pub owners: BTreeMap<IpAddr, Result<Arc<str>, NoOwner>>,
    /// The hash of the candidates, and of `owners`: gateways with the same agree about everything.
    pub applied: Applied,
}

impl Assignment {
    /// Node whose gateway owns an address.
    pub fn owner(&self, address: &IpAddr) -> Option<&Arc<str>> {
        self.owners.get(address)?.as_ref().ok()
    }
}

/// Assigns each claimed address to one of the candidates that can serve it and are in its network: first to one whose view of the API
/// server is new. Where nobody is in the network, any of those who can serve it owns it: it says why nobody answers, and announces the address as
/// soon as it can.
pub fn assign(candidates: &[Candidate], claims: &BTreeMap<IpAddr, Claim>) -> Assignment {
    assign_within(SHARE_PERCENT, candidates, claims)
}

fn assign_within(percent: usize, candidates: &[Candidate], claims: &BTreeMap<IpAddr, Claim>) -> Assignment {
    let mut candidates: Vec<&Candidate> = candidates.iter().collect();
    candidates.sort_unstable_by(|one, other| one.node.cmp(&other.node));
    candidates.dedup_by(|one, other| one.node == other.node);
    let ranks = Ranks::new(&candidates, claims.keys());
    let owned = Matching::new(&ranks, percent, &candidates, claims).solve();
    let owner = |index: &Option<usize>| match index.and_then(|index| candidates.get(index)) {
        Some(candidate) => Ok(candidate.node.clone()),
        None if candidates.is_empty() => Err(NoOwner::NoCandidate),
        None => Err(NoOwner::CannotServe),
    };
    let names: Vec<u64> = candidates.iter().map(|candidate| name_hash(&candidate.node)).collect();
    let name = |index: &Option<usize>| index.and_then(|index| names.get(index)).copied().unwrap_or(0);
    let hash = claims
        .keys()
        .zip(&owned)
        .fold(1, |hash, (address, index)| mix(mix(hash ^ address_hash(*address)) ^ name(index)));
    let owners = claims.keys().copied().zip(owned.iter().map(owner)).collect();
    let applied = Applied { view: view_hash(candidates.iter().copied()), assignment: hash.max(1) };
    Assignment { owners, applied }
}

/// Whether a candidate may own an address, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Fitness {
    /// May own it.
    Fit,
    /// Its view of the API server is old, and another one may.
    Stale,
    /// No interface in the network of the address.
    OutOfReach,
    /// No endpoint, or left out by the pool.
    CannotServe,
}

/// Whether each of the candidates may own an address. If all who can serve it are stale, or out of reach, those are fit.
fn fitness(candidates: &[&Candidate], address: IpAddr, claim: &Claim) -> Vec<Fitness> {
    let interfaces = InterfaceId::all(&claim.interfaces);
    let fitness = |candidate: &&Candidate| match () {
        () if !claim.nodes.contains(&candidate.node) => Fitness::CannotServe,
        () if !candidate.ability.reach.contains(address, &interfaces) => Fitness::OutOfReach,
        () if candidate.stale => Fitness::Stale,
        () => Fitness::Fit,
    };
    let mut all: Vec<Fitness> = candidates.iter().map(fitness).collect();
    let best = [Fitness::Fit, Fitness::Stale, Fitness::OutOfReach].into_iter().find(|it| all.contains(it));
    all.iter_mut().filter(|fitness| Some(**fitness) == best).for_each(|fitness| *fitness = Fitness::Fit);
    all
}

/// Deferred acceptance (Gale and Shapley) of addresses by candidates.
struct Matching<'a> {
    ranks: &'a Ranks,
    /// How many addresses each candidate takes.
    shares: Vec<usize>,
    /// For each address, whether each candidate may own it.
    fit: Vec<Vec<bool>>,
    /// The addresses that each candidate holds, the worst on top.
    held: Vec<BinaryHeap<Reverse<(u64, usize)>>>,
}

impl<'a> Matching<'a> {
    fn new(
        ranks: &'a Ranks,
        percent: usize,
        candidates: &[&Candidate],
        claims: &BTreeMap<IpAddr, Claim>,
    ) -> Self {
        let weight = |candidate: &&Candidate| usize::from(candidate.ability.weight);
        // Those with an old view own little or nothing, unless all have one.
        let counts = |candidate: &&&Candidate| !candidate.stale || candidates.iter().all(|one| one.stale);
        let weights: usize = candidates.iter().filter(counts).map(weight).sum();
        let share = |candidate| (claims.len() * percent * weight(candidate)).div_ceil(100 * weights.max(1));
        let fit = |(address, claim): (&IpAddr, &Claim)| {
            fitness(candidates, *address, claim).into_iter().map(|it| it == Fitness::Fit).collect()
        };
        Self {
            ranks,
            shares: candidates.iter().map(share).collect(),
            fit: claims.iter().map(fit).collect(),
            held: vec![BinaryHeap::new(); candidates.len()],
        }
    }

    /// The index of each address's owner.
    fn solve(mut self) -> Vec<Option<usize>> {
        let addresses = self.fit.len();
        let mut owners = vec![None; addresses];
        for address in 0..addresses {
            let mut seeks = Some((address, u64::MAX));
            while let Some((address, below)) = seeks {
                // Whom all reject is served by its first choice above the share, where it goes before all that have a choice.
                let rejected = || self.best(address, u64::MAX).map(|(_, node)| (u64::MAX, node));
                let Some((score, node)) = self.best(address, below).or_else(rejected) else { break };
                if let Some(owner) = owners.get_mut(address) {
                    *owner = Some(node);
                }
                seeks = self.offer(node, score, address);
            }
        }
        owners
    }

    /// The candidate with the best score below this one.
    fn best(&self, address: usize, below: u64) -> Option<(u64, usize)> {
        let fit = self.fit.get(address);
        let is_fit = |node: usize| fit.is_some_and(|fit| fit.get(node) == Some(&true));
        let scores = self.ranks.scores(address).iter().copied().enumerate();
        scores.filter(|&(node, score)| score < below && is_fit(node)).map(|(node, score)| (score, node)).max()
    }

    /// Offers an address to a candidate; returns the one that it rejects for it, and its score.
    fn offer(&mut self, node: usize, score: u64, address: usize) -> Option<(usize, u64)> {
        let share = *self.shares.get(node)?;
        let held = self.held.get_mut(node)?;
        held.push(Reverse((score, address)));
        let over = held.len() > share && held.peek().is_some_and(|Reverse((score, _))| *score < u64::MAX);
        if !over {
            return None;
        }
        held.pop().map(|Reverse((score, address))| (address, score))
    }
}

/// The score of each address with each candidate. No two scores of an address are equal.
struct Ranks {
    scores: Vec<u64>,
    candidates: usize,
}

impl Ranks {
    /// A candidate has as many ranks as its weight, and the best of them counts: so it comes first for as many addresses.
    fn new<'a>(candidates: &[&Candidate], addresses: impl Iterator<Item = &'a IpAddr>) -> Self {
        let hashes: Vec<u64> = addresses.map(|address| address_hash(*address)).collect();
        let mut scores = vec![0; hashes.len() * candidates.len()];
        // Fewer ranks serve as well where all weights have a divisor.
        let weights = candidates.iter().map(|candidate| candidate.ability.weight);
        let divisor = weights.reduce(greatest_common_divisor).unwrap_or(1).max(1);
        let numbered = |(index, candidate): (usize, &&Candidate)| {
            let name = name_hash(&candidate.node);
            (0..u64::from(candidate.ability.weight / divisor))
                .map(move |number| (index, name.wrapping_add(number)))
        };
        for (node, name) in candidates.iter().enumerate().flat_map(numbered) {
            let mut order: Vec<(u64, usize)> = hashes.iter().map(|hash| mix(hash ^ name)).zip(0..).collect();
            order.sort_unstable();
            for (rank, (hash, address)) in order.into_iter().enumerate() {
                // The hash decides between equal ranks, and the lowest bits between equal hashes.
                let score = (rank as u64) << 32 | (hash >> 32) & !0xffff | (node as u64 & 0xffff);
                if let Some(place) = scores.get_mut(address * candidates.len() + node) {
                    *place = score.max(*place);
                }
            }
        }
        Self { scores, candidates: candidates.len() }
    }

    /// The scores of an address, by candidate.
    fn scores(&self, address: usize) -> &[u64] {
        self.scores.get(address * self.candidates..(address + 1) * self.candidates).unwrap_or_default()
    }
}

fn greatest_common_divisor(one: u8, other: u8) -> u8 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

fn address_hash(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => mix(address.to_bits().into()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            mix(mix((bits >> 64) as u64) ^ bits as u64)
        }
    }
}

/// A member in the ranking of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// Its node.
    pub node: Arc<str>,
    /// Why it owns the address or does not.
    pub reason: RankReason,
}

/// Why a member owns an address or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankReason {
    /// Owns the address.
    Owner,
    /// No endpoint, or left out by the pool.
    CannotServe,
    /// No interface in the network of the address.
    OutOfReach,
    /// Has its share of addresses that score better with it.
    OverShare,
    /// Another one scores better.
    LowerRank,
    /// Not a candidate.
    NotCandidate(Standing),
}

/// The candidates by rank for this address, then the other members; none if nobody claims it.
pub fn explain(
    address: IpAddr,
    standings: &BTreeMap<Arc<str>, Standing>,
    candidates: &[Candidate],
    claims: &BTreeMap<IpAddr, Claim>,
) -> Option<Vec<Ranked>> {
    let claim = claims.get(&address)?;
    let index = claims.keys().position(|claimed| *claimed == address)?;
    let assignment = assign(candidates, claims);
    let owner = assignment.owner(&address);

    let candidates: Vec<&Candidate> = candidates.iter().collect();
    let ranks = Ranks::new(&candidates, claims.keys());
    let fitness = fitness(&candidates, address, claim);
    let mut ranking: Vec<_> = candidates.iter().zip(ranks.scores(index)).zip(fitness).collect();
    ranking.sort_by_key(|((_, score), _)| Reverse(**score));
    let mut seen = false;
    let mut reason = |node: &Arc<str>, fitness| match fitness {
        _ if owner == Some(node) => {
            seen = true;
            RankReason::Owner
        }
        Fitness::CannotServe => RankReason::CannotServe,
        Fitness::OutOfReach => RankReason::OutOfReach,
        Fitness::Stale => RankReason::NotCandidate(Standing::Stale),
        Fitness::Fit if seen => RankReason::LowerRank,
        Fitness::Fit => RankReason::OverShare,
    };
    let ranked = ranking.into_iter().map(|((candidate, _), fitness)| Ranked {
        node: candidate.node.clone(),
        reason: reason(&candidate.node, fitness),
    });
    let is_candidate = |node: &str| candidates.iter().any(|candidate| *candidate.node == *node);
    let others = standings.iter().filter(|(node, _)| !is_candidate(node));
    let others = others
        .map(|(node, standing)| Ranked { node: node.clone(), reason: RankReason::NotCandidate(*standing) });
    Some(ranked.chain(others).collect())
}
