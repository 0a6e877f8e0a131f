//! What all frontends of one worker share for UDP: the table, the limits and the scratch buffers.
//!
//! It must not know a single frontend or flow.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::flows::FlowBudget;
use super::socket::Offload;
use crate::affinity::AffinityTable;
use crate::health::Reports;
use crate::paths::Paths;
use crate::pick::ActiveTable;
use crate::random::Random;
use crate::sys::mmsg::{Receiver, Sender};
use crate::throttle::Throttle;
use crate::transparency::Transparency;

/// Time between two warnings of the same kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Limits of one worker's UDP flows.
#[derive(Clone, Copy, Debug)]
pub struct UdpLimits {
    /// Flows over all frontends. A new one beyond it is refused; those that exist are left alone. Each flow costs a
    /// descriptor (two after its frontend retired) and an ephemeral port.
    pub flows: usize,
    /// A flow ends when nothing passed for so long, in either direction.
    pub idle: Duration,
}

/// Buffers for one batch each way. One set serves the whole worker, since a batch is received and sent in one go.
pub(super) struct Scratch {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
}

/// What all frontends of one worker share for UDP. Lives and dies on the worker's thread.
pub struct UdpContext {
    pub(super) table: Arc<ArcSwap<ActiveTable>>,
    pub(super) affinity: Arc<AffinityTable>,
    pub(super) transparency: Arc<Transparency>,
    pub(super) reports: Arc<Reports>,
    pub(super) limits: UdpLimits,
    pub(super) random: Random,
    pub(super) budget: Rc<FlowBudget>,
    pub(super) offload: Offload,
    pub(super) scratch: RefCell<Scratch>,
    pub(super) warnings: Throttle,
}

impl UdpContext {
    /// Allocates a worker's share. `seed` should differ from worker to worker.
    pub(crate) fn new(
        table: Arc<ArcSwap<ActiveTable>>,
        affinity: Arc<AffinityTable>,
        transparency: Arc<Transparency>,
        reports: Arc<Reports>,
        paths: Arc<Paths>,
        limits: UdpLimits,
        seed: u64,
    ) -> Rc<Self> {
        Rc::new(Self {
            table,
            affinity,
            transparency,
            reports,
            limits,
            random: Random::new(seed),
            budget: FlowBudget::new(limits.flows),
            offload: Offload::new(paths),
            scratch: RefCell::new(Scratch { receiver: Receiver::new(), sender: Sender::new() }),
            warnings: Throttle::new(WARNING_INTERVAL),
        })
    }
}
