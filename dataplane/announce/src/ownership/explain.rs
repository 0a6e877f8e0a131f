//! Why an address is where it is.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{assign, rank::Ranks};
use crate::claim::Claim;
use crate::membership::Standing;

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
    claims: &BTreeMap<IpAddr, Claim>,
) -> Option<Vec<Ranked>> {
    let claim = claims.get(&address)?;
    let index = claims.keys().position(|claimed| *claimed == address)?;
    let (candidates, others): (Vec<_>, Vec<_>) =
        standings.iter().partition(|(_, standing)| **standing == Standing::Candidate);
    let candidates: Vec<Arc<str>> = candidates.into_iter().map(|(node, _)| node.clone()).collect();
    let assignment = assign(&candidates, claims);
    let owner = assignment.owners.get(&address)?.node();

    let ranks = Ranks::new(&candidates, claims.keys());
    let mut ranking: Vec<_> = candidates.iter().zip(ranks.scores(index)).collect();
    ranking.sort_by_key(|(_, score)| Reverse(**score));
    let mut seen = false;
    let mut reason = |node: &Arc<str>| {
        if owner == Some(node) {
            seen = true;
            return RankReason::Owner;
        }
        match () {
            () if !claim.nodes.contains(node) => RankReason::CannotServe,
            () if seen => RankReason::LowerRank,
            () => RankReason::OverShare,
        }
    };
    let ranked = ranking.into_iter().map(|(node, _)| Ranked { node: node.clone(), reason: reason(node) });
    let others = others
        .into_iter()
        .map(|(node, standing)| Ranked { node: node.clone(), reason: RankReason::NotCandidate(*standing) });
    Some(ranked.chain(others).collect())
}
