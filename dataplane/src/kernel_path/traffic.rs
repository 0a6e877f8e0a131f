//! Traffic that the kernel carries, as it counts it: for counters, and for the health of endpoints.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use sheave_kernel::Masquerade;
use sheave_model::{EndpointAddr, FrontendAddr};

use super::forwarding;
use crate::counters::{CounterRegistry, FrontendCounters};
use crate::health::{ConnectedFrom, Reports};
use crate::select::ActiveTable;

/// Traffic of a frontend to an endpoint, as the kernel counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// New connections since the last time.
    Forwarded(u64),
    /// A client that could not reach it.
    Failed,
}

/// Receives what the kernel has seen.
pub(crate) type TrafficSink = dyn Fn(FrontendAddr, SocketAddr, Seen) + Send + Sync;

/// Adds connections that the kernel has forwarded to the counters of their frontends and endpoints, and has endpoints tried that clients
/// could not reach.
pub(crate) fn take_in(
    table: &Arc<ArcSwap<ActiveTable>>,
    registry: Arc<CounterRegistry>,
    reports: Arc<Reports>,
) -> Arc<TrafficSink> {
    let table = Arc::clone(table);
    Arc::new(move |frontend, endpoint, seen| match seen {
        Seen::Forwarded(connections) => {
            if let Some(active) = table.load().get(frontend) {
                active.add_picks(endpoint, connections);
            }
            let counters = registry.get(frontend).and_then(|counters| counters.upgrade());
            match counters.as_deref().and_then(|workers| workers.first()) {
                Some(FrontendCounters::Tcp(counters)) => counters.add(|it| &it.carried, connections),
                Some(FrontendCounters::Udp(counters)) => {
                    counters.add(|it| &it.flows_opened, connections as usize);
                }
                None => {}
            }
        }
        Seen::Failed => {
            let table = table.load();
            let Some(active) = table.get(frontend) else { return };
            // Either way the gateway has to fail as well.
            let from = match forwarding::masquerade(active) {
                Masquerade::Nobody | Masquerade::Internal => ConnectedFrom::Client,
                Masquerade::Everyone => ConnectedFrom::ByClient,
            };
            let addr = EndpointAddr::new(endpoint.ip(), endpoint.port());
            let error = std::io::ErrorKind::ConnectionRefused.into();
            reports.failed(&table, active, addr, from, error, Instant::now());
        }
    })
}
