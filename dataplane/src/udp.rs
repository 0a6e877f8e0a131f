//! The UDP side of a worker. A frontend's datagrams arrive on a socket bound to its address; each client's go through a
//! flow, which is a socket connected to one endpoint, and the answers return through the frontend's socket. Those of steered
//! frontends arrive on a socket that they share.
//!
//! The way of a datagram: `turn` reads, `forward` sorts by client, `flows` decides, `batch` sends; back through `reply`
//! and `batch`. Everything of one frontend on one worker stays on that worker's thread.
//!
//! It must not know how sockets are bound or filtered, or when a frontend comes and goes.

mod batch;
mod context;
mod counters;
#[cfg(test)]
mod fixture;
mod flows;
mod forward;
mod link;
mod ports;
mod reply;
mod socket;
mod state;
mod steered;
mod tenant;
mod turn;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use sheave_model::FrontendAddr;
use socket2::Socket;

use self::forward::forward_batch;
use self::link::ClientSide;
use self::state::{Answers, State};

pub(crate) use self::context::{UdpContext, UdpLimits, UdpParts};
pub use self::counters::{Counter, DropReason, Traffic, UdpCounters, UdpTotals};
pub use self::flows::FlowRecord;
pub(crate) use self::socket::RECEIVE_BUFFER;
pub(crate) use self::steered::SteeredUdp;

/// One UDP frontend on one worker. Dropping it closes its socket and ends its flows at once.
///
/// All its methods belong on the worker's thread, inside its runtime.
pub struct UdpListener {
    state: Rc<State>,
}

impl UdpListener {
    /// Starts to serve the frontend on `socket`, which is bound to the frontend's address and nonblocking. By which
    /// endpoints is looked up in the context's table, again for each batch.
    pub(crate) fn start(
        socket: Arc<Socket>,
        addr: FrontendAddr,
        counters: Arc<UdpCounters>,
        context: &Rc<UdpContext>,
    ) -> io::Result<Self> {
        let state = State::new(context, addr, counters, Answers::FromListening);
        let socket = context.offload.listening(socket)?;
        *state.listening.borrow_mut() = Some(ClientSide::start(&state, socket, None));
        Ok(Self { state })
    }

    /// Closes the frontend's socket, so that the kernel refuses strangers with ICMP, and keeps the flows: each goes on
    /// through a socket of its own, connected to its client, until it is idle. For a frontend that lost its last
    /// endpoint. If endpoints come back, new clients need a new listener; the two stand side by side.
    ///
    /// A flow for which no socket can be made ends.
    pub fn retire(&self) {
        let state = &self.state;
        let Some(listening) = state.listening.take() else { return };
        state.detach_flows();
        turn::read_rest(|| forward_batch(state, &listening.socket));
        state.flows_changed();
    }

    /// Opens no new flows and serves the others until they are quiet, for at most two seconds each.
    pub fn drain(&self) {
        self.state.drain();
    }

    /// Waits until a listener that drains or has retired has no flow left. Cancel-safe; one may wait at a time.
    pub async fn finished(&self) {
        self.state.finished().await;
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        self.state.flows.borrow().len()
    }

    /// The flows as plain values, in no particular order.
    pub fn records(&self) -> Vec<FlowRecord> {
        self.state.flows.borrow().records(self.state.addr).collect()
    }
}

impl Drop for UdpListener {
    fn drop(&mut self) {
        self.state.close();
    }
}

#[cfg(test)]
mod tests;
