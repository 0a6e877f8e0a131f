//! Changes of the table, applied to the health of endpoints.

use sheave_model::{FrontendChange, RoutingTable};

use super::reports::EndpointKey;
use super::{Health, now, slow_start};
use crate::select::FULL_SHARE;

impl Health {
    /// Applies a change of the table.
    pub(crate) fn follow(&mut self, previous: &RoutingTable, changes: &[FrontendChange]) {
        let now = now();
        // Add before removing, so that an endpoint that moves between frontends keeps its state.
        for (addr, frontend) in changes {
            let Some(frontend) = frontend else { continue };
            self.serving.add(frontend);
            self.checks.add(frontend, now);
            self.slow_start.add(frontend);
            for key in slow_start::new_endpoints(frontend, previous.get(*addr).map(AsRef::as_ref)) {
                if !self.since.contains_key(&key) {
                    let parts = self.slow_start.begin(&key, now);
                    self.show_slow_start(&key, parts);
                }
            }
        }
        for frontend in changes.iter().filter_map(|(addr, _)| previous.get(*addr)) {
            self.slow_start.remove(frontend);
            let unchecked = self.checks.remove(frontend);
            for key in self.serving.remove(frontend) {
                self.leave(&key);
            }
            for key in unchecked {
                self.reassess(&key);
            }
        }
        for (key, parts) in self.slow_start.follow_durations(now) {
            self.show_slow_start(&key, parts);
        }
        self.publish_suspects();
    }

    /// Forgets an endpoint that no frontend of its Service port has any more. If it is added again, its state starts
    /// afresh.
    fn leave(&mut self, key: &EndpointKey) {
        self.failures.remove(key);
        self.suspects_changed |= self.suspects.remove(key).is_some();
        let (was_unhealthy, was_growing) = (self.since.remove(key).is_some(), self.slow_start.end(key));
        if was_unhealthy || was_growing {
            self.changed = true;
            self.known.set_healthy(&key.service, key.addr);
        }
    }

    pub(super) fn show_slow_start(&mut self, key: &EndpointKey, parts: u8) {
        self.changed = true;
        match parts {
            FULL_SHARE => self.known.set_healthy(&key.service, key.addr),
            parts => self.known.set_slow_start(&key.service, key.addr, parts),
        }
    }
}
