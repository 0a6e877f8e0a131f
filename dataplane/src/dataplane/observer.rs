//! Observer: a view of a running data plane for any thread. Metrics of a large table take a while, and the loop that owns the data
//! plane must not wait for them.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use sheave_model::FrontendAddr;

use crate::client_traffic::{TrafficWatch, WatchRequests};
use crate::counters::{CounterRegistry, FrontendCounters, Totals};
use crate::health::EndpointFailures;
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::worker_port::WorkerPorts;

/// A view of a data plane that stays current. Clones are equivalent.
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
    /// The current table.
    pub fn table(&self) -> Arc<ActiveTable> {
        self.table.load_full()
    }

    /// Counters of a frontend by worker; `None` if there is no such frontend. A strong reference must not be kept longer than it takes
    /// to read the counters: the data plane would assume that a worker still uses them.
    pub fn counters(&self, addr: FrontendAddr) -> Option<Weak<[FrontendCounters]>> {
        self.counters.get(addr)
    }

    /// Totals of all frontends since the start.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Number of packets that the kernel dropped at listening sockets since the start, before a worker received them. Asks the kernel
    /// once for each socket: 0.5 us.
    pub fn kernel_drops(&self) -> u64 {
        self.counters.kernel_drops(&self.totals)
    }

    /// Starts a watch, for which workers collect the traffic of clients and endpoints.
    pub fn watch_traffic(&self) -> TrafficWatch {
        TrafficWatch::new(Arc::clone(&self.ports), Arc::clone(&self.watch_requests))
    }

    /// The session affinity records.
    pub fn affinity(&self) -> &AffinityTable {
        &self.affinity
    }

    /// Failure counts of endpoints since they began to serve.
    pub fn endpoint_failures(&self) -> &EndpointFailures {
        &self.endpoint_failures
    }
}
