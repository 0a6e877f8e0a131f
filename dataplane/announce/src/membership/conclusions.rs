//! What a gateway concludes from what it has heard: who counts, whether it has a quorum, who may own addresses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Membership;
use super::options::margin;
use super::peer::{Listing, Peer};
use super::quorum::{Others, Quorum, quorum_until};
use super::view::{self, Candidate, Standing, View, view_hash};
use crate::ability::Reach;
use crate::network::Network;

/// How long a member that the API server has never listed counts for the quorum once it is silent: the API server must have heard of it by then.
const UNLISTED: Duration = Duration::from_mins(1);

impl Membership {
    /// This process did not run: its leases are over, and the silence is its own.
    pub(super) fn stand_still(&mut self, now: Instant) {
        self.counters.standstills += 1;
        self.listening_since = now;
        self.sent.clear();
        self.tie_breaker = None;
        self.peers.iter_mut().for_each(|peer| peer.excuse(now));
    }

    /// Forgets who is neither listed nor heard.
    pub(super) fn retire(&mut self, now: Instant) {
        let kept = UNLISTED.max(self.options.fail_after_max * 4);
        let listed = |peer: &Peer| matches!(peer.listing, Listing::Ready | Listing::NotReady);
        self.peers.retain(|peer| listed(peer) || now < peer.heard_at.max(peer.since) + kept);
    }

    /// Whether a member counts for the quorum.
    pub(super) fn counts(&self, peer: &Peer, now: Instant) -> bool {
        let heard = peer.is_heard(self.fail_after.judged(), now) || peer.via.is_some();
        match peer.listing {
            _ if peer.state.left => false,
            _ if heard => true,
            Listing::Ready => true,
            Listing::Never => peer.known && !peer.dead && now < peer.heard_at + UNLISTED,
            Listing::NotReady | Listing::Removed => false,
        }
    }

    /// How many members count, this gateway included.
    pub(super) fn members(&self, now: Instant) -> usize {
        1 + self.peers.iter().filter(|peer| self.counts(peer, now)).count()
    }

    fn tie_breaker_until(&self) -> Option<Instant> {
        self.tie_breaker
            .map(|pinged_at| pinged_at + self.options.fail_after - margin(self.options.fail_after))
    }

    pub(super) fn tie_breaker_holds(&self, now: Instant) -> bool {
        self.tie_breaker_until().is_some_and(|until| now < until)
            && !self.is_opposed(now)
            && !self.is_outvoted(now)
    }

    /// Whether others say that more than half of the members are alive which this gateway has long not heard: these take it for dead, and
    /// what it has.
    fn is_outvoted(&self, now: Instant) -> bool {
        let long = self.fail_after.judged() * 2;
        let elsewhere =
            |peer: &&Peer| peer.via.is_some() && !peer.has_lease(now) && now >= peer.heard_at + long;
        self.peers.iter().filter(elsewhere).count() * 2 > self.members(now)
    }

    /// When the quorum ends if nothing is heard.
    pub(super) fn quorum_until(&self) -> Option<Instant> {
        let tie = self.tie_breaker_until().filter(|_| !self.is_opposed(self.last_poll));
        let until = self.leases_until(tie).max(self.standby.inherited());
        until.filter(|until| *until > self.last_poll)
    }

    fn leases_until(&self, tie: Option<Instant>) -> Option<Instant> {
        let counted = self.peers.iter().filter(|peer| self.counts(peer, self.last_poll));
        let leases = counted.filter_map(|peer| peer.lease_until).collect();
        quorum_until(leases, self.view.quorum.members, tie)
    }

    /// Until when there are leases of a majority, and from when on a few more lost heartbeats would end that: others are asked to answer
    /// at once in this time. Without loss it hardly ever comes to that: what is echoed is two intervals old at most.
    pub(super) fn lease_risk(&self) -> Option<Range<Instant>> {
        let until = self.leases_until(None).filter(|_| !self.standby.fenced)?;
        Some(until.checked_sub(self.options.fail_after / 3)?..until)
    }

