//! Why an address is where it is.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Fitness, assign, fitness, rank::Ranks};
use crate::Claim;
use crate::membership::{Candidate, Standing};

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
    /// It does.
    Owner,
    /// It has no endpoint, or the pool leaves it out.
    CannotServe,
    /// It has no interface in the network of the address.
    OutOfReach,
    /// It has its share of addresses that score better with it.
    OverShare,
    /// Another one scores better.
    LowerRank,
    /// It is not a candidate.
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
    let owner = assignment.owners.get(&address)?.node();

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
