//! Which candidate owns which address: a pure function that every gateway computes alike.
//!
//! Rendezvous hashing with a bounded share. Each address prefers candidates in the order of their scores for it, and a candidate takes those that
//! score best with it, up to its share (deferred acceptance: the result does not depend on any order of input). A score is the *rank* of the address
//! among all by the hash of address and candidate. Ranks are spread evenly where hashes are not, so that fewer addresses hit the bound.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::claim::Claim;
use crate::hash::{mix, name_hash};
use crate::heartbeat::Applied;
use crate::membership::view_hash;

mod explain;
mod handover;
mod rank;

#[cfg(test)]
mod tests;

pub use explain::{RankReason, Ranked, explain};
pub use handover::{Handover, HandoverSteps, Waiting};

use rank::Ranks;

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

/// Who owns an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The gateway of this node.
    Node(Arc<str>),
    /// Nobody.
    None(NoOwner),
}

/// Why nobody owns an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoOwner {
    /// There is no candidate.
    NoCandidate,
    /// None of the candidates can serve it.
    CannotServe,
}

/// Who owns what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The owner of each claimed address.
    pub owners: BTreeMap<IpAddr, Owner>,
    /// The hash of the candidates, and of `owners`: gateways with the same agree about everything.
    pub applied: Applied,
}

impl Owner {
    /// The node, if there is one.
    pub fn node(&self) -> Option<&Arc<str>> {
        match self {
            Self::Node(node) => Some(node),
            Self::None(_) => None,
        }
    }
}

/// Assigns each claimed address to one of the candidates.
pub fn assign(candidates: &[Arc<str>], claims: &BTreeMap<IpAddr, Claim>) -> Assignment {
    assign_within(SHARE_PERCENT, candidates, claims)
}

fn assign_within(percent: usize, candidates: &[Arc<str>], claims: &BTreeMap<IpAddr, Claim>) -> Assignment {
    let mut candidates = candidates.to_vec();
    candidates.sort_unstable();
    candidates.dedup();
    let ranks = Ranks::new(&candidates, claims.keys());
    let share = (claims.len() * percent).div_ceil(100 * candidates.len().max(1));
    let owned = Matching::new(&ranks, share, &candidates, claims).solve();
    let owner = |index: &Option<usize>| match index.and_then(|index| candidates.get(index)) {
        Some(node) => Owner::Node(node.clone()),
        None if candidates.is_empty() => Owner::None(NoOwner::NoCandidate),
        None => Owner::None(NoOwner::CannotServe),
    };
    let names: Vec<u64> = candidates.iter().map(|node| name_hash(node)).collect();
    let name = |index: &Option<usize>| index.and_then(|index| names.get(index)).copied().unwrap_or(0);
    let hash = claims
        .keys()
        .zip(&owned)
        .fold(1, |hash, (address, index)| mix(mix(hash ^ rank::address_hash(*address)) ^ name(index)));
    let owners = claims.keys().copied().zip(owned.iter().map(owner)).collect();
    let applied = Applied { view: view_hash(&candidates), assignment: hash.max(1) };
    Assignment { owners, applied }
}

/// Deferred acceptance (Gale and Shapley) of addresses by candidates.
struct Matching<'a> {
    ranks: &'a Ranks,
    share: usize,
    /// For each address, the candidates that can serve it; none = all.
    allowed: Vec<Option<Vec<bool>>>,
    /// The addresses that each candidate holds, the worst on top.
    held: Vec<BinaryHeap<Reverse<(u64, usize)>>>,
}

impl<'a> Matching<'a> {
    fn new(ranks: &'a Ranks, share: usize, nodes: &[Arc<str>], claims: &BTreeMap<IpAddr, Claim>) -> Self {
        let allowed = |claim: &Claim| match &claim.nodes {
            crate::Nodes::Any => None,
            only => Some(nodes.iter().map(|node| only.contains(node)).collect()),
        };
        let held = vec![BinaryHeap::new(); nodes.len()];
        Self { ranks, share, allowed: claims.values().map(allowed).collect(), held }
    }

    /// The index of each address's owner.
    fn solve(mut self) -> Vec<Option<usize>> {
        let addresses = self.allowed.len();
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
        let allowed = self.allowed.get(address).and_then(Option::as_ref);
        let can_serve = |node: usize| allowed.is_none_or(|allowed| allowed.get(node) == Some(&true));
        let scores = self.ranks.scores(address).iter().copied().enumerate();
        scores
            .filter(|&(node, score)| score < below && can_serve(node))
            .map(|(node, score)| (score, node))
            .max()
    }

    /// Offers an address to a candidate; returns the one that it rejects for it, and its score.
    fn offer(&mut self, node: usize, score: u64, address: usize) -> Option<(usize, u64)> {
        let held = self.held.get_mut(node)?;
        held.push(Reverse((score, address)));
        let over =
            held.len() > self.share && held.peek().is_some_and(|Reverse((score, _))| *score < u64::MAX);
        if !over {
            return None;
        }
        held.pop().map(|Reverse((score, address))| (address, score))
    }
}
