//! Which members are candidates for addresses, why the others are not, and which of them follow the view of this gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Membership;
use super::peer::Listing;
use super::quorum::Quorum;
use crate::ability::Ability;
use crate::hash::{mix, name_hash};
use crate::heartbeat::{Applied, NodeState};

/// How a member stands with regard to owning addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// May own some.
    Candidate,
    /// Never heard, or proved to have fenced itself.
    NotAlive,
    /// About to stop: owns addresses as long as no other gateway can.
    Leaving,
    /// About to stop, and announces nothing any more.
    Left,
    /// Without a quorum, or not for long enough with one.
    NotEligible,
    /// Its view of the API server has long been old, and another's was not: it owns what no other one can.
    Stale,
}

/// A member that may own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its node.
    pub node: Arc<str>,
    /// Its ability to own addresses.
    pub ability: Arc<Ability>,
    /// Others go first, as their views of the API server are newer: it owns what no other one can.
    pub stale: bool,
}

/// Conclusions of a gateway from heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Gateways that may own addresses, sorted.
    pub candidates: Vec<Candidate>,
    /// The hash of the candidates.
    pub hash: u64,
    /// All known members.
    pub standings: BTreeMap<Arc<str>, Standing>,
    /// Support of this gateway.
    pub quorum: Quorum,
    /// Without a quorum: announces nothing.
    pub fenced: bool,
    /// May own addresses.
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

impl View {
    /// Whether the gateway of this node may own addresses.
    pub(crate) fn is_candidate(&self, node: &str) -> bool {
        self.candidates.iter().any(|candidate| *candidate.node == *node)
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

impl Membership {
    /// The members that may announce something.
    pub fn alive(&self) -> impl Iterator<Item = &Arc<str>> {
        let alive = self.peers.iter().filter(|peer| peer.known || peer.listing == Listing::Ready);
        alive.filter(|peer| !peer.dead).map(|peer| &peer.node)
    }

    /// Whether a member follows the view that this gateway has applied: a heartbeat that it sent since then shows the same.
    /// An older one would not do: the member may have followed others in between.
    pub fn agrees(&self, node: &str, view: u64, now: Instant) -> bool {
        view == self.applied.view && self.shows(node, self.view_at, |applied| applied.view == view)
            || self.announces_nothing(node, now)
    }

    /// Whether a member announces nothing but what it owns by the assignment that this gateway has applied.
    pub fn has_released(&self, node: &str, assignment: u64, now: Instant) -> bool {
        assignment == self.applied.assignment
            && self.shows(node, self.assignment_at, |applied| applied.assignment == assignment)
            || self.announces_nothing(node, now)
    }

    /// Whether a member is ready to take over what this gives it.
    pub fn follows(&self, node: &str, applied: Applied, now: Instant) -> bool {
        let long_ago = self.listening_since;
        self.shows(node, long_ago, |shown| shown == applied) || self.announces_nothing(node, now)
    }

    /// How long an address is waited for that a member may announce which does not show what it follows: it has had two leases' time for that, by the
    /// longest that one of those who are alive gives.
    pub fn patience(&self) -> Duration {
        let given = self.peers.iter().filter(|peer| !peer.dead).filter_map(|peer| peer.last.as_ref());
        let longest = given.map(|last| last.fail_after.min(self.options.fail_after_max)).max();
        longest.unwrap_or_default().max(self.fail_after.promised()) * 2
    }

    /// Whether it is not there, dead, or has said lately that it announces nothing; once it may again, it waits for this gateway. Whoever is fenced must
    /// have said so to a gateway that is not: of two that were fenced, each would take what the other said then for a release otherwise.
    fn announces_nothing(&self, node: &str, now: Instant) -> bool {
        self.peer(node).is_none_or(|peer| {
            let recent = peer.last.as_ref().is_some_and(|last| now < last.lease());
            let to_this = peer.last.as_ref().is_some_and(|last| last.proof >= self.standby.since);
            peer.dead || (recent && (peer.state.fenced && to_this || peer.state.left))
        })
    }

    /// Whether a heartbeat that the member sent since then shows this.
    fn shows(&self, node: &str, since: Instant, what: impl Fn(Applied) -> bool) -> bool {
        let last = self.peer(node).and_then(|peer| peer.last.as_ref());
        last.is_some_and(|last| last.proof >= since && what(last.applied))
    }
}
