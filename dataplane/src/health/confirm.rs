//! Second opinions: connections of the gateway's own to endpoints that connections of clients failed to reach.
//!
//! They decide in two cases. Failures that may not have been in a row count only if it fails as well. And a connection from a client's own address may fail because of the client: a NetworkPolicy or firewall may refuse
//! that address. So the gateway connects from its own address, and only if that fails as well did the endpoint fail.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{Check, CheckKind, FrontendAddr};
use tokio::task::JoinSet;

use super::probe::{self, ProbeError};
use super::reports::EndpointKey;
use crate::paths::Paths;

/// How many run at once.
const CONCURRENT: usize = 16;
/// How long one may take, and how long the same endpoint gets no other: clients must not be able to make more.
const PATIENCE: Duration = Duration::from_secs(1);
/// The check that it is.
const ONCE: Check = Check {
    kind: CheckKind::Tcp,
    port: None,
    interval: PATIENCE,
    timeout: PATIENCE,
    failures: 1,
    successes: 1,
};
/// How many endpoints are remembered.
const REMEMBERED: usize = 1024;

/// What an endpoint did when the gateway itself connected to it.
#[derive(Debug)]
pub(super) struct SecondOpinion {
    pub(super) key: EndpointKey,
    /// Whose client's connection failed.
    pub(super) frontend: FrontendAddr,
    pub(super) result: Result<(), ProbeError>,
}

/// Connections that are tried again from the gateway's address.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    /// When each endpoint was tried.
    tried: HashMap<EndpointKey, Instant>,
    running: JoinSet<SecondOpinion>,
}

impl Confirmations {
    /// Tries an endpoint because of a client's connection, unless that was done a moment ago. Must be called inside a runtime.
    pub(super) fn ask_for_client(
        &mut self,
        key: EndpointKey,
        frontend: FrontendAddr,
        now: Instant,
        paths: &Arc<Paths>,
    ) {
        if self.tried.len() >= REMEMBERED {
            self.tried.retain(|_, at| now.saturating_duration_since(*at) < PATIENCE);
        }
        let recent = self.tried.get(&key).is_some_and(|at| now.saturating_duration_since(*at) < PATIENCE);
        if !recent {
            self.ask(key, frontend, now, paths);
        }
    }

    /// Tries an endpoint, unless too many are tried. Must be called inside a runtime.
    pub(super) fn ask(&mut self, key: EndpointKey, frontend: FrontendAddr, now: Instant, paths: &Arc<Paths>) {
        if self.running.len() >= CONCURRENT || self.tried.len() >= REMEMBERED {
            return;
        }
        self.tried.insert(key.clone(), now);
        let paths = Arc::clone(paths);
        self.running.spawn(async move {
            let result = probe::run(key.addr, &ONCE, &paths).await;
            SecondOpinion { key, frontend, result }
        });
    }

    /// Waits until one is there. Cancel safe; `None` at once if none runs.
    pub(super) async fn next(&mut self) -> Option<SecondOpinion> {
        self.running.join_next().await?.ok()
    }
}
