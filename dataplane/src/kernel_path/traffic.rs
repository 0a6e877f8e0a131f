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
                    counters.add(|it| &it.carried, connections as usize);
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use sheave_model::test_util::{frontend, frontend_addr};
    use sheave_model::{Algorithm, Protocol};

    use super::*;
    use crate::counters::Totals;
    use crate::weak_map::service_id;

    const EACH: u64 = 200_000;

    /// Flows that the worker opens and flows that the kernel carries, counted at the same time. None is lost.
    #[test]
    fn flows_of_the_kernel_are_counted_beside_those_of_the_worker() {
        let addr = FrontendAddr { protocol: Protocol::Udp, ..frontend_addr(1) };
        let totals = Totals::new(1, Arc::default());
        let service = service_id(&frontend(1, Algorithm::Random, &[]));
        let open = Arc::<AtomicU32>::default();
        let counters = FrontendCounters::of_workers(Protocol::Udp, &totals, service, open);
        let registry = Arc::<CounterRegistry>::default();
        registry.insert(addr, &counters);
        let sink = take_in(&Arc::default(), registry, Reports::ignored());
        let (udp, begin) = (counters[0].udp().unwrap(), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                (0..EACH).for_each(|_| udp.add(|it| &it.flows_opened, 1));
            });
            begin.wait();
            (0..EACH).for_each(|_| sink(addr, ([10, 0, 0, 1], 53).into(), Seen::Forwarded(1)));
        });
        let total: u64 = totals.udp().map(|totals| totals.counters.opened()).sum();
        assert_eq!((udp.opened(), total), (2 * EACH, 2 * EACH));
        assert_eq!((udp.flows_opened.get(), udp.carried.get()), (EACH, EACH));
    }
}
