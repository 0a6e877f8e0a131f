//! Second opinions. A connection from a client's own address may fail because of the client: a NetworkPolicy or firewall may refuse
//! that address. So the gateway connects from its own address, and only if that fails as well did the endpoint fail.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::FrontendAddr;
use tokio::task::JoinSet;

use super::probe;
use super::reports::EndpointKey;
use crate::paths::Paths;

/// How many run at once.
const CONCURRENT: usize = 16;
/// How long one may take, and how long the same endpoint gets no other: clients must not be able to make more.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many endpoints are remembered.
const REMEMBERED: usize = 1024;

/// What an endpoint did when the gateway itself connected to it.
#[derive(Debug)]
pub(super) struct SecondOpinion {
    pub(super) key: EndpointKey,
    /// Whose client's connection failed.
    pub(super) frontend: FrontendAddr,
    pub(super) result: io::Result<()>,
}

/// Connections that are tried again from the gateway's address.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    /// When each endpoint was tried.
    tried: HashMap<EndpointKey, Instant>,
    running: JoinSet<SecondOpinion>,
}

impl Confirmations {
    /// Tries an endpoint, unless that was done a moment ago. Must be called inside a runtime.
    pub(super) fn start(
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
        if recent || self.running.len() >= CONCURRENT || self.tried.len() >= REMEMBERED {
            return;
        }
        self.tried.insert(key.clone(), now);
        let paths = Arc::clone(paths);
        self.running.spawn(async move {
            let connected = tokio::time::timeout(PATIENCE, probe::connect(key.addr, &paths)).await;
            let result = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map(drop);
            SecondOpinion { key, frontend, result }
        });
    }

    /// Waits until one is there. Cancel safe; `None` at once if none runs.
    pub(super) async fn next(&mut self) -> Option<SecondOpinion> {
        self.running.join_next().await?.ok()
    }
}
