//! Datagrams of all steered frontends arrive on one socket per family; their destination names the frontend. What a frontend needs on
//! this worker is made when its first datagram arrives; its socket for answers exists while it has flows.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tokio::time;

use super::UdpListener;
use super::context::{Scratch, UdpContext};
use super::flow_table::View;
use super::forward::{self, Arrival, forward_arrivals};
use super::frontend::{ReplySocket, UdpFrontend};
use super::read_loop::{self, Progress};
use super::sockets::Socket;
use crate::counters::DropReason;
use crate::listener::steering::frontends::SteeredFrontends;
use crate::sys::mmsg::{BATCH, Receiver};
use crate::task::Task;
use sheave_model::{ClientAddr, FrontendAddr, Protocol};

/// Where a message was sent to, and from whom.
type Steered = (SocketAddr, Arrival);

/// All steered UDP frontends on one worker. All its methods belong on the worker's thread, inside its runtime.
pub(crate) struct SteeredUdp {
    steered: Arc<SteeredFrontends>,
    /// Which worker this is.
    index: usize,
    context: Rc<UdpContext>,
    /// Those that datagrams have come for.
    frontends: RefCell<HashMap<FrontendAddr, UdpListener, foldhash::fast::RandomState>>,
    /// One per family.
    readers: RefCell<Vec<Reader>>,
    draining: Cell<bool>,
}

/// A socket that datagrams come in on, and the task that reads it.
struct Reader {
    inlet: Rc<Inlet>,
    _task: Task,
}

struct Inlet {
    socket: Rc<Socket>,
    /// Its own address: what is sent there is for no frontend.
    own: FrontendAddr,
}

impl SteeredUdp {
    /// Listens nowhere yet.
    pub(crate) fn new(steered: Arc<SteeredFrontends>, index: usize, context: &Rc<UdpContext>) -> Rc<Self> {
        Rc::new(Self {
            steered,
            index,
            context: Rc::clone(context),
            frontends: RefCell::default(),
            readers: RefCell::default(),
            draining: Cell::new(false),
        })
    }

    /// Serves a socket that reports the destination of datagrams; `own` is its own address.
    ///
    /// # Errors
    /// If the worker's reactor cannot watch it.
    pub(crate) fn listen(self: &Rc<Self>, own: FrontendAddr, socket: Arc<socket2::Socket>) -> io::Result<()> {
        let inlet = Rc::new(Inlet { socket: self.context.offload.listening(socket)?, own });
        let task = Task::spawn(receive(Rc::clone(self), Rc::clone(&inlet)));
        self.readers.borrow_mut().push(Reader { inlet, _task: task });
        Ok(())
    }

    /// Ends a frontend with all its flows.
    pub(crate) fn close(&self, addr: FrontendAddr) {
        self.frontends.borrow_mut().remove(&addr);
    }

    /// The frontend takes no new flows; those that it has go on, as with [`UdpListener::retire`]. `None` if it is not steered,
    /// or nothing ever came for it.
    pub(crate) fn retire(&self, addr: FrontendAddr) -> Option<UdpListener> {
        let retired = self.frontends.borrow_mut().remove(&addr)?;
        forward::detach_flows(&retired.state);
        retired.state.listening.take();
        // What waits is for these flows, too.
        for Reader { inlet, .. } in &*self.readers.borrow() {
            read_loop::drain(|| self.batch(inlet, Some(&retired.state)));
        }
        Some(retired)
    }

    /// Opens no new flows. Each of the answers waits until one frontend's others are quiet.
    pub(crate) fn drain(&self) -> Vec<impl Future<Output = ()> + use<>> {
        self.draining.set(true);
        let frontends = self.frontends.borrow();
        let states = frontends.values().map(|listener| Rc::clone(&listener.state));
        states
            .map(|state| {
                state.drain();
                async move { state.finished().await }
            })
            .collect()
    }

