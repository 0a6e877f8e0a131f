//! Loss in one direction between two halves: a member that this gateway hears does not hear this gateway.
//!
//! It goes on by the tie-breaker and takes what this gateway has, so this one must not count on the tie-breaker as well. Its
//! heartbeats echo nothing recent, and so do not prove that they are not replayed. Its numbers do: they are newer than all that came before from the same process.

use std::time::{Duration, Instant};

use super::Membership;
use crate::heartbeat::Heartbeat;

/// How long it counts, in times of `fail_after`: heartbeats of its sender may be lost, too.
const LASTS: u32 = 4;

impl Membership {
    /// Notes of a heartbeat that proves nothing whether its sender goes on without this gateway.
    pub(super) fn note_opposition(&mut self, bytes: &[u8], now: Instant) {
        let Some(signed) = self.keys.verify(bytes) else { return };
        let Ok(heartbeat) = Heartbeat::decode(signed, self.fleet) else { return };
        let Ok(index) = self.peers.binary_search_by(|peer| (*peer.node).cmp(&heartbeat.node)) else { return };
        let Some(peer) = self.peers.get_mut(index) else { return };
        let same_process = peer.last.as_ref().is_some_and(|last| last.incarnation == heartbeat.incarnation);
        if !same_process {
            return;
        }
        let entry = heartbeat.entries.iter().find(|entry| entry.id == self.id);
        let heard = entry.map_or(heartbeat.listening, |entry| entry.silence).is_heard();
        let goes_on = !heard && !heartbeat.state.fenced && !heartbeat.state.left;
        self.dirty |= goes_on;
        let since = peer.opposed.map_or(now, |(since, _)| since);
        peer.opposed = goes_on.then_some((since, now));
    }

    /// Whether a member that counts goes on without this gateway, as far as heard lately.
    pub(super) fn is_opposed(&self, now: Instant) -> bool {
        // When two parts of the network that went on hear each other again, whoever hears first is not heard for a moment.
        let patience = if self.minority.goes_on { self.options.interval * 2 } else { Duration::ZERO };
        let opposes = |(since, at): (Instant, Instant)| {
            now < at + self.options.fail_after * LASTS && at >= since + patience
        };
        self.peers
            .iter()
            .any(|peer| peer.opposed.is_some_and(opposes) && !peer.has_lease(now) && self.counts(peer, now))
    }
}
