//! Datagrams of all steered frontends arrive on one socket per family; their destination names the frontend. What a frontend needs on
//! this worker is made when its first datagram arrives; its socket for answers exists while it has flows.

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

/// Where a message was sent to, and from whom.
type Steered = (SocketAddr, Arrival);

/// All steered UDP frontends on one worker.
pub(super) struct SteeredUdp {
    steered: Arc<SteeredFrontends>,
    context: Rc<UdpContext>,
    /// The places of those that datagrams have come for.
    places: HashMap<FrontendAddr, Key, foldhash::fast::RandomState>,
    /// Of the sockets that datagrams come in on, one per family.
    inlets: Vec<Registration>,
    draining: bool,
}

impl SteeredUdp {
    /// Listens nowhere yet.
    pub(super) fn new(steered: Arc<SteeredFrontends>, context: &Rc<UdpContext>) -> Self {
        let (context, places, inlets) = (Rc::clone(context), HashMap::default(), Vec::new());
        Self { steered, context, places, inlets, draining: false }
    }

    /// Serves a socket that reports the destination of datagrams; `own` is its own address, which is for no frontend.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(super) fn listen(&mut self, own: FrontendAddr, socket: Arc<Socket>) -> io::Result<()> {
        self.context.offload.prepare(&socket);
        self.inlets.push(self.context.registry.register(Source::Inlet(own, socket))?);
        Ok(())
    }

    /// Lets go of a frontend that is closed; gives its place. `None` if nothing ever came for it, or it is open again by now: then its
    /// flows go on, each as the table says.
    pub(super) fn remove(&mut self, frontends: &mut UdpFrontends, addr: FrontendAddr) -> Option<Key> {
        let place = *self.places.get(&addr)?;
        let (counters, frontend) = (self.counters(addr), frontends.get_mut(place));
        if counters.is_some_and(|own| frontend.is_some_and(|frontend| Arc::ptr_eq(&own, &frontend.counters)))
        {
            return None;
        }
        self.places.remove(&addr)
    }

    /// Those of this worker; `None` if the frontend is not steered.
    fn counters(&self, addr: FrontendAddr) -> Option<Arc<UdpCounters>> {
        self.steered.counters(addr)?.get(self.context.worker.index)?.udp()
    }

    /// From now on no frontend takes new flows.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// Lets go of everything.
    pub(super) fn leave(&mut self) {
        self.places.clear();
        self.inlets.clear();
    }

    /// The place of what the frontend has on this worker; `None` if it is not steered.
    pub(super) fn place(&mut self, frontends: &mut UdpFrontends, addr: FrontendAddr) -> Option<Key> {
        self.frontend(frontends, addr).map(|frontend| frontend.place)
    }

    /// What the frontend has on this worker; `None` if it is not steered.
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

    /// Receives one batch and sends it on, each frontend's part by itself.
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
        // A frontend may have opened in this turn, and its first datagrams are among these.
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
            state.counters.count_dropped(DropReason::Truncated, run.len() - whole);
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
