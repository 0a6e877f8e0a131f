//! What all frontends of one worker share for UDP: the limits, the sockets and their options, and the scratch buffers.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sheave_model::ClientAddr;
use socket2::Socket;

use super::flow_table::{FlowBudget, View};
use super::local_ports::LocalPorts;
use super::registry::Registry;
use super::sockets::{Offload, Upstream};
use crate::counters::UdpCounters;
use crate::log_throttle::LogThrottle;
use crate::select::ActiveTable;
use crate::sys::mmsg::{Receiver, Sender};
use crate::worker::context::WorkerContext;
use crate::worker::deadlines::Deadlines;
use crate::worker::token::Key;

/// Time between two warnings of the same kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// What is done before others of the worker have their turn, in units of what a small datagram takes: about a microsecond.
const WORK_PER_TURN: usize = 512;
/// Bytes that take as long to copy in and out as a small datagram to handle.
const BYTES_OF_WORK: usize = 4096;
/// Opening a flow: about ten system calls.
pub(super) const OPENING: usize = 16;
/// Ending one: the kernel takes its socket apart.
pub(super) const CLOSING: usize = 8;

/// Buffers for one batch each way. One set serves the whole worker, since a batch is received and sent in one go.
pub(super) struct Scratch {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
}

/// The way of answers from an endpoint that its client has left.
pub(super) struct FormerWay {
    pub(super) client: ClientAddr,
    pub(super) upstream: Rc<Upstream>,
    /// Through which the client is answered.
    pub(super) client_socket: Arc<Socket>,
    pub(super) counters: Arc<UdpCounters>,
}

/// What all frontends of one worker share for UDP. Lives and dies on the worker's thread.
pub(super) struct UdpContext {
    pub(super) worker: Rc<WorkerContext>,
    pub(super) budget: Rc<FlowBudget>,
    pub(super) offload: Offload,
    pub(super) registry: Rc<Registry>,
    /// When frontends look for flows that went quiet; those without flows have no moment.
    pub(super) sweeps: RefCell<Deadlines<Key>>,
    pub(super) scratch: RefCell<Scratch>,
    /// Ways that flows have left, for as long as the scratch buffers are in use.
    pub(super) former_ways: RefCell<Vec<FormerWay>>,
    pub(super) log_throttle: LogThrottle,
    /// Done since others had their turn.
    work: Cell<usize>,
}

impl UdpContext {
    /// Allocates the share of one worker. Beyond the flows that it may have over all frontends, a new one takes the place of another. Each flow costs a descriptor, and a port towards its endpoint.
    pub(super) fn new(worker: &Rc<WorkerContext>) -> Rc<Self> {
        let shared = &worker.shared;
        Rc::new(Self {
            budget: FlowBudget::new(
                worker.settings().udp_flows,
                Arc::clone(&shared.capacity),
                Rc::clone(&worker.tally),
            ),
            offload: Offload::new(
                Arc::clone(&shared.paths),
                LocalPorts::of_worker(worker),
                Arc::clone(&shared.upstream_addresses),
            ),
            registry: Registry::new(worker),
            sweeps: RefCell::new(Deadlines::new(worker.timeouts().udp_unanswered)),
            scratch: RefCell::new(Scratch { receiver: Receiver::new(), sender: Sender::new() }),
            former_ways: RefCell::default(),
            log_throttle: LogThrottle::new(WARNING_INTERVAL),
            work: Cell::new(0),
            worker: Rc::clone(worker),
        })
    }

    /// What flows are routed by in this turn.
    pub(super) fn view<'a>(&'a self, table: &'a ActiveTable) -> View<'a> {
        let WorkerContext { shared, random, .. } = &*self.worker;
        let upstream_addresses = &*shared.upstream_addresses;
        View { table, affinity: &shared.affinity, upstream_addresses, random, now: self.worker.now() }
    }

    /// Receives a batch, as [`Receiver::receive`].
    pub(super) fn receive(&self, receiver: &mut Receiver, socket: &Socket) -> io::Result<usize> {
        let received = receiver.receive(socket);
        self.add_work(received.as_ref().map_or(1, |count| count + 1));
        received
    }

    /// Counts bytes that were sent as work.
    pub(super) fn count_bytes(&self, bytes: usize) {
        self.add_work(bytes / BYTES_OF_WORK);
    }

    /// Counts work.
    pub(super) fn add_work(&self, work: usize) {
        self.work.update(|done| done + work);
    }

    /// Begins to count work.
    pub(super) fn begin_work(&self) {
        self.work.set(0);
    }

    /// Whether others are to have their turn now.
    pub(super) fn has_worked_enough(&self) -> bool {
        self.work.get() >= WORK_PER_TURN
    }
}
