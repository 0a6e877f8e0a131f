//! What all frontends of one worker share for UDP: the limits, the sockets' options and the scratch buffers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::flow_table::FlowBudget;
use super::local_ports::LocalPorts;
use super::sockets::Offload;
use crate::log_throttle::LogThrottle;
use crate::splitmix64::SplitMix64;
use crate::sys::mmsg::{Receiver, Sender};
use crate::worker::context::Shared;

/// Time between two warnings of the same kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Buffers for one batch each way. One set serves the whole worker, since a batch is received and sent in one go.
pub(super) struct Scratch {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
}

/// What all frontends of one worker share for UDP. Lives and dies on the worker's thread.
pub(crate) struct UdpContext {
    pub(super) shared: Shared,
    pub(super) random: SplitMix64,
    pub(super) budget: Rc<FlowBudget>,
    pub(super) offload: Offload,
    pub(super) scratch: RefCell<Scratch>,
    pub(super) log_throttle: LogThrottle,
}

impl UdpContext {
    /// Allocates the share of one worker, given by its index and their number, which may have so many flows over all frontends:
    /// beyond that a new one takes the place of another. Each flow costs a descriptor (two after its frontend retired), and a
    /// port towards its endpoint. The random numbers begin with `random`.
    pub(crate) fn new(shared: Shared, flows: usize, worker: (usize, usize), random: u64) -> Rc<Self> {
        let ports = LocalPorts::of_worker(worker.0, worker.1);
        Rc::new(Self {
            random: SplitMix64::new(random),
            budget: FlowBudget::new(flows, Arc::clone(&shared.capacity)),
            offload: Offload::new(Arc::clone(&shared.paths), ports),
            scratch: RefCell::new(Scratch { receiver: Receiver::new(), sender: Sender::new() }),
            log_throttle: LogThrottle::new(WARNING_INTERVAL),
            shared,
        })
    }
}