    /// Fences or ends the fence; true if it has just been fenced.
    pub(super) fn update_quorum(&mut self, stood_still: bool, now: Instant) -> bool {
        let votes = self.peers.iter().filter(|peer| self.counts(peer, now) && peer.has_lease(now)).count();
        let tie_breaker = self.tie_breaker_holds(now);
        self.view.quorum = Quorum { votes: 1 + votes, members: self.members(now), tie_breaker };
        let inherited = self.standby.inherited().is_some_and(|until| now < until);
        let lost = stood_still || !(self.view.quorum.holds() || inherited);
        if lost || self.must_give_way(inherited, now) {
            let fenced = self.standby.fence(now);
            if fenced {
                self.peers.iter_mut().for_each(|peer| peer.was_away = !peer.state.eligible);
            }
            self.end_minority();
            self.counters.fences += u64::from(fenced);
            self.urgent |= fenced;
            return fenced;
        }
        let unfenced = self.standby.unfence(now);
        self.urgent |= unfenced;
        false
    }

    /// What the others were while this gateway could own nothing.
    pub(super) fn others(&self, now: Instant) -> Others {
        let since = self.standby.away_since();
        let said = |peer: &Peer| peer.last.as_ref().is_some_and(|last| last.received >= since);
        let eligible = || {
            let told = |peer: &&Peer| peer.via.is_some() || said(peer);
            self.peers.iter().filter(|peer| peer.is_eligible()).filter(told)
        };
        // Whoever is not ready, or not known to the API server yet, may own something as well.
        let possible = |peer: &&Peer| {
            let listed = matches!(peer.listing, Listing::Ready | Listing::NotReady);
            !peer.dead && !peer.state.left && (listed || self.counts(peer, now))
        };
        let mut possible = self.peers.iter().filter(possible).peekable();
        Others {
            eligible: eligible().next().is_some(),
            went_on: eligible().any(|peer| !peer.was_away),
            complete: possible.peek().is_some()
                && possible.all(|peer| said(peer) && peer.is_heard(self.fail_after.judged(), now)),
        }
    }

    /// Computes the view; true if it is another one.
    pub(super) fn update_view(&mut self, now: Instant) -> bool {
        let peers = self
            .peers
            .iter()
            .map(|peer| (peer.node.clone(), view::standing(peer.is_alive(), self.regard(peer, now))));
        let own = (self.options.node.clone(), view::standing(true, self.state()));
        let mut standings: BTreeMap<_, _> = peers.chain([own]).collect();
        self.stale_split.update(&mut standings, now);
        let ability = |node: &str| match self.peers.binary_search_by(|peer| (*peer.node).cmp(node)) {
            Ok(index) => self.peers.get(index).map(|peer| &peer.ability),
            Err(_) => None,
        };
        let ability = |node: &str| Arc::clone(ability(node).unwrap_or(self.reaching.told()));
        let candidates = view::candidates(&standings);
        let candidate = |node: &Arc<str>| Candidate {
            node: node.clone(),
            ability: ability(node),
            stale: standings.get(node) == Some(&Standing::Stale),
        };
        let candidates: Vec<_> = candidates.map(candidate).collect();
        // Nothing has been concluded yet if it is 0.
        let same = self.view.hash != 0 && candidates == self.view.candidates;
        let view = View {
            hash: if same { self.view.hash } else { view_hash(&candidates) },
            candidates,
            standings,
            quorum: self.view.quorum,
            fenced: self.standby.fenced,
            eligible: self.standby.eligible,
            listening: self.view.listening && now < self.listening_since + self.fail_after.promised(),
        };
        let relevant = |view: &View| (view.fenced, view.listening);
        let changed = !same || relevant(&view) != relevant(&self.view);
        self.view = view;
        changed
    }
}

/// Whether one of these that may own addresses is in a network.
pub(super) fn reached(peers: &[Peer]) -> impl Fn(Network) -> bool {
    |network| {
        let reaches = |peer: &Peer| match &peer.ability.reach {
            Reach::Everywhere => true,
            Reach::Subnets(subnets) => subnets.iter().any(|subnet| subnet.network.overlaps(network)),
        };
        peers.iter().any(|peer| peer.is_eligible() && reaches(peer))
    }
}
