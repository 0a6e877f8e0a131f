//! Death of a member: a silence that proves that it has fenced itself.
//!
//! A member that is not heard may still have a quorum and own addresses: its heartbeats reach others. It is dead once there is a moment
//! at which it surely had no lease from a majority. A member gives it a lease until `fail_after` after it was last heard; what a
//! statement says ends when its sender cannot have sent it later (the echo). So each statement is an interval in which the sender gave no
//! lease, and the member is dead if the intervals of a majority share a moment. They must be younger than `fail_after`. A member that was
//! fenced then owns nothing new meanwhile: it is eligible an interval after its fence at the earliest, and announces only once all that are alive follow a view
//! with it, so those who have given it leases again have heard it since.
//!
//! A member that this gateway hears may not hear this gateway: loss in one direction between two halves. It goes on by the tie-breaker and takes
//! what this gateway has, so this one must not count on the tie-breaker as well. Where its heartbeats echo nothing recent, they do not prove that
//! they are not replayed. Their numbers do: they are newer than all that came before from the same process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Membership;
use super::options::margin;
use super::peer::{Parted, Peer};
use super::quorum::Quorum;
use crate::heartbeat::{Heartbeat, MemberId, NodeState};

/// How long it counts, in times of `fail_after`: heartbeats of its sender may be lost, too.
const LASTS: u32 = 4;

