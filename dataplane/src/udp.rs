//! UDP on one worker. A frontend's datagrams arrive on a socket bound to its address; each client's go through a flow, which is a
//! socket connected to one endpoint, and the answers return through the frontend's socket. Datagrams of steered frontends arrive on a
//! socket that they share.
//!
//! The way of a datagram: `read_loop` reads, `forward` sorts by client, `flow_table` decides, `batch` sends; back through `reply` and
//! `batch`. Everything of one frontend on one worker stays on that worker's thread.

mod batch;
mod context;
mod flow_table;
mod forward;
mod frontend;
mod link;
mod local_ports;
mod read_loop;
mod reply;
mod sockets;
mod steered;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;

use self::forward::forward_batch;
use self::frontend::{ReplySocket, UdpFrontend};
use crate::counters::UdpCounters;
use sheave_model::FrontendAddr;

pub(crate) use self::context::UdpContext;
pub(crate) use self::steered::SteeredUdp;

/// One UDP frontend on one worker. Dropping it closes its socket and ends its flows at once.
///
/// All its methods belong on the worker's thread, inside its runtime.
pub(crate) struct UdpListener {
    state: Rc<UdpFrontend>,
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
        let state = UdpFrontend::new(context, addr, counters, ReplySocket::Listening);
        let socket = context.offload.listening(socket)?;
        *state.listening.borrow_mut() = Some(forward::start(&state, socket, None));
        Ok(Self { state })
    }

    /// Closes the frontend's socket, so that the kernel refuses strangers with ICMP, and keeps the flows: each goes on
    /// through a socket of its own, connected to its client, until it is idle. For a frontend that lost its last
    /// endpoint. If endpoints come back, new clients need a new listener; the two stand side by side.
    ///
    /// A flow for which no socket can be made ends.
    pub(crate) fn retire(&self) {
        let state = &self.state;
        let Some(listening) = state.listening.take() else { return };
        forward::detach_flows(state);
        read_loop::drain(|| forward_batch(state, &listening.socket));
        state.flows_changed();
    }

    /// Opens no new flows and serves the others until they are quiet, for at most two seconds each.
    pub(crate) fn drain(&self) {
        self.state.drain();
    }

    /// Waits until a listener that drains or has retired has no flow left. Cancel-safe; one may wait at a time.
    pub(crate) async fn finished(&self) {
        self.state.finished().await;
    }

    /// How many flows there are.
    pub(crate) fn flows(&self) -> usize {
        self.state.flows.borrow().len()
    }
}

impl Drop for UdpListener {
    fn drop(&mut self) {
        self.state.close();
    }
}

#[cfg(test)]
mod tests;
