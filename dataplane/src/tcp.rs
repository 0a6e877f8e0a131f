//! The story of one TCP connection, from accept to close: accept, pick and connect an endpoint, relay, count.
//!
//! Everything here runs on the worker that accepted the connection. It must not know how listening sockets come to be;
//! those are `listener`'s.

mod accept;
mod connect;
pub mod counters;
mod direction;
mod pipes;
mod relay;
mod shortage;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpStream as AcceptedStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, Socket};
use tokio::io::Interest;

use tokio::net::TcpStream;

use crate::model::{ClientAddr, FrontendAddr};
use crate::sys;
use crate::worker::{Live, Worker};

use accept::Acceptor;
use connect::{Connected, connect};
use counters::{CloseReason, TcpCounters};
pub(crate) use direction::RelayBuffers;
pub(crate) use pipes::PipePool;

/// A peer that was quiet for so long is probed (SO_KEEPALIVE). It finds those that vanished without a word long before the
/// idle timeout does, and a client's own probes end here.
pub(crate) const PROBE_AFTER: Duration = Duration::from_secs(180);

/// Accepts on one frontend's socket, each connection in a task of its own, until the socket breaks or the process
/// drains. On draining, what has already shaken hands is still served.
///
/// # Errors
/// The error that made the socket useless.
pub(crate) async fn listen(
    worker: &Rc<Worker>,
    addr: FrontendAddr,
    socket: &Arc<Socket>,
    counters: &Arc<TcpCounters>,
) -> io::Result<()> {
    let socket = sys::reactor::register(Arc::clone(socket), Interest::READABLE)?;
    let acceptor = Acceptor::new(socket, addr, worker);
    let serve = |stream: AcceptedStream, client: ClientAddr| {
        counters.add_accepted();
        let connection = Connection {
            frontend: addr,
            client,
            worker: Rc::clone(worker),
            counters: Arc::clone(counters),
            _live: worker.admit(),
        };
        tokio::task::spawn_local(connection.serve(stream));
    };
    tokio::select! {
        biased;
        () = worker.drain_begins() => {
            acceptor.accept_waiting(serve);
            Ok(())
        }
        error = acceptor.accept_until_broken(serve) => Err(error),
    }
}

/// One accepted connection and what it needs.
#[derive(Debug)]
struct Connection {
    frontend: FrontendAddr,
    client: ClientAddr,
    worker: Rc<Worker>,
    counters: Arc<TcpCounters>,
    _live: Live,
}

impl Connection {
    /// Finds an endpoint and relays until the end. Dropping the future closes both sockets and counts as aborted.
    async fn serve(self, stream: AcceptedStream) {
        let mut ending = Ending { counters: &self.counters, reason: CloseReason::Aborted };
        ending.reason = self.run(stream).await;
        tracing::debug!(client.addr = %self.client, frontend = %self.frontend, reason = ending.reason.label(), "closed");
    }

    async fn run(&self, stream: AcceptedStream) -> CloseReason {
        let Self { worker, counters, .. } = self;
        let mut timer = pin!(tokio::time::sleep(worker.timeouts.connect));
        match connect(worker, self.frontend, self.client, counters, timer.as_mut()).await {
            Connected::To(endpoint, _picked) => {
                // Registered only now: whatever the client has sent meanwhile comes as one event.
                let client = match TcpStream::from_std(stream) {
                    Ok(client) => client,
                    Err(error) => {
                        tracing::debug!(client.addr = %self.client, %error, "cannot be watched");
                        return CloseReason::Aborted;
                    }
                };
                let cut = CutOff { client: &client, endpoint: &endpoint };
                let idle = worker.timeouts.idle;
                let reason = relay::relay(&client, &endpoint, &worker.buffers, counters, timer, idle).await;
                std::mem::forget(cut);
                reason
            }
            refused => {
                // The handshake is done, so RST is as near to a refusal as a proxy can get.
                relay::reset_on_close(&SockRef::from(&stream));
                match refused {
                    Connected::NoEndpoint => CloseReason::NoEndpoint,
                    _ => CloseReason::ConnectFailed,
                }
            }
        }
    }
}

/// Resets both sides of a connection whose task is dropped in the middle, as at the end of a drain: FIN would make half an
/// answer look like a whole one.
struct CutOff<'a> {
    client: &'a TcpStream,
    endpoint: &'a TcpStream,
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        relay::reset_on_close(&SockRef::from(self.client));
        relay::reset_on_close(&SockRef::from(self.endpoint));
    }
}

/// Counts a connection's end, also when its task is dropped.
struct Ending<'a> {
    counters: &'a TcpCounters,
    reason: CloseReason,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.counters.add_closed(self.reason);
    }
}
