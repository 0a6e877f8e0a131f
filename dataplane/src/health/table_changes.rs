//! Changes of the table, applied to the health of endpoints.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use sheave_model::{Frontend, FrontendChange, RoutingTable};

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
            let before = previous.get(*addr);
            for target in targets_beyond(frontend, before) {
                self.add(target, before.map(AsRef::as_ref), now);
            }
        }
        for (addr, frontend) in changes {
            let Some(before) = previous.get(*addr) else { continue };
            targets_beyond(before, frontend.as_ref()).into_iter().for_each(|target| self.remove(target));
        }
        for (key, parts) in self.slow_start.follow_durations(now) {
            self.show_slow_start(&key, parts);
        }
        self.publish_suspects();
    }

    /// Adds a target, whose frontend was `before`.
    fn add(&mut self, target: &Frontend, before: Option<&Frontend>, now: Instant) {
        self.serving.add(target);
        self.checks.add(target, now);
        self.slow_start.add(target);
        for key in slow_start::new_endpoints(target, before) {
            if !self.since.contains_key(&key) {
                let parts = self.slow_start.begin(&key, now);
                self.show_slow_start(&key, parts);
            }
        }
    }

    fn remove(&mut self, target: &Frontend) {
        self.slow_start.remove(target);
        let unchecked = self.checks.remove(target);
        for key in self.serving.remove(target) {
            self.leave(&key);
        }
        for key in unchecked {
            self.reassess(&key);
        }
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

/// The [targets](Frontend::targets) of a changed frontend that its other state does not share. A frontend with server names may have
/// thousands, of which a change concerns a few.
fn targets_beyond<'a>(frontend: &'a Frontend, other: Option<&Arc<Frontend>>) -> Vec<&'a Frontend> {
    let shared = other.into_iter().flat_map(|other| other.targets());
    let mut shared = shared.fold(HashMap::<*const Frontend, usize>::new(), |mut counts, target| {
        *counts.entry(target).or_default() += 1;
        counts
    });
    let is_new = |target: &&Frontend| {
        let count = shared.get_mut(&std::ptr::from_ref(*target));
        count.filter(|count| **count > 0).map(|count| *count -= 1).is_none()
    };
    frontend.targets().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use sheave_model::test_util::{pool, split};
    use sheave_model::{Algorithm, ServerNames};

    use super::*;

    fn with_names(targets: &[&Arc<Frontend>]) -> Arc<Frontend> {
        let names = ServerNames::new(targets.iter().map(|target| Arc::clone(target)).collect(), []);
        Arc::new(Frontend { server_names: Some(Arc::new(names)), ..split(9, Algorithm::Random, []) })
    }

    #[test]
    fn only_targets_that_changed_are_added_and_removed_each_as_often_as_it_is_there() {
        let target = |number| Arc::new(split(number, Algorithm::Random, [pool(number, 1, &[(number, 100)])]));
        let [one, two, three] = [1, 2, 3].map(target);
        let is = |found: &[&Frontend], expected: &[&Arc<Frontend>]| {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(it, of)| std::ptr::eq(*it, &raw const ***of))
        };
        let before = with_names(&[&one, &two, &two]);
        let after = with_names(&[&two, &three, &one]);
        assert!(is(&targets_beyond(&after, Some(&before)), &[&three]));
        assert!(is(&targets_beyond(&before, Some(&after)), &[&two]));
        assert!(is(&targets_beyond(&before, None), &[&one, &two, &two]));
        assert!(
            is(&targets_beyond(&one, Some(&before)), &[])
                && is(&targets_beyond(&three, Some(&two)), &[&three])
        );
    }
}
