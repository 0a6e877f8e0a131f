//! UDP frontend on one worker: its sockets, its flows, and the sweep that ends idle ones.

use std::cell::{Cell, Ref, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::batch::BundleLimit;
use super::context::{CLOSING, UdpContext};
use super::flow_table::FlowOwner;
use super::flow_table::{EndedFlows, FlowTable, FlowTimeouts};
use super::registry::{Registration, Source};
use super::sockets::Upstream;
use crate::counters::UdpCounters;
use crate::health::ConnectedFrom;
use crate::limits::capacity::Capacity;
use crate::sys::Errno;
use crate::worker::token::{Key, KeyedSlab};
use sheave_model::{EndpointAddr, FrontendAddr};

/// Idle timeout of flows while draining.
pub(super) const DRAIN_IDLE: Duration = Duration::from_secs(2);

/// Maximum number of flows of a frontend that are checked before others have their turn.
pub(super) const SWEPT: usize = 256;

/// Interval between reports that clients cannot be answered, which every datagram without a flow finds out.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// All UDP frontends of a worker. Dropping one closes its sockets and ends its flows.
pub(super) type UdpFrontends = KeyedSlab<Rc<UdpFrontend>>;

/// A socket on the frontend's address, which all its flows share, and the registration to read what clients send to it. The
/// registration is `None` if another socket receives that.
struct ClientSide {
    socket: Arc<Socket>,
    _reading: Option<Registration>,
    _descriptor: Option<Descriptor>,
}

/// A descriptor in addition to the one that every flow has; returned when dropped.
struct Descriptor(Arc<Capacity>);

impl Descriptor {
    /// Takes a descriptor.
    ///
    /// # Errors
    /// Returns `EMFILE` if the limit is reached.
    fn take(capacity: &Arc<Capacity>) -> io::Result<Self> {
        if capacity.try_take(1) { Ok(Self(Arc::clone(capacity))) } else { Err(Errno::EMFILE.into()) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.give(1);
    }
}

/// Path of a flow to its endpoint and back. The client is answered through the frontend's socket.
pub(super) struct Link {
    pub(super) upstream: Rc<Upstream>,
    pub(super) upstream_limit: BundleLimit,
    /// PROXY protocol header before each datagram to the endpoint; may be empty.
    pub(super) header: Vec<u8>,
    pub(super) client_limit: BundleLimit,
    pub(super) _replies: Registration,
}

/// Socket from which a frontend's clients are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplySocket {
    /// The socket that receives their datagrams, which is bound to the frontend's address.
    Listening,
    /// A socket that is open while there are flows; steered datagrams do not arrive on it.
    Own,
}

/// UDP frontend on one worker.
pub(super) struct UdpFrontend {
    pub(super) context: Rc<UdpContext>,
    /// Key among the worker's frontends.
    pub(super) place: Key,
    pub(super) addr: FrontendAddr,
    pub(super) flows: RefCell<FlowTable<Link>>,
    answers: ReplySocket,
    /// `None` once the frontend accepts no new flows and has none.
    client_side: RefCell<Option<ClientSide>>,
    /// When it was last reported that no socket can be bound to its address.
    reported: Cell<Option<Instant>>,
    /// When it checks for idle flows next; `None` while there are no flows.
    next_sweep: Cell<Option<Instant>>,
    /// Dropped last: shared counters show that sockets on the address are still open.
    counters: RefCell<Arc<UdpCounters>>,
}

impl UdpFrontend {
    pub(super) fn new(
        context: &Rc<UdpContext>,
        place: Key,
        addr: FrontendAddr,
        counters: Arc<UdpCounters>,
        answers: ReplySocket,
    ) -> Rc<Self> {
        let timeouts = flow_timeouts(context);
        let budget = Rc::clone(&context.budget);
        Rc::new_cyclic(|state: &Weak<Self>| Self {
            context: Rc::clone(context),
            place,
            addr,
            flows: RefCell::new(FlowTable::new(
                timeouts,
                budget,
                Weak::<Self>::clone(state),
                Arc::clone(&counters),
            )),
            counters: RefCell::new(counters),
            answers,
            client_side: RefCell::default(),
            reported: Cell::default(),
            next_sweep: Cell::default(),
        })
    }

    /// Serves clients that send to `socket`, which is bound to the frontend's address and nonblocking.
    ///
    /// # Errors
    /// Returns an error if epoll_ctl(2) fails.
    pub(super) fn listen(&self, socket: Arc<Socket>) -> io::Result<()> {
        self.context.offload.prepare(&socket);
        let reading = self.context.registry.register(Source::Frontend(self.place, Arc::clone(&socket)))?;
        let client_side = ClientSide { socket, _reading: Some(reading), _descriptor: None };
        *self.client_side.borrow_mut() = Some(client_side);
        Ok(())
    }

    pub(super) fn counters(&self) -> Ref<'_, Arc<UdpCounters>> {
        self.counters.borrow()
    }

    /// Counts with these counters from now on, which are those of another Service.
    pub(super) fn count_with(&self, counters: &Arc<UdpCounters>) {
        let mut flows = self.flows.borrow_mut();
        flows.set_frontend(self.context.worker.table().get(self.addr));
        flows.set_counters(Arc::clone(counters));
        *self.counters.borrow_mut() = Arc::clone(counters);
    }

    /// The socket through which clients are answered, if there is one.
    pub(super) fn client_socket(&self) -> Option<Arc<Socket>> {
        self.client_side.borrow().as_ref().map(|client_side| Arc::clone(&client_side.socket))
    }

    /// The socket through which the client of a new flow is answered; opens one if there is none.
    ///
    /// # Errors
    /// Returns an error if no descriptor is left, or if socket(2) or bind(2) fails. It is never one of those of connect(2) that another
    /// endpoint may mend.
    pub(super) fn open_client_socket(&self) -> io::Result<Arc<Socket>> {
        if self.answers == ReplySocket::Own && self.client_side.borrow().is_none() {
            let descriptor = Some(Descriptor::take(&self.context.worker.shared.capacity)?);
            let socket =
                self.context.offload.answering(self.addr).or_else(|error| self.cannot_answer(error))?;
            let client_side = ClientSide { socket, _reading: None, _descriptor: descriptor };
            *self.client_side.borrow_mut() = Some(client_side);
        }
        self.client_socket().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Reports that no socket can be bound to the frontend's address, and returns an error that no endpoint is to blame for.
    fn cannot_answer<T>(&self, error: io::Error) -> io::Result<T> {
        let (worker, now) = (&self.context.worker, self.context.worker.now());
        if error.kind() == io::ErrorKind::AddrInUse
            && self.reported.get().is_none_or(|reported| reported + REPORT_EVERY <= now)
        {
            self.reported.set(Some(now));
            let error = io::Error::new(error.kind(), error.to_string());
            worker.report_broken(self.addr, None, error);
        }
        Err(io::Error::other(error))
    }

    /// Limit for a path that has not refused a bundle yet.
    pub(super) fn initial_limit(&self) -> BundleLimit {
        self.context.offload.initial_limit()
    }

    /// Reports that an endpoint is unreachable, and not because of the client's address.
    pub(super) fn endpoint_failed(&self, endpoint: EndpointAddr, error: &io::Error) {
        let worker = &self.context.worker;
        let error = io::Error::new(error.kind(), error.to_string());
        let (table, from) = (worker.table(), ConnectedFrom::Gateway);
        if let Some(active) = table.get(self.addr) {
            worker.shared.reports.failed(&table, active, endpoint, from, error, worker.now());
        }
    }

    /// Schedules the next sweep after flows were added or removed, or their timeouts changed. Closes the socket of a draining
    /// frontend after its last flow.
    pub(super) fn flows_changed(&self) {
        let flows = self.flows.borrow();
        let (next, is_over) = (flows.next_check(), flows.is_empty() && !flows.is_accepting());
        drop(flows);
        if is_over {
            self.client_side.take();
        }
        let now = self.context.worker.now();
        let Some(due) = next.map(|at| at.max(now)) else { return };
        if self.next_sweep.get().is_none_or(|next| due < next) {
            self.context.sweeps.borrow_mut().push(now, due - now, self.place);
            self.next_sweep.set(Some(due));
        }
    }

    pub(super) fn timeouts_changed(&self) {
        self.flows.borrow_mut().set_timeouts(flow_timeouts(&self.context));
        self.flows_changed();
    }

    /// Ends idle flows if that was scheduled for `due`.
    pub(super) fn sweep(&self, due: Instant) {
        if self.next_sweep.get() != Some(due) {
            return;
        }
        let (worker, mut flows) = (&self.context.worker, self.flows.borrow_mut());
        // The timeout may have changed.
        flows.set_frontend(worker.table().get(self.addr));
        let before = flows.len();
        let looks = if flows.expire(worker.now(), SWEPT) { 1 } else { SWEPT };
        self.context.add_work(looks + CLOSING * (before - flows.len()));
        let nothing_left = flows.next_check().is_none();
        drop(flows);
        self.next_sweep.set(None);
        if nothing_left && self.answers == ReplySocket::Own {
            self.client_side.take();
        }
        self.flows_changed();
    }

    /// Closes the socket and removes all flows. Each flow ends when it is dropped.
    pub(super) fn end(&self) -> EndedFlows<Link> {
        self.client_side.take();
        self.flows.borrow_mut().end()
    }

    /// Stops accepting flows, and ends the others once they are idle.
    pub(super) fn drain(&self) {
        let mut flows = self.flows.borrow_mut();
        flows.stop_accepting();
        flows.shorten_idle(DRAIN_IDLE);
        drop(flows);
        self.flows_changed();
    }
}

fn flow_timeouts(context: &UdpContext) -> FlowTimeouts {
    let timeouts = context.worker.timeouts();
    FlowTimeouts { idle: timeouts.udp_idle, unanswered: timeouts.udp_unanswered }
}

impl FlowOwner for UdpFrontend {
    // The flows are borrowed only while this frontend's own datagrams are routed, and other frontends do not call it then.
    fn flows(&self) -> usize {
        self.flows.try_borrow().map_or(0, |flows| flows.len())
    }

    fn evict(&self, now: Instant, towards: Option<EndpointAddr>) -> bool {
        self.flows.try_borrow_mut().is_ok_and(|mut flows| flows.evict(now, Duration::ZERO, towards))
    }
}
