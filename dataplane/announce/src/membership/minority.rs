//! Going on without a majority: the gateways that the tie-breaker answers own all addresses until they hear the others again.
//!
//! The others may be dead, or own the same addresses in another part of the network. Once both parts hear each other, one of them gives way: the part
//! without a majority, and of two such parts the one whose first name comes later. It fences itself, and so waits for its hold-down: a link
//! that flaps moves no addresses to and fro. Until then the members of one part are no candidates for the other.

use std::time::Instant;

use super::Membership;
use super::peer::Peer;
use crate::heartbeat::NodeState;

/// How long the other part is waited for to give way, in times of `fail_after`.
const PATIENCE: u32 = 4;

/// Whether this gateway goes on without a majority.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Minority {
    /// Without a majority, and others are taken for dead.
    pub(super) goes_on: bool,
    /// Lost the majority, and has not settled with the others since.
    unsettled: bool,
    /// How many members its part of the network had, itself included.
    votes: usize,
    /// Since when it has a majority again.
    majority_since: Option<Instant>,
}

impl Membership {
    /// Whether this gateway has no majority, as of the last poll.
    pub(super) fn is_minority(&self) -> bool {
        !self.view.quorum.is_majority() && self.standby.inherited.is_none_or(|until| until < self.last_poll)
    }

    /// Which gateway keeps an address that this one and another one announce. The leases that a process before this one had do not say how many there were.
    /// Half of the members exclude a majority elsewhere only while they are heard: a lease outlasts that where its giver allows for long round trips,
    /// and it may be among others by then. Nor do they where some joined a part that had fewer: they may still be part of a majority.
    pub fn precedence(&self) -> Precedence {
        let quorum = self.view.quorum;
        let (judged, now) = (self.fail_after.judged(), self.last_poll);
        let together =
            |peer: &&Peer| peer.is_heard(judged, now) && peer.has_lease(now) && self.counts(peer, now);
        let half = |votes: usize| votes * 2 == quorum.members;
        let had_half = !self.minority.unsettled || half(self.minority.votes);
        match () {
            () if quorum.is_majority() => Precedence::Own,
            () if had_half && half(1 + self.peers.iter().filter(together).count()) => Precedence::LowerMac,
            () => Precedence::Other,
        }
    }

    /// Whether a gateway may go on elsewhere with what this one has: not all others are heard, or they have not settled with it. Who has a majority answers
    /// a rival's announcement; without one this gateway announces its addresses in turn, so that a rival that comes in sight learns of it and
    /// answers. Heartbeats may not arrive where frames do.
    pub fn may_have_rivals(&self) -> bool {
        let judged = self.fail_after.judged();
        let elsewhere = |peer: &Peer| !peer.is_heard(judged, self.last_poll) || peer.parted.is_some();
        !self.standby.fenced && self.peers.iter().any(|peer| !peer.state.left && elsewhere(peer))
    }

    /// Whether this gateway may become eligible: without a majority only after it has listened for the others.
    pub(super) fn may_be_eligible(&self) -> bool {
        !self.is_minority() || self.minority.goes_on
    }

    /// Whether the tie-breaker's answer is needed now, or may be within a moment: whoever joins and gives no lease takes the majority away once it counts.
    pub fn needs_tie_breaker(&self) -> bool {
        let quorum = self.view.quorum;
        let joins = self.peers.iter().any(|peer| peer.is_joining(self.last_poll));
        let even_or_lost = quorum.members.is_multiple_of(2) || !quorum.is_majority();
        joins || quorum.members > 1 && (even_or_lost || self.doubts)
    }

    /// Follows what the quorum has become. Whether this gateway hears others again that went on as well, and is the one to give way.
    pub(super) fn must_give_way(&mut self, inherited: bool, now: Instant) -> bool {
        if !(self.view.quorum.is_majority() || inherited) {
            let mut dead = self.peers.iter_mut().filter(|peer| peer.dead).peekable();
            let goes_on = self.minority.goes_on || dead.peek().is_some();
            dead.for_each(|peer| _ = peer.parted.get_or_insert_default());
            self.urgent |= goes_on && !self.minority.goes_on;
            // Who is heard again before it has a majority was not of its part.
            let votes = self.view.quorum.votes;
            let votes = if self.minority.unsettled { votes.min(self.minority.votes) } else { votes };
            self.minority = Minority { goes_on, unsettled: true, votes, majority_since: None };
            return false;
        }
        if !self.minority.unsettled {
            return false;
        }
        let since = *self.minority.majority_since.get_or_insert(now);
        let own = self.view.candidates.first().map(|candidate| &candidate.node);
        // Whoever does not go on without a majority has one, if there are enough others for it. Otherwise it has not gone on yet.
        let outvoted = self.minority.votes * 2 < self.view.quorum.members;
        // A gateway that hears both parts has the first name in each: then those decide who still own addresses apart.
        let undecided = now >= since + self.fail_after.judged();
        let precedes = |peer: &Peer| undecided && peer.node < self.options.node;
        let rivals = || self.peers.iter().filter(|peer| self.is_rival(peer, now));
        let gives_way = rivals().any(|peer| match peer.state.minority {
            true => own.is_none_or(|own| peer.node < *own) || precedes(peer),
            false => outvoted,
        });
        // All who are back have been heard by then.
        let heard_all = now >= since + self.options.interval * 2;
        if heard_all && !gives_way && !rivals().any(|peer| peer.state.minority) {
            self.minority = Minority::default();
            self.peers.iter_mut().filter(|peer| !peer.dead).for_each(|peer| peer.parted = None);
            self.urgent = true;
        }
        gives_way
    }

    /// Whether a member is heard that owns addresses without this gateway.
    fn is_rival(&self, peer: &Peer, now: Instant) -> bool {
        peer.is_heard(self.fail_after.judged(), now) && peer.state.eligible && self.went_apart(peer, now)
    }

    /// Whether one of the two went on without the other, and they have not settled since.
    fn went_apart(&self, peer: &Peer, now: Instant) -> bool {
        let says = || peer.last.as_ref().is_some_and(|last| last.went_on_without(self.id));
        peer.parted.is_some() || peer.is_heard(self.fail_after.judged(), now) && says()
    }

    /// Forgets the other part: this gateway has given up its addresses.
    pub(super) fn end_minority(&mut self) {
        self.minority = Minority::default();
        self.peers.iter_mut().for_each(|peer| peer.parted = None);
    }

    /// Forgets that members were taken for dead who are back, and do not give way.
    pub(super) fn welcome_back(&mut self, now: Instant) {
        let judged = self.fail_after.judged();
        let (patience, settled) = (judged * PATIENCE, !self.minority.unsettled);
        for peer in self.peers.iter_mut().filter(|peer| !peer.dead) {
            let Some(parted) = &mut peer.parted else { continue };
            let back = *parted.back.get_or_insert(now);
            // Of two parts with a majority each, as their lists of members differ, neither gives way.
            let both_stay = settled && !peer.state.minority && peer.is_heard(judged, now);
            if !peer.state.eligible || both_stay || now >= back + patience {
                peer.parted = None;
                self.urgent = true;
            }
        }
    }

    /// The state of a member for the view.
    pub(super) fn regard(&self, peer: &Peer, now: Instant) -> NodeState {
        NodeState { eligible: peer.state.eligible && !self.went_apart(peer, now), ..peer.state }
    }
}

/// The gateway that keeps an address when another one announces it as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// This gateway: it has a majority.
    #[default]
    Own,
    /// The one with the lower MAC address: this gateway has half of the members, and nobody can have more.
    LowerMac,
    /// The other one: this gateway has fewer than half of the members.
    Other,
}
