//! Loss in one direction between two halves: a member that this gateway hears does not hear this gateway.
//!
//! It goes on by the tie-breaker and takes what this gateway has, so this one must not count on the tie-breaker as well. Where its
//! heartbeats echo nothing recent, they do not prove that they are not replayed. Their numbers do: they are newer than all that came before from the same process.

use std::time::{Duration, Instant};

use super::Membership;
use super::peer::Peer;
use crate::heartbeat::{Heartbeat, MemberId};

/// How long it counts, in times of `fail_after`: heartbeats of its sender may be lost, too.
const LASTS: u32 = 4;

impl Membership {
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
    /// Notes whether it goes on without this gateway.
    pub(super) fn note_opposition(&mut self, opposed: bool, now: Instant) {
        let since = self.opposed.map_or(now, |(since, _)| since);
        self.opposed = opposed.then_some((since, now));
    }
}
