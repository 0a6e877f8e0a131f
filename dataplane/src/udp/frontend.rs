//! One UDP frontend on one worker: its sockets, its flows, and the sweep that ends quiet ones.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time;

use super::batch::BundleLimit;
use super::context::UdpContext;
use super::flow_table::FlowOwner;
use super::flow_table::{FlowTable, FlowTimeouts};
use super::sockets::{Socket, Upstream};
use crate::counters::UdpCounters;
use crate::limits::capacity::Capacity;
use crate::sys::Errno;
use crate::task::Task;
use sheave_model::{ClientAddr, EndpointAddr, FrontendAddr};

/// While draining, a flow that was quiet for so long is taken to be over.
pub(super) const DRAIN_IDLE: Duration = Duration::from_secs(2);

/// A socket on the frontend's address, and the task that reads what clients send to it; none if that is read elsewhere. The
/// frontend's own is shared by all its flows; after retirement each flow has one to itself.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub(super) socket: Rc<Socket>,
    pub(super) _reader: Option<Task>,
    pub(super) _descriptor: Option<Descriptor>,
}

/// A descriptor beyond the one that every flow has; given back when dropped.
#[derive(Debug)]
pub(super) struct Descriptor(Arc<Capacity>);

impl Descriptor {
    /// Takes one.
    ///
    /// # Errors
    /// `EMFILE` if there is none.
    pub(super) fn take(capacity: &Arc<Capacity>) -> io::Result<Self> {
        if capacity.try_take(1) { Ok(Self(Arc::clone(capacity))) } else { Err(Errno::EMFILE.into()) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.give(1);
    }
}

impl ClientSide {
    /// Answers only.
    pub(super) fn deaf(socket: Rc<Socket>, descriptor: Descriptor) -> Rc<Self> {
        Rc::new(Self { socket, _reader: None, _descriptor: Some(descriptor) })
    }
}

/// Both ends of a flow.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) upstream: Rc<Upstream>,
    pub(super) upstream_limit: BundleLimit,
    /// The PROXY protocol header before each datagram to the endpoint; may be empty.
    pub(super) header: Vec<u8>,
    pub(super) client_side: Rc<ClientSide>,
    pub(super) client_limit: BundleLimit,
    pub(super) _replies: Task,
}

/// Where a frontend's clients are answered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplySocket {
    /// The socket that their datagrams come in on, which is bound to the frontend's address.
    Listening,
    /// A socket that is there while there are flows: datagrams are steered past it.
    Own,
}

/// Shared by the tasks of one frontend.
pub(super) struct UdpFrontend {
    pub(super) context: Rc<UdpContext>,
    pub(super) addr: FrontendAddr,
    pub(super) flows: RefCell<FlowTable<Link>>,
    answers: ReplySocket,
    /// The frontend's own socket; gone once retired.
    pub(super) listening: RefCell<Option<Rc<ClientSide>>>,
    /// There from a frontend's first flow on, until it has none.
    sweeper: RefCell<Option<Task>>,
    /// When it looks next.
    next_sweep: Cell<Option<Instant>>,
    /// The sweeper should look again.
    pub(super) rescheduled: Notify,
    /// The last flow ended.
    pub(super) emptied: Notify,
    /// Dropped last: while they are used, there are sockets on the address.
    pub(super) counters: Arc<UdpCounters>,
}

impl UdpFrontend {
    pub(super) fn new(
        context: &Rc<UdpContext>,
        addr: FrontendAddr,
        counters: Arc<UdpCounters>,
        answers: ReplySocket,
    ) -> Rc<Self> {
        let timeouts = FlowTimeouts {
            idle: context.shared.timeouts.udp_idle,
            unanswered: context.shared.timeouts.udp_unanswered,
        };
        let budget = Rc::clone(&context.budget);
        Rc::new_cyclic(|state: &Weak<Self>| Self {
            context: Rc::clone(context),
            addr,
            flows: RefCell::new(FlowTable::new(
                timeouts,
                budget,
                Weak::<Self>::clone(state),
                Arc::clone(&counters),
            )),
            counters,
            answers,
            listening: RefCell::new(None),
            sweeper: RefCell::new(None),
            next_sweep: Cell::new(None),
            rescheduled: Notify::new(),
            emptied: Notify::new(),
        })
    }

