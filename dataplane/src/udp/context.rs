//! What all frontends of one worker share for UDP: the table, the limits and the scratch buffers.
//!
//! It must not know a single frontend or flow.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::flow_table::FlowBudget;
use super::local_ports::LocalPorts;
use super::sockets::Offload;
use crate::health::Reports;
use crate::limits::capacity::Capacity;
use crate::limits::overload::Shedding;
use crate::log_throttle::LogThrottle;
use crate::paths::Paths;
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::splitmix64::SplitMix64;
use crate::sys::mmsg::{Receiver, Sender};
use crate::transparent::Transparency;

/// Time between two warnings of the same kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Limits of one worker's UDP flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpLimits {
    /// Flows over all frontends; beyond it a new one takes the place of another. Each flow costs a descriptor (two after its
    /// frontend retired), and one port towards its endpoint.
    pub(crate) flows: usize,
    /// A flow ends when nothing passed for so long, in either direction.
    pub(crate) idle: Duration,
    /// A flow ends earlier if no endpoint has ever answered.
    pub(crate) unanswered: Duration,
}

/// What a worker's UDP side is made of.
pub(crate) struct UdpParts {
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) transparency: Arc<Transparency>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) paths: Arc<Paths>,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) shedding: Arc<Shedding>,
    pub(crate) limits: UdpLimits,
    /// Which worker it is, and of how many.
    pub(crate) worker: (usize, usize),
    /// Differs from worker to worker.
    pub(crate) seed: u64,
}

/// Buffers for one batch each way. One set serves the whole worker, since a batch is received and sent in one go.
pub(super) struct Scratch {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
}

/// What all frontends of one worker share for UDP. Lives and dies on the worker's thread.
pub(crate) struct UdpContext {
    pub(super) table: Arc<ArcSwap<ActiveTable>>,
    pub(super) affinity: Arc<AffinityTable>,
    pub(super) transparency: Arc<Transparency>,
    pub(super) reports: Arc<Reports>,
    pub(super) capacity: Arc<Capacity>,
    pub(super) shedding: Arc<Shedding>,
    pub(super) limits: UdpLimits,
    pub(super) random: SplitMix64,
    pub(super) budget: Rc<FlowBudget>,
    pub(super) offload: Offload,
    pub(super) scratch: RefCell<Scratch>,
    pub(super) warnings: LogThrottle,
}

impl UdpContext {
    /// Allocates a worker's share.
    pub(crate) fn new(parts: UdpParts) -> Rc<Self> {
        let UdpParts {
            table,
            affinity,
            transparency,
            reports,
            paths,
            capacity,
            shedding,
            limits,
            worker,
            seed,
        } = parts;
        let ports = LocalPorts::of_worker(worker.0, worker.1);
        Rc::new(Self {
            table,
            affinity,
            transparency,
            reports,
            budget: FlowBudget::new(limits.flows, Arc::clone(&capacity)),
            capacity,
            shedding,
            limits,
            random: SplitMix64::new(seed),
            offload: Offload::new(paths, ports),
            scratch: RefCell::new(Scratch { receiver: Receiver::new(), sender: Sender::new() }),
            warnings: LogThrottle::new(WARNING_INTERVAL),
        })
    }
}
