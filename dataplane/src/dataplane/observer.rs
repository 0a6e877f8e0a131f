//! A view of a running data plane for any thread: metrics of a large table take a while, and the loop that owns the data plane must not
//! wait for them.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use sheave_model::FrontendAddr;

use crate::client_traffic::{TrafficWatch, WatchRequests};
use crate::counters::{CounterRegistry, FrontendCounters, Totals};
use crate::health::EndpointFailures;
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::worker::port::WorkerPorts;

/// A view of a data plane that outlives its changes. Clones see the same.
#[derive(Clone, Debug)]
pub struct Observer {
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) counters: Arc<CounterRegistry>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) endpoint_failures: Arc<EndpointFailures>,
    pub(crate) ports: Arc<WorkerPorts>,
    pub(crate) watch_requests: Arc<WatchRequests>,
}

impl Observer {
    /// The table that is forwarded by now.
    pub fn table(&self) -> Arc<ActiveTable> {
        self.table.load_full()
    }

    /// What each worker counts for a frontend; nothing if it is not in the table. Whoever keeps the counters longer than it takes to
    /// read them makes the data plane believe that a worker still uses them.
    pub fn counters(&self, addr: FrontendAddr) -> Option<Weak<[FrontendCounters]>> {
        self.counters.get(addr)
    }

    /// What all frontends together have had since the start.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Packets that the kernel dropped at listening sockets since the start, before a worker saw them. It asks the kernel once for each
    /// socket: 0.5 us.
    pub fn kernel_drops(&self) -> u64 {
        self.counters.kernel_drops(&self.totals)
    }

    /// Has workers collect what clients and endpoints have.
    pub fn watch_traffic(&self) -> TrafficWatch {
        TrafficWatch::new(Arc::clone(&self.ports), Arc::clone(&self.watch_requests))
    }

    /// Session affinity records that are kept.
    pub fn affinity(&self) -> &AffinityTable {
        &self.affinity
    }

    /// How often endpoints failed since they serve.
    pub fn endpoint_failures(&self) -> &EndpointFailures {
        &self.endpoint_failures
    }
}
