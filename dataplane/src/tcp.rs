//! The story of one TCP connection, from accept to close: accept, hear who the client is if the peer is a proxy, pick and
//! connect an endpoint, tell it who the client is if it wants to know, relay, count.
//!
//! Everything here runs on the worker that accepted the connection. It must not know how listening sockets come to be;
//! those are `listener`'s.

mod accept;
mod connect;
pub mod counters;
mod direction;
mod introduction;
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

use crate::model::{ClientAddr, ClientSource, FrontendAddr};
use crate::proxy_protocol::{self, Addresses, Transport};
use crate::sys;
use crate::worker::{Live, Worker};

use accept::Acceptor;
use connect::{Connected, Search};
use counters::{CloseReason, TcpCounters};
use direction::Direction;
pub(crate) use direction::RelayBuffers;
use introduction::Introduction;
pub(crate) use pipes::PipePool;
pub(crate) use shortage::is_own_shortage;

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
    let serve = |stream: AcceptedStream, peer: ClientAddr| {
        counters.add_accepted();
        let connection = Connection {
            frontend: addr,
            peer,
            worker: Rc::clone(worker),
            counters: Arc::clone(counters),
            _live: worker.admit(),
        };
        // Borrowed: an async method that takes `self` keeps it twice.
        tokio::task::spawn_local(async move { connection.serve(stream).await });
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

/// The client's side of a connection. It is watched for readiness only once somebody reads: whatever the client has sent
/// by then comes as one event.
#[derive(Debug)]
enum ClientStream {
    Accepted(AcceptedStream),
    Watched(TcpStream),
}

impl ClientStream {
    fn watch(self) -> io::Result<TcpStream> {
        match self {
            Self::Accepted(stream) => TcpStream::from_std(stream),
            Self::Watched(stream) => Ok(stream),
        }
    }

    fn socket(&self) -> SockRef<'_> {
        match self {
            Self::Accepted(stream) => SockRef::from(stream),
            Self::Watched(stream) => SockRef::from(stream),
        }
    }
}

/// One accepted connection and what it needs.
#[derive(Debug)]
struct Connection {
    frontend: FrontendAddr,
    peer: ClientAddr,
    worker: Rc<Worker>,
    counters: Arc<TcpCounters>,
    _live: Live,
}

impl Connection {
    /// Finds an endpoint and relays until the end. Dropping the future closes both sockets and counts as aborted.
    async fn serve(&self, stream: AcceptedStream) {
        let mut ending = Ending { counters: &self.counters, reason: CloseReason::Aborted };
        ending.reason = self.run(stream).await;
        tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, reason = ending.reason.label(), "closed");
    }

    async fn run(&self, stream: AcceptedStream) -> CloseReason {
        let Self { worker, counters, .. } = self;
        let mut timer = pin!(tokio::time::sleep(worker.timeouts.connect));
        let (client, introduction) = if self.is_introduced() {
            // Boxed, since few connections begin like this and all would have to carry its state.
            match Box::pin(introduction::read(stream, timer.as_mut())).await {
                Ok((stream, introduction)) => (ClientStream::Watched(stream), Some(Box::new(introduction))),
                Err(error) => {
                    tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, %error, "not served");
                    return error.reason();
                }
            }
        } else {
            (ClientStream::Accepted(stream), None)
        };
        let search = Search {
            worker,
            frontend: self.frontend,
            client: ClientAddr(self.addresses(introduction.as_deref()).client),
            counters,
        };
        match search.connect(timer.as_mut()).await {
            Connected::To(endpoint, _picked, source) => {
                let client = match client.watch() {
                    Ok(client) => client,
                    Err(error) => {
                        tracing::debug!(peer.addr = %self.peer, %error, "cannot be watched");
                        return CloseReason::Aborted;
                    }
                };
                let mut upload = self.upload(source, introduction);
                let cut = CutOff { client: &client, endpoint: &endpoint };
                let idle = worker.timeouts.idle;
                let reason =
                    relay::relay(&client, &endpoint, &mut upload, &worker.buffers, counters, timer, idle)
                        .await;
                std::mem::forget(cut);
                reason
            }
            refused => {
                // The handshake is done, so RST is as near to a refusal as a proxy can get.
                relay::reset_on_close(&client.socket());
                match refused {
                    Connected::NoEndpoint => CloseReason::NoEndpoint,
                    _ => CloseReason::ConnectFailed,
                }
            }
        }
    }

    /// Whether the peer is a proxy that says who its client is.
    fn is_introduced(&self) -> bool {
        let table = self.worker.table.load();
        let proxies = table.get(self.frontend).and_then(|frontend| frontend.spec().proxied_by.as_deref());
        proxies.is_some_and(|proxies| proxies.contains(self.peer.ip()))
    }

    /// Who speaks to whom: as the peer says, or the connection's own addresses.
    fn addresses(&self, introduction: Option<&Introduction>) -> Addresses {
        introduction
            .and_then(|introduction| introduction.addresses)
            .unwrap_or_else(|| Addresses { client: self.peer.0, destination: self.frontend.socket_addr() })
    }

    /// The way to the endpoint, beginning with the header that it expects and with what the client has sent already.
    fn upload(&self, source: ClientSource, introduction: Option<Box<Introduction>>) -> Direction {
        let mut bytes = match source {
            ClientSource::Gateway | ClientSource::Transparent => Vec::new(),
            ClientSource::ProxyV1 => proxy_protocol::write_v1(&self.addresses(introduction.as_deref())),
            ClientSource::ProxyV2 => {
                proxy_protocol::write_v2(Transport::Stream, &self.addresses(introduction.as_deref()))
            }
        };
        let header = bytes.len();
        if let Some(introduction) = introduction {
            bytes.extend(introduction.sent);
        }
        Direction::beginning_with(bytes, header)
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