    /// Through what the clients of new flows are answered; a frontend that takes new flows has not retired.
    pub(super) fn client_side(&self) -> io::Result<Rc<ClientSide>> {
        let mut listening = self.listening.borrow_mut();
        if listening.is_none() && self.answers == ReplySocket::Own {
            let descriptor = Descriptor::take(&self.context.shared.capacity)?;
            *listening = Some(ClientSide::deaf(self.context.offload.answering(self.addr)?, descriptor));
        }
        listening.clone().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// What to assume of a path that has not refused a bundle yet.
    pub(super) fn initial_limit(&self) -> BundleLimit {
        self.context.offload.initial_limit()
    }

    /// An endpoint was reported unreachable.
    pub(super) fn endpoint_failed(&self, endpoint: EndpointAddr, error: &io::Error) {
        let context = &self.context;
        let error = io::Error::new(error.kind(), error.to_string());
        context.shared.reports.failed(&context.shared.table.load(), self.addr, endpoint, error);
    }

    /// To be called when flows may have come or gone: a frontend without flows has no timer.
    pub(super) fn flows_changed(self: &Rc<Self>) {
        let flows = self.flows.borrow();
        if flows.is_empty() {
            self.emptied.notify_one();
        } else if self.sweeper.borrow().is_none() {
            *self.sweeper.borrow_mut() = Some(Task::spawn(sweep(Rc::clone(self))));
        } else if flows.next_check() < self.next_sweep.get() {
            self.rescheduled.notify_one();
        }
    }

    /// Takes no new flows, and gives each that there is a socket of its own, made by `detach` and connected to its client. A flow
    /// for which none can be made ends.
    pub(super) fn detach_flows(&self, detach: impl Fn(ClientAddr) -> io::Result<Rc<ClientSide>>) {
        let mut flows = self.flows.borrow_mut();
        flows.stop_accepting();
        flows.retain(|client, link| match detach(client) {
            Ok(client_side) => {
                link.client_side = client_side;
                true
            }
            Err(error) => {
                tracing::debug!(client.addr = %client, frontend = %self.addr, %error, "flow lost on retirement");
                false
            }
        });
    }

    /// Takes no new flows, and ends the others once they are quiet.
    pub(super) fn drain(self: &Rc<Self>) {
        let mut flows = self.flows.borrow_mut();
        flows.stop_accepting();
        flows.shorten_idle(DRAIN_IDLE);
        drop(flows);
        self.rescheduled.notify_one();
        self.flows_changed();
    }

    /// Waits until one that takes no new flows has none left. Cancel-safe; one may wait at a time.
    pub(super) async fn finished(&self) {
        while self.flows.borrow().is_accepting() || !self.flows.borrow().is_empty() {
            self.emptied.notified().await;
        }
    }

    /// Ends everything at once.
    pub(super) fn close(&self) {
        self.listening.take();
        self.sweeper.take();
        self.flows.borrow_mut().clear();
        self.emptied.notify_one();
    }
}

impl FlowOwner for UdpFrontend {
    // Borrowed only while this frontend's own datagrams are routed, and then it is not asked.
    fn flows(&self) -> usize {
        self.flows.try_borrow().map_or(0, |flows| flows.len())
    }

    fn evict(&self, now: Instant, towards: Option<EndpointAddr>) -> bool {
        self.flows.try_borrow_mut().is_ok_and(|mut flows| flows.evict(now, Duration::ZERO, towards))
    }
}

/// Flows that are looked at before other tasks of the worker get their turn.
const SWEPT: usize = 256;

/// Ends flows that went quiet, until there are none left.
async fn sweep(state: Rc<UdpFrontend>) {
    loop {
        let next = state.flows.borrow().next_check();
        let Some(at) = next else { break };
        state.next_sweep.set(next);
        tokio::select! {
            () = time::sleep_until(at.into()) => {}
            () = state.rescheduled.notified() => {}
        }
        // The timeout may have become another.
        state.flows.borrow_mut().set_frontend(state.context.shared.table.load().get(state.addr));
        while !state.flows.borrow_mut().expire(time::Instant::now().into_std(), SWEPT) {
            yield_now().await;
        }
    }
    state.next_sweep.set(None);
    if state.answers == ReplySocket::Own {
        state.listening.take();
    }
    // Nothing is awaited from here on, so the next flow finds that there is no sweeper.
    state.sweeper.take();
    state.emptied.notify_one();
}
