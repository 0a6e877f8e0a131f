//! Trials: how an ejected endpoint proves that it serves, with at most one client at a time at risk.
//!
//! The health task connects to a TCP endpoint, which affects no client. Over UDP only the datagrams of a client prove anything: the
//! next new flow goes to the endpoint, and all others avoid it until that one has been answered. A TCP endpoint that sees the clients'
//! own addresses may always refuse the gateway's: it returns without a trial, and its first failure ejects it again.

use std::time::Instant;

use sheave_model::Protocol;

use super::Health;
use super::reports::EndpointKey;
use super::suspect::Suspect;

impl Health {
    pub(super) fn is_on_trial(&self, key: &EndpointKey) -> bool {
        self.suspects.get(key).is_some_and(Suspect::is_on_trial)
    }

    /// Starts a trial of an ejected endpoint, or checks the result of an earlier trial.
    pub(super) fn try_again(&mut self, key: &EndpointKey, now: Instant) {
        let Some(suspect) = self.suspects.get_mut(key) else { return };
        let by_client = key.service.protocol == Protocol::Udp;
        if !by_client && !suspect.sees_clients() {
            // Ignored while an earlier connection is in progress.
            self.confirmations.ask(key.clone(), now);
            return;
        }
        let trial = self.known.trial(&key.service, key.addr);
        // Nothing else can try an endpoint that sees clients and may refuse the gateway.
        if !by_client || matches!(trial, Some(trial) if trial.is_taken()) {
            suspect.acquit(now);
        }
        self.reassess(key);
        if by_client && self.is_on_trial(key) {
            self.changed |= self.known.offer_trial(&key.service, key.addr);
        }
    }
}