impl Membership {
    /// Judges each member that is not heard.
    pub(super) fn judge_silence(&mut self, now: Instant) {
        let fail_after = self.fail_after.judged();
        let members = self.members(now);
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers.get(index) else { continue };
            let (id, heard) = (peer.id, peer.is_heard(fail_after, now));
            let counted = peer.was_heard || self.counts(peer, now);
            let judged =
                if heard { None } else { Some((self.passed_on(id, now), self.is_dead(index, members, now))) };
            let Some(peer) = self.peers.get_mut(index) else { continue };
            if std::mem::replace(&mut peer.was_heard, heard) != heard {
                self.urgent = true;
            }
            let Some((passed_on, dead)) = judged else {
                (peer.dead, peer.via) = (false, None);
                continue;
            };
            peer.via = passed_on.map(|(via, ..)| via);
            let died = dead && !peer.dead;
            let returned = peer.dead && !dead && passed_on.is_some();
            self.announce_again |= returned;
            self.probe_again |= died || returned;
            peer.dead = dead || (peer.dead && passed_on.is_none());
            if died && !self.standby.fenced {
                peer.parted = Some(Parted::default());
            }
            let Some((_, at, state)) = passed_on else { continue };
            if at > peer.heard_at || !peer.known {
                self.probe_again |= peer.set_state(NodeState { minority: false, ..state });
                self.take_ability(index, now);
            }
            if let Some(peer) = self.peers.get_mut(index) {
                peer.note_presence(counted, fail_after, now);
            }
        }
    }

    /// Takes over what a member that is not heard is able to own, from the one of those who say it that heard it last.
    fn take_ability(&mut self, index: usize, now: Instant) {
        let Some(id) = self.peers.get(index).map(|peer| peer.id) else { return };
        let heard = self.peers.iter().filter(|peer| peer.is_heard(self.fail_after.judged(), now));
        let said = heard.filter_map(|peer| {
            let last = peer.last.as_ref()?;
            Some((last.heard(id)?.0, last.ability(id)?))
        });
        let ability = said.max_by_key(|(at, _)| *at).map(|(_, ability)| Arc::clone(ability));
        if let (Some(ability), Some(peer)) = (ability, self.peers.get_mut(index)) {
            peer.ability = ability;
        }
    }

    /// The last to hear the member among those that this gateway hears, when that was, and its state.
    pub(super) fn passed_on(&self, id: MemberId, now: Instant) -> Option<(MemberId, Instant, NodeState)> {
        let heard = self.peers.iter().filter(|peer| peer.is_heard(self.fail_after.judged(), now));
        let said = heard.filter_map(|peer| {
            let last = peer.last.as_ref()?;
            let (at, state) = last.heard(id)?;
            (now < at + last.fail_after).then_some((peer.id, at, state))
        });
        said.max_by_key(|(_, at, _)| *at)
    }

    /// Whether a majority of `members` has given the member no lease at one moment.
    fn is_dead(&self, index: usize, members: usize, now: Instant) -> bool {
        let fail_after = self.fail_after.judged();
        let Some(recent) = now.checked_sub(self.fail_after.promised()) else { return false };
        let Some(peer) = self.peers.get(index) else { return false };
        if now < peer.heard_at + fail_after {
            return false;
        }
        let own = (peer.heard_at + fail_after, now);
        let others = self.peers.iter().filter(|other| other.id != peer.id && self.counts(other, now));
        let intervals: Vec<_> = others
            .filter_map(|other| other.last.as_ref()?.without_lease(peer.id))
            .chain([own])
            .map(|(from, to)| (from.max(recent), to))
            .filter(|(from, to)| from <= to)
            .collect();
        // Its own answers from the tie-breaker are a lease too, which may be younger than its last heartbeat by an interval.
        let tie_breaker = self.is_minority()
            && self.passed_on(peer.id, now).is_none()
            && self.tie_breaker_holds(now)
            && now >= peer.heard_at + fail_after + self.options.interval;
        // A moment that the most intervals share is the end of one.
        intervals.iter().any(|(_, moment)| {
            let votes = intervals.iter().filter(|(from, to)| from <= moment && moment <= to).count();
            Quorum { votes, members, tie_breaker }.holds()
        })
    }

    /// Whether a member is silent for longer than the dead are, and not proved dead.
    pub(super) fn has_doubts(&self, now: Instant) -> bool {
        let fail_after = self.fail_after.judged();
        let silent = fail_after + margin(fail_after);
        let doubted = |from: Instant| (from + silent..from + fail_after * 2).contains(&now);
        self.peers.iter().any(|peer| peer.last.is_some() && !peer.dead && doubted(peer.heard_at))
    }

    /// When silence means something next: a member is not heard any more, or should be dead.
    pub(super) fn silence_due(&self, after: Instant) -> Option<Instant> {
        let heard = self.fail_after.judged();
        let peers = self.peers.iter().filter(|peer| peer.last.is_some());
        let due = peers.flat_map(|peer| [heard, heard + margin(heard)].map(|time| peer.heard_at + time));
        due.filter(|due| *due > after).min()
    }

    /// Whether a member that counts goes on without this gateway, as far as heard lately.
    pub(super) fn is_opposed(&self, now: Instant) -> bool {
        // When two parts of the network that went on hear each other again, whoever hears first is not heard for a moment.
        let round_trips = self.fail_after.promised().saturating_sub(self.options.fail_after);
        let patience =
            if self.minority.goes_on { self.options.interval * 2 + round_trips } else { Duration::ZERO };
        let opposes = |(since, at): (Instant, Instant)| {
            now < at + self.options.fail_after * LASTS && at >= since + patience
        };
        self.peers
            .iter()
            .any(|peer| peer.opposed.is_some_and(opposes) && !peer.has_lease(now) && self.counts(peer, now))
    }
}

/// Whether the sender does not hear a member, and may announce something nevertheless.
pub(super) fn opposes(heartbeat: &Heartbeat, member: MemberId) -> bool {
    let entry = heartbeat.entries.iter().find(|entry| entry.id == member);
    let heard = entry.map_or(heartbeat.listening, |entry| entry.silence).is_heard();
    !heard && !heartbeat.state.fenced && !heartbeat.state.left
}

impl Peer {
    /// Notes whether it goes on without this gateway; true if it did not before.
    pub(super) fn note_opposition(&mut self, opposed: bool, now: Instant) -> bool {
        let since = self.opposed.map_or(now, |(since, _)| since);
        let before = std::mem::replace(&mut self.opposed, opposed.then_some((since, now)));
        opposed && before.is_none()
    }
}
