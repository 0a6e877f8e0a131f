//! Loss in one direction between two halves: a member that this gateway hears does not hear this gateway.
//!
//! It goes on by the tie-breaker and takes what this gateway has, so this one must not count on the tie-breaker as well. Its
//! heartbeats echo nothing recent, and so do not prove that they are not replayed. Its numbers do: they are newer than all that came before from the same process.

use std::time::Instant;

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
        peer.opposed_at = goes_on.then_some(now);
    }

    /// Whether a member that counts goes on without this gateway, as far as heard lately.
    pub(super) fn is_opposed(&self, now: Instant) -> bool {
        let lately = |at: Instant| now < at + self.options.fail_after * LASTS;
        let opposes = |at: Option<Instant>| at.is_some_and(lately);
        self.peers
            .iter()
            .any(|peer| opposes(peer.opposed_at) && !peer.has_lease(now) && self.counts(peer, now))
    }
}
