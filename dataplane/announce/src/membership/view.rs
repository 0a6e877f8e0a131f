//! Which members are candidates for addresses, and why the others are not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::quorum::Quorum;
use crate::hash::{mix, name_hash};
use crate::heartbeat::NodeState;

/// How a member stands with regard to owning addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may own some.
    Candidate,
    /// It has not been heard, or it is proved that it has fenced itself.
    NotAlive,
    /// It is about to stop.
    Leaving,
    /// It has no quorum, or has not had one for long enough.
    NotEligible,
    /// Its view of the API server is old, and another's is not.
    Stale,
}

/// What a gateway concludes from heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Who may own addresses, sorted.
    pub candidates: Vec<Arc<str>>,
    /// The hash of the candidates.
    pub hash: u64,
    /// All known members.
    pub standings: BTreeMap<Arc<str>, Standing>,
    /// Who supports this gateway.
    pub quorum: Quorum,
    /// It has no quorum: it announces nothing.
    pub fenced: bool,
    /// It may own addresses.
    pub eligible: bool,
    /// A continued process has not listened for long enough yet: keep what is announced, and change nothing.
    pub listening: bool,
}

/// The standing of a member that says this.
pub(super) fn standing(alive: bool, state: NodeState) -> Standing {
    match state {
        _ if !alive => Standing::NotAlive,
        NodeState { leaving: true, .. } => Standing::Leaving,
        NodeState { eligible: false, .. } => Standing::NotEligible,
        NodeState { stale: true, .. } => Standing::Stale,
        _ => Standing::Candidate,
    }
}

/// The candidates, once it is known that those with an old view are not the only ones.
pub(super) fn candidates(standings: &mut BTreeMap<Arc<str>, Standing>) -> Vec<Arc<str>> {
    if standings.values().all(|standing| *standing != Standing::Candidate) {
        let stale = standings.values_mut().filter(|standing| **standing == Standing::Stale);
        stale.for_each(|standing| *standing = Standing::Candidate);
    }
    let candidates = standings.iter().filter(|(_, standing)| **standing == Standing::Candidate);
    candidates.map(|(node, _)| node.clone()).collect()
}

/// The hash of the candidates, in order. Not 0.
pub(crate) fn view_hash(candidates: &[Arc<str>]) -> u64 {
    candidates.iter().fold(1, |hash, node| mix(hash ^ name_hash(node))).max(1)
}
