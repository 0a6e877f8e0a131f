//! Steered UDP frontends. Their datagrams arrive on one socket per family; the destination identifies the frontend. A frontend's state
//! on this worker is created with its first datagram; its socket for answers is open while it has flows.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;

use super::context::{Scratch, UdpContext};
use super::forward::{Arrival, forward_arrivals};
use super::frontend::{ReplySocket, UdpFrontend, UdpFrontends};
use super::registry::{Progress, Registration, Source};
use crate::counters::{DropReason, UdpCounters};
use crate::listener::steering::frontends::SteeredFrontends;
use crate::sys::mmsg::{BATCH, Receiver};
use crate::worker::token::Key;
use sheave_model::{FrontendAddr, Protocol};

/// Destination and sender of a message.
type Steered = (SocketAddr, Arrival);

/// All steered UDP frontends of one worker.
pub(super) struct SteeredUdp {
    steered: Arc<SteeredFrontends>,
    context: Rc<UdpContext>,
    /// Keys of the frontends that have received datagrams.
    places: HashMap<FrontendAddr, Key, foldhash::fast::RandomState>,
    /// Registrations of the sockets that receive datagrams, one per family.
    inlets: Vec<Registration>,
    draining: bool,
}

impl SteeredUdp {
    /// Creates the state without sockets.
    pub(super) fn new(steered: Arc<SteeredFrontends>, context: &Rc<UdpContext>) -> Self {
        let (context, places, inlets) = (Rc::clone(context), HashMap::default(), Vec::new());
        Self { steered, context, places, inlets, draining: false }
    }

    /// Serves a socket that reports the destination of datagrams; `own` is the socket's own address, which belongs to no frontend.
    ///
    /// # Errors
    /// Returns an error if epoll_ctl(2) fails.
    pub(super) fn listen(&mut self, own: FrontendAddr, socket: Arc<Socket>) -> io::Result<()> {
        self.context.offload.prepare(&socket);
        self.inlets.push(self.context.registry.register(Source::Inlet(own, socket))?);
        Ok(())
    }

    /// Removes a closed frontend and returns its key. `None` if it never received a datagram, or if it has been opened again: its
    /// flows then go on and follow the table.
    pub(super) fn remove(&mut self, frontends: &mut UdpFrontends, addr: FrontendAddr) -> Option<Key> {
        let place = *self.places.get(&addr)?;
        let (counters, frontend) = (self.counters(addr), frontends.get_mut(place));
        if counters
            .is_some_and(|own| frontend.is_some_and(|frontend| Arc::ptr_eq(&own, &frontend.counters())))
        {
            return None;
        }
        self.places.remove(&addr)
    }

    /// The key of a frontend that has received datagrams.
    pub(super) fn known(&self, addr: FrontendAddr) -> Option<Key> {
        self.places.get(&addr).copied()
    }

    /// The frontend's counters on this worker; `None` if it is not steered.
    fn counters(&self, addr: FrontendAddr) -> Option<Arc<UdpCounters>> {
        self.steered.counters(addr)?.get(self.context.worker.index)?.udp()
    }

    /// Stops all frontends from accepting new flows.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// Releases all sockets and frontends.
    pub(super) fn leave(&mut self) {
        self.places.clear();
        self.inlets.clear();
    }

    /// The key of the frontend on this worker, created on demand; `None` if it is not steered.
    pub(super) fn place(&mut self, frontends: &mut UdpFrontends, addr: FrontendAddr) -> Option<Key> {
        self.frontend(frontends, addr).map(|frontend| frontend.place)
    }

    /// The frontend on this worker, created on demand; `None` if it is not steered.
    fn frontend<'f>(
        &mut self,
        frontends: &'f mut UdpFrontends,
        addr: FrontendAddr,
    ) -> Option<&'f Rc<UdpFrontend>> {
        if let Some(place) = self.places.get(&addr) {
            return frontends.get_mut(*place).map(|frontend| &*frontend);
        }
        let counters = self.counters(addr)?;
        let place = frontends
            .insert_with(|place| UdpFrontend::new(&self.context, place, addr, counters, ReplySocket::Own));
        self.places.insert(addr, place);
        let frontend = frontends.get_mut(place)?;
        if self.draining {
            frontend.drain();
        }
        Some(frontend)
    }

    /// Receives one batch and forwards each frontend's part of it.
    pub(super) fn batch(
        &mut self,
        frontends: &mut UdpFrontends,
        own: FrontendAddr,
        socket: &Socket,
    ) -> Progress {
        let context = Rc::clone(&self.context);
        let mut scratch = context.scratch.borrow_mut();
        let Scratch { receiver, sender } = &mut *scratch;
        let count = match context.receive(receiver, socket) {
            Ok(count) => count,
            Err(error) => return Progress::of_error(&error),
        };
        // A frontend may have opened during this turn, and its first datagrams may be in this batch.
        context.worker.refresh_table();
        let table = context.worker.table();
        let view = context.view(&table);
        let (mut steered, told) = arrivals(receiver, count);
        let steered = &mut steered[..told];
        steered.sort_unstable();
        for run in steered.chunk_by(|left, right| left.0 == right.0) {
            let (ip, port) = (run[0].0.ip(), run[0].0.port());
            let addr = FrontendAddr { ip, port, protocol: Protocol::Udp };
            if addr == own {
                continue;
            }
            let (mut arrivals, whole) = whole_arrivals(receiver, run);
            let Some(state) = self.frontend(frontends, addr) else { continue };
            state.counters().count_dropped(DropReason::Truncated, run.len() - whole);
            forward_arrivals(state, view, receiver, sender, &mut arrivals[..whole]);
        }
        Progress::of_count(count)
    }
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

/// The messages of one frontend without truncated ones.
fn whole_arrivals(receiver: &Receiver, run: &[Steered]) -> ([Arrival; BATCH], usize) {
    let mut arrivals = [NOTHING.1; BATCH];
    let mut whole = 0;
    for (_, arrival) in run.iter().filter(|(_, (_, index))| !receiver.get(*index).truncated) {
        arrivals[whole] = *arrival;
        whole += 1;
    }
    (arrivals, whole)
}
