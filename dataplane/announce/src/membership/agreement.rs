//! What the others follow: whether a gateway may announce what it gains.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Membership;
use super::peer::{Listing, Peer};
use crate::heartbeat::Applied;

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
            let to_this = peer.last.as_ref().is_some_and(|last| last.proof >= self.standby.unfenced_since());
            peer.dead || (recent && (peer.state.fenced && to_this || peer.state.left))
        })
    }

    /// Whether a heartbeat that the member sent since then shows this.
    fn shows(&self, node: &str, since: Instant, what: impl Fn(Applied) -> bool) -> bool {
        let last = self.peer(node).and_then(|peer| peer.last.as_ref());
        last.is_some_and(|last| last.proof >= since && what(last.applied))
    }

    fn peer(&self, node: &str) -> Option<&Peer> {
        let index = self.peers.binary_search_by(|peer| (*peer.node).cmp(node)).ok()?;
        self.peers.get(index)
    }
}
