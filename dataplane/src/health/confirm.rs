//! Second opinions: the gateway's own connections to endpoints that connections of clients failed to reach.
//!
//! They decide in two cases. Failures that may not have been consecutive count only if the gateway's connection fails as well. And a
//! connection from a client's own address may fail because of the client: a NetworkPolicy or firewall may refuse that address, so only
//! a failure from the gateway's address counts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{Check, CheckKind};

use super::probe::{self, ProbeError};
use super::reports::EndpointKey;
use super::slots::{ProbeSlots, SlotLimits};
use crate::paths::Paths;

/// Timeout of a second opinion, and minimum interval between two that clients cause for the same endpoint: they must not be able to
/// cause more.
const PATIENCE: Duration = Duration::from_secs(1);
/// The check that a second opinion runs.
const ONCE: Check = Check {
    kind: CheckKind::Tcp,
    port: None,
    interval: PATIENCE,
    timeout: PATIENCE,
    failures: 1,
    successes: 1,
};
/// Number of entries at which outdated ones are removed.
const REMEMBERED: usize = 1024;

/// Result of the gateway's own connection to an endpoint.
#[derive(Debug)]
pub(super) struct SecondOpinion {
    pub(super) key: EndpointKey,
    pub(super) result: Result<(), ProbeError>,
}

/// Second opinions that run, wait for a slot, or were recent.
#[derive(Debug)]
pub(super) struct Confirmations {
    paths: Arc<Paths>,
    /// Endpoints whose second opinion runs or waits for a slot.
    asked: HashSet<EndpointKey>,
    /// When each endpoint was tried.
    tried: HashMap<EndpointKey, Instant>,
    /// Length of `tried` at which outdated entries are removed.
    full: usize,
    slots: ProbeSlots<EndpointKey, SecondOpinion>,
}

impl Confirmations {
    /// Creates the state without second opinions.
    pub(super) fn new(limits: SlotLimits, paths: Arc<Paths>) -> Self {
        let (asked, tried, slots) = (HashSet::new(), HashMap::new(), ProbeSlots::new(limits));
        Self { paths, asked, tried, full: REMEMBERED, slots }
    }

    /// Tries an endpoint because of a client's connection, unless it was tried within [`PATIENCE`]. Must be called inside a runtime.
    pub(super) fn ask_for_client(&mut self, key: EndpointKey, now: Instant) {
        if self.tried.get(&key).is_none_or(|at| now.saturating_duration_since(*at) >= PATIENCE) {
            self.ask(key, now);
        }
    }

    /// Tries an endpoint as soon as there is a slot. Must be called inside a runtime.
    pub(super) fn ask(&mut self, key: EndpointKey, now: Instant) {
        if !self.asked.insert(key.clone()) {
            return;
        }
        if self.tried.len() >= self.full {
            self.tried.retain(|_, at| now.saturating_duration_since(*at) < PATIENCE);
            self.full = REMEMBERED.max(2 * self.tried.len());
        }
        self.tried.insert(key.clone(), now);
        let namespace = Arc::clone(&key.service.namespace);
        self.slots.enqueue(&namespace, key);
        self.start();
    }

    fn start(&mut self) {
        while let Some((slot, key)) = self.slots.dequeue() {
            let paths = Arc::clone(&self.paths);
            self.slots.run(slot, async move {
                let result = probe::run(key.addr, &ONCE, &paths).await;
                SecondOpinion { key, result }
            });
        }
    }

    /// Waits for the next second opinion. `None` at once if none runs. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<SecondOpinion> {
        let opinion = self.slots.ended().await?;
        if let Some(opinion) = &opinion {
            self.asked.remove(&opinion.key);
        }
        self.start();
        opinion
    }
}

#[cfg(test)]
mod tests {
    use sheave_model::{Algorithm, test_util};

    use super::*;

    #[tokio::test]
    async fn an_endpoint_is_tried_once_at_a_time_and_for_clients_once_a_second() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let frontend = test_util::frontend(1, Algorithm::Random, &[]);
        let addr = sheave_model::EndpointAddr::new(addr.ip(), addr.port());
        let key = || EndpointKey { service: frontend.service.clone(), addr };
        let limits = SlotLimits { total: 1, per_namespace: 1 };
        let (mut confirmations, now) = (Confirmations::new(limits, Arc::default()), Instant::now());
        confirmations.ask_for_client(key(), now);
        confirmations.ask(key(), now + PATIENCE);
        assert!(confirmations.next().await.is_some_and(|opinion| opinion.result.is_ok()));
        assert!(confirmations.next().await.is_none(), "one at a time");
        confirmations.ask_for_client(key(), now + PATIENCE / 2);
        assert!(confirmations.next().await.is_none(), "a moment ago");
        confirmations.ask(key(), now + PATIENCE / 2);
        assert!(confirmations.next().await.is_some());
        // An endpoint without a slot waits.
        for port in [addr.port, 1, 2, 3] {
            let addr = sheave_model::EndpointAddr { port, ..addr };
            confirmations.ask(EndpointKey { addr, ..key() }, now);
        }
        for _ in 0..4 {
            assert!(confirmations.next().await.is_some());
        }
        assert!(confirmations.asked.is_empty());
    }
}