    /// What the frontend has on this worker; `None` if it is not steered.
    fn state(&self, addr: FrontendAddr) -> Option<Rc<UdpFrontend>> {
        let mut frontends = self.frontends.borrow_mut();
        if let Some(listener) = frontends.get(&addr) {
            return Some(Rc::clone(&listener.state));
        }
        let counters = self.steered.counters(addr, self.index)?.udp()?;
        let state = UdpFrontend::new(&self.context, addr, counters, ReplySocket::Own);
        if self.draining.get() {
            state.drain();
        }
        frontends.insert(addr, UdpListener { state: Rc::clone(&state) });
        Some(state)
    }

    /// Receives one batch and sends it on, each frontend's part by itself. A frontend that retires still gets what its flows
    /// are sent; it may be open anew by now, so whatever else there is finds another one.
    fn batch(&self, Inlet { socket, own }: &Inlet, retiring: Option<&Rc<UdpFrontend>>) -> Progress {
        let context = &*self.context;
        let mut scratch = context.scratch.borrow_mut();
        let Scratch { receiver, sender } = &mut *scratch;
        let count = match receiver.receive(socket.get_ref()) {
            Ok(count) => count,
            Err(error) => return Progress::of_error(&error),
        };
        let table = context.shared.table.load();
        let (affinity, random) = (&*context.shared.affinity, &context.random);
        let view = View { table: &table, affinity, random, now: time::Instant::now().into_std() };
        let (mut steered, told) = arrivals(receiver, count);
        let steered = &mut steered[..told];
        steered.sort_unstable();
        for run in steered.chunk_by(|left, right| left.0 == right.0) {
            let (ip, port) = (run[0].0.ip(), run[0].0.port());
            let addr = FrontendAddr { ip, port, protocol: Protocol::Udp };
            if addr == *own {
                continue;
            }
            let (mut arrivals, whole) = whole_arrivals(receiver, run);
            let mut arrivals = &mut arrivals[..whole];
            if let Some(retiring) = retiring.filter(|retiring| retiring.addr == addr) {
                let (of_its_flows, others) = split_off_flows(retiring, arrivals);
                forward_arrivals(retiring, view, receiver, sender, of_its_flows);
                arrivals = others;
            }
            let Some(state) = self.state(addr) else { continue };
            state.counters.count_dropped(DropReason::Truncated, run.len() - whole);
            forward_arrivals(&state, view, receiver, sender, arrivals);
        }
        Progress::of_count(count)
    }
}

/// What the clients of a frontend's flows sent, and what others did.
fn split_off_flows<'a>(
    state: &UdpFrontend,
    arrivals: &'a mut [Arrival],
) -> (&'a mut [Arrival], &'a mut [Arrival]) {
    let flows = state.flows.borrow();
    let has_flow = |(from, _): &Arrival| flows.endpoint(ClientAddr(*from)).is_some();
    arrivals.sort_by_key(|arrival| !has_flow(arrival));
    let split = arrivals.partition_point(has_flow);
    arrivals.split_at_mut(split)
}

/// Receives from a socket, until whoever owns the task drops it.
async fn receive(frontends: Rc<SteeredUdp>, inlet: Rc<Inlet>) {
    read_loop::run(&inlet.socket, || frontends.batch(&inlet, None)).await;
}

const NOTHING: Steered = {
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    (nobody, (nobody, 0))
};

/// The messages whose destination and sender are known.
fn arrivals(receiver: &Receiver, count: usize) -> ([Steered; BATCH], usize) {
    let mut arrivals = [NOTHING; BATCH];
    let mut told = 0;
    for index in 0..count {
        if let (Some(to), Some(from)) = (receiver.destination(index), receiver.get(index).from) {
            arrivals[told] = (to, (from, index));
            told += 1;
        }
    }
    (arrivals, told)
}

/// The messages of one frontend without those that were cut.
fn whole_arrivals(receiver: &Receiver, run: &[Steered]) -> ([Arrival; BATCH], usize) {
    let mut arrivals = [NOTHING.1; BATCH];
    let mut whole = 0;
    for (_, arrival) in run.iter().filter(|(_, (_, index))| !receiver.get(*index).truncated) {
        arrivals[whole] = *arrival;
        whole += 1;
    }
    (arrivals, whole)
}
