//! State that all frontends of one worker share for UDP: limits, sockets with their options, and scratch buffers.

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

/// Minimum time between two warnings of the same kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Work per turn before others on the worker have theirs, in units of a small datagram's cost: about a microsecond.
const WORK_PER_TURN: usize = 512;
/// Number of bytes that cost as much to copy in and out as a small datagram to handle.
const BYTES_OF_WORK: usize = 4096;
/// Work of opening a flow: about ten system calls.
pub(super) const OPENING: usize = 16;
/// Work of ending a flow: the kernel destroys its socket.
pub(super) const CLOSING: usize = 8;

/// Buffers for one batch each way. One set serves the whole worker, since a batch is received and sent in one go.
pub(super) struct Scratch {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
}

/// Path of late answers from an endpoint that its client's flow has left.
pub(super) struct FormerWay {
    pub(super) client: ClientAddr,
    pub(super) upstream: Rc<Upstream>,
    /// Socket through which the client is answered.
    pub(super) client_socket: Arc<Socket>,
    pub(super) counters: Arc<UdpCounters>,
}

/// State that all frontends of one worker share for UDP. It stays on the worker's thread.
pub(super) struct UdpContext {
    pub(super) worker: Rc<WorkerContext>,
    pub(super) budget: Rc<FlowBudget>,
    pub(super) offload: Offload,
    pub(super) registry: Rc<Registry>,
    /// When frontends check for idle flows; a frontend without flows has no deadline.
    pub(super) sweeps: RefCell<Deadlines<Key>>,
    pub(super) scratch: RefCell<Scratch>,
    /// Paths that flows have left while the scratch buffers were in use.
    pub(super) former_ways: RefCell<Vec<FormerWay>>,
    pub(super) log_throttle: LogThrottle,
    /// Work done in this turn.
    work: Cell<usize>,
}

impl UdpContext {
    /// Creates the state of one worker. Its flow budget covers all frontends; beyond it a new flow replaces another. Each flow costs a
    /// descriptor, and a port towards its endpoint.
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

    /// The inputs of routing in this turn.
    pub(super) fn view<'a>(&'a self, table: &'a ActiveTable) -> View<'a> {
        let WorkerContext { shared, random, .. } = &*self.worker;
        let upstream_addresses = &*shared.upstream_addresses;
        View { table, affinity: &shared.affinity, upstream_addresses, random, now: self.worker.now() }
    }

    /// Receives a batch like [`Receiver::receive`], and counts the work.
    pub(super) fn receive(&self, receiver: &mut Receiver, socket: &Socket) -> io::Result<usize> {
        let received = receiver.receive(socket);
        self.add_work(received.as_ref().map_or(1, |count| count + 1));
        received
    }

    /// Counts sent bytes as work.
    pub(super) fn count_bytes(&self, bytes: usize) {
        self.add_work(bytes / BYTES_OF_WORK);
    }

    pub(super) fn add_work(&self, work: usize) {
        self.work.update(|done| done + work);
    }

    /// Resets the count of work.
    pub(super) fn begin_work(&self) {
        self.work.set(0);
    }

    /// Whether the budget of this turn is spent.
    pub(super) fn has_worked_enough(&self) -> bool {
        self.work.get() >= WORK_PER_TURN
    }
}
