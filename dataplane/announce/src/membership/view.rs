//! Which members are candidates for addresses, and why the others are not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::quorum::Quorum;
use crate::ability::Ability;
use crate::hash::{mix, name_hash};
use crate::heartbeat::NodeState;

/// How a member stands with regard to owning addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may own some.
    Candidate,
    /// It has not been heard, or it is proved that it has fenced itself.
    NotAlive,
    /// It is about to stop: it owns addresses as long as nobody else can.
    Leaving,
    /// It is about to stop, and announces nothing any more.
    Left,
    /// It has no quorum, or has not had one for long enough.
    NotEligible,
    /// Its view of the API server is old, and another's is not: it owns what no other one can.
    Stale,
}

/// A member that may own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its node.
    pub node: Arc<str>,
    /// What it is able to own.
    pub ability: Arc<Ability>,
    /// Its view of the API server is old: it owns what no other one can.
    pub stale: bool,
}

/// What a gateway concludes from heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Who may own addresses, sorted.
    pub candidates: Vec<Candidate>,
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
        NodeState { left: true, .. } => Standing::Left,
        NodeState { eligible: false, .. } => Standing::NotEligible,
        NodeState { leaving: true, .. } => Standing::Leaving,
        NodeState { stale: true, .. } => Standing::Stale,
        _ => Standing::Candidate,
    }
}

/// How long some must have been without the API server, and the others not, before those go first. An outage is noticed by one gateway
/// after the other, and so is its end: without a wait, addresses would move to and fro.
pub(super) const SPLIT: Duration = Duration::from_secs(30);

/// The members with an old view while others have a new one, and since when these have been the ones.
#[derive(Debug, Default)]
pub(super) struct StaleSplit {
    stale: Vec<Arc<str>>,
    since: Option<Instant>,
}

impl View {
    /// Whether the gateway of this node may own addresses.
    pub(crate) fn is_candidate(&self, node: &str) -> bool {
        self.candidates.iter().any(|candidate| *candidate.node == *node)
    }
}

impl StaleSplit {
    /// Follows the standings. Those with an old view are candidates like the others, unless the split has lasted.
    pub(super) fn update(&mut self, standings: &mut BTreeMap<Arc<str>, Standing>, now: Instant) {
        let of =
            |wanted| standings.iter().filter(move |(_, it)| **it == wanted).map(|(node, _)| node.clone());
        let stale: Vec<Arc<str>> =
            if of(Standing::Candidate).next().is_some() { of(Standing::Stale).collect() } else { Vec::new() };
        if stale != self.stale {
            self.since = (!stale.is_empty()).then_some(now);
            self.stale = stale;
        }
        if self.since.is_none_or(|since| now < since + SPLIT) {
            let stale = standings.values_mut().filter(|standing| **standing == Standing::Stale);
            stale.for_each(|standing| *standing = Standing::Candidate);
        }
    }

    /// When it has lasted, if that is still to come.
    pub(super) fn due(&self, after: Instant) -> Option<Instant> {
        self.since.map(|since| since + SPLIT).filter(|due| *due > after)
    }
}

/// The names of the candidates, sorted. Where all are about to stop, they serve on until they do.
pub(super) fn candidates(standings: &BTreeMap<Arc<str>, Standing>) -> impl Iterator<Item = &Arc<str>> {
    let stays = |standing: &Standing| matches!(standing, Standing::Candidate | Standing::Stale);
    let all_leave = !standings.values().any(stays);
    let owns = move |standing: &Standing| stays(standing) || all_leave && *standing == Standing::Leaving;
    standings.iter().filter(move |(_, standing)| owns(standing)).map(|(node, _)| node)
}

/// The hash of the candidates, in order, and of what they are able to own. Not 0.
pub(crate) fn view_hash<'a>(candidates: impl IntoIterator<Item = &'a Candidate>) -> u64 {
    let hash = |hash, Candidate { node, ability, stale }: &Candidate| {
        mix(mix(hash ^ name_hash(node)) ^ ability.hash() ^ u64::from(*stale))
    };
    candidates.into_iter().fold(1, hash).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_the_api_server_go_second_only_once_the_split_has_lasted() {
        use Standing::{Candidate, Stale};
        let (mut split, start) = (StaleSplit::default(), Instant::now());
        let mut at = |seconds: u64, stands: &[(&str, Standing)]| {
            let mut standings = stands.iter().map(|(node, it)| (Arc::from(*node), *it)).collect();
            split.update(&mut standings, start + Duration::from_secs(seconds));
            let fresh = candidates(&standings).filter(|node| standings[*node] == Candidate);
            fresh.map(|node| &**node).collect::<Vec<_>>().join(" ")
        };
        let one = [("a", Stale), ("b", Candidate), ("c", Candidate)];
        assert_eq!(at(0, &one), "a b c", "an outage may just begin");
        assert_eq!(at(29, &one), "a b c");
        assert_eq!(at(30, &one), "b c");
        let two = [("a", Stale), ("b", Stale), ("c", Candidate)];
        assert_eq!(at(31, &two), "a b c", "the others follow");
        let all = [("a", Stale), ("b", Stale), ("c", Stale)];
        assert_eq!(at(40, &all), "a b c");
        assert_eq!(at(100, &all), "a b c");
        assert_eq!(at(101, &two), "a b c", "one is back before the others");
        assert_eq!(at(130, &two), "a b c");
        assert_eq!(split.due(start), Some(start + Duration::from_secs(131)));
    }
}
