//! Trials: how an ejected endpoint shows that it is well, with no more than one client at a time put at risk.
//!
//! To a TCP endpoint the health task connects, which costs no client anything. Of UDP only what a client sends and gets says anything:
//! the next new flow goes to the endpoint, and all others avoid it until that one has been answered. A TCP endpoint that sees the
//! clients' own addresses may refuse the gateway's for ever: it returns without a trial, and its first failure ejects it again.

use std::time::Instant;

use sheave_model::Protocol;

use super::Health;
use super::reports::EndpointKey;
use super::suspect::Suspect;

impl Health {
    pub(super) fn is_on_trial(&self, key: &EndpointKey) -> bool {
        self.suspects.get(key).is_some_and(Suspect::is_on_trial)
    }

    /// Has an ejected endpoint be tried, and looks at what has come of a trial that was begun before.
    pub(super) fn try_again(&mut self, key: &EndpointKey, now: Instant) {
        let Some(suspect) = self.suspects.get_mut(key) else { return };
        let by_client = key.service.protocol == Protocol::Udp;
        if !by_client && !suspect.sees_clients() {
            // If that is still under way, it stays at one connection.
            self.confirmations.ask(key.clone(), now);
            return;
        }
        let trial = self.known.trial(&key.service, key.addr);
        // Nothing else can try one that sees clients and may refuse the gateway.
        if !by_client || matches!(trial, Some(trial) if trial.is_taken()) {
            suspect.acquit(now);
        }
        self.reassess(key);
        if by_client && self.is_on_trial(key) {
            self.changed |= self.known.offer_trial(&key.service, key.addr);
        }
    }
}
