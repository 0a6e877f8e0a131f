//! The story of one TCP connection, from accept to close: accept, hear who the client is if the peer is a proxy, pick and
//! connect an endpoint, tell it who the client is if it wants to know, relay, count.
//!
//! Everything here runs on the worker that accepted the connection. It must not know how listening sockets come to be;
//! those are `listener`'s.

mod accept;
mod connect;
mod connection_table;
mod idle_clock;
mod pipe_pool;
mod proxy_header;
mod relay;
mod session;
mod splice;
mod stream;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, Socket};
use tokio::io::Interest;

use crate::counters::{CloseReason, TcpCounters};
use crate::proxy_protocol::{self, Addresses, Transport};
use crate::select::ActiveFrontend;
use crate::select::Picked;
use crate::sys;
use crate::task;
use crate::worker::Worker;
use sheave_model::{ClientAddr, ClientSource, FrontendAddr, Protocol};

use accept::Acceptor;
pub(crate) use accept::SteeredTcp;
pub(crate) use connect::CrowdedEndpoints;
use connect::{Connected, Search};
use connection_table::Connecting;
pub(crate) use connection_table::ConnectionTable;
pub(crate) use pipe_pool::{PipeBudget, PipePool};
use proxy_header::ProxyHeader;
use session::Ending;
pub(crate) use session::Served;
use splice::Direction;
pub(crate) use splice::RelayBuffers;
use stream::Stream;

/// How long to wait while this machine is short of what sockets need: neither clients nor endpoints are to blame, and the
/// kernel's queues hold the clients meanwhile. HAProxy waits as long (`src/listener.c`).
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

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
    accept_all(worker, addr, socket, |_| Some((addr, Arc::clone(counters)))).await
}

/// Accepts for all steered frontends on a socket whose own address is `own`, as [`listen`] does for one.
///
/// # Errors
/// The error that made the socket useless.
pub(crate) async fn listen_steered(
    worker: &Rc<Worker>,
    own: FrontendAddr,
    socket: &Arc<Socket>,
    frontends: &SteeredTcp,
) -> io::Result<()> {
    accept_all(worker, own, socket, |client| {
        let called = client.local_addr().ok()?.as_socket()?;
        let addr = FrontendAddr { ip: called.ip(), port: called.port(), protocol: Protocol::Tcp };
        // Who calls the socket itself is no client of anyone.
        let counters = if addr == own { None } else { frontends.counters(addr) };
        Some((addr, counters?))
    })
    .await
}

/// Accepts on a socket whose own address is `addr`, as [`listen`] does. `find` says for which frontend a connection is; one
/// that is for none is reset.
async fn accept_all(
    worker: &Rc<Worker>,
    addr: FrontendAddr,
    socket: &Arc<Socket>,
    find: impl Fn(&Socket) -> Option<(FrontendAddr, Arc<TcpCounters>)>,
) -> io::Result<()> {
    let socket = sys::sockets::register(Arc::clone(socket), Interest::READABLE)?;
    let acceptor = Acceptor::new(socket, addr, worker);
    let serve = |client: Socket, peer: ClientAddr| {
        let connection = find(&client)
            .and_then(|(frontend, counters)| Connection::admit(worker, frontend, peer, &counters));
        match connection {
            // Borrowed: an async method that takes `self` keeps it twice.
            Some(connection) => drop(task::spawn(async move { connection.serve(client).await })),
            None => reset_on_close(&SockRef::from(&client)),
        }
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

/// One accepted connection until it is relayed: a task looks for its endpoint, and is gone when that is connected.
#[derive(Debug)]
struct Connection {
    frontend: FrontendAddr,
    peer: ClientAddr,
    worker: Rc<Worker>,
    counters: Arc<TcpCounters>,
    /// The peer is a proxy that says who its client is.
    introduced: bool,
    connect_timeout: Duration,
    idle_timeout: Duration,
    /// Taken when it is served.
    ending: RefCell<Option<Ending>>,
}

impl Connection {
    /// Takes a place for it; `None` if there is none, which was counted.
    fn admit(
        worker: &Rc<Worker>,
        frontend: FrontendAddr,
        peer: ClientAddr,
        counters: &Arc<TcpCounters>,
    ) -> Option<Self> {
        let table = worker.table.load();
        // It may have left the table since.
        let active = table.get(frontend);
        let proxies = active.and_then(|active| active.spec().proxied_by.as_deref());
        let introduced = proxies.is_some_and(|proxies| proxies.contains(peer.ip()));
        let client = (!introduced).then(|| peer.ip());
        // A client that is let in to no endpoint does not count: where the kernel cannot filter, it comes this far.
        let counts = |active: &Arc<ActiveFrontend>| {
            introduced || active.refusal(table.origin(frontend, peer), peer).is_none()
        };
        let limiter = active.and_then(|active| active.limiter().filter(|_| counts(active)));
        match Ending::admit(worker, counters, limiter, client) {
            Ok(ending) => {
                let timeouts = active.map(|active| active.spec().timeouts).unwrap_or_default();
                Some(Self {
                    frontend,
                    peer,
                    worker: Rc::clone(worker),
                    counters: Arc::clone(counters),
                    introduced,
                    connect_timeout: timeouts.connect.unwrap_or(worker.timeouts.connect),
                    idle_timeout: timeouts.idle.unwrap_or(worker.timeouts.idle),
                    ending: RefCell::new(Some(ending)),
                })
            }
            Err(reason) => {
                worker.shedding.count(frontend, counters.usage(), reason);
                None
            }
        }
    }

    /// Finds an endpoint and hands the connection to the worker's table of relays. Dropping the future closes it and counts
    /// it as aborted.
    async fn serve(&self, client: Socket) {
        let Some(mut ending) = self.ending.take() else { return };
        let (client, introduction) = if self.introduced {
            let client = Arc::new(client);
            // Boxed, since few connections begin like this and all would have to carry its state.
            let limit = tokio::time::sleep(self.connect_timeout);
            match Box::pin(proxy_header::read(&client, limit)).await {
                Ok(introduction) => (Arc::into_inner(client), Some(Box::new(introduction))),
                Err(error) => {
                    tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, %error, "not served");
                    return ending.by(error.reason());
                }
            }
        } else {
            (Some(client), None)
        };
        // Always: nobody else has it.
        let Some(client) = client else { return };
        let mut client = Stream::accepted(client);
        let address = ClientAddr(self.addresses(introduction.as_deref()).client);
        if self.introduced
            && let Err(reason) = ending.identify(address.ip())
        {
            self.worker.shedding.count(self.frontend, self.counters.usage(), reason);
            client.reset_on_close();
            return ending.by(CloseReason::OverLimit);
        }
        let first = match self.worker.relays.first_bytes(&mut client) {
            Ok(first) => first,
            Err(error) => {
                tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, %error, "has left");
                return ending.by(CloseReason::ClientReset);
            }
        };
        let search = Search {
            worker: &self.worker,
            frontend: self.frontend,
            client: address,
            client_side: &client,
            counters: &self.counters,
            timeout: self.connect_timeout,
            eager: introduction.is_some() || !first.is_empty(),
        };
        let reason = match search.connect().await {
            Connected::To(endpoint, picked, source) => {
                let upload = self.upload(source, introduction, first);
                return self.relay(client, endpoint, upload, picked, ending);
            }
            Connected::Failed => CloseReason::ConnectFailed,
            Connected::NoEndpoint => CloseReason::NoEndpoint,
            Connected::Denied => CloseReason::Denied,
            Connected::ClientGone => CloseReason::ClientReset,
        };
        // The handshake is done, so RST is as near to a refusal as a proxy can get.
        client.reset_on_close();
        tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, reason = reason.label(), "closed");
        ending.by(reason);
    }

    fn relay(
        &self,
        client: Stream,
        endpoint: Connecting<'_, Served>,
        upload: Direction,
        picked: Picked,
        ending: Ending,
    ) {
        let Self { frontend, peer, idle_timeout, .. } = self;
        let served = Served { frontend: *frontend, peer: *peer, ending, _picked: picked };
        if let Err(error) = endpoint.relay(client, upload, *idle_timeout, served) {
            tracing::debug!(peer.addr = %peer, %error, "cannot be watched");
        }
    }

    /// Who speaks to whom: as the peer says, or the connection's own addresses.
    fn addresses(&self, introduction: Option<&ProxyHeader>) -> Addresses {
        introduction
            .and_then(|introduction| introduction.addresses)
            .unwrap_or_else(|| Addresses { client: self.peer.0, destination: self.frontend.socket_addr() })
    }

    /// The way to the endpoint, beginning with the header that it expects and with what the client has sent already.
    fn upload(
        &self,
        source: ClientSource,
        introduction: Option<Box<ProxyHeader>>,
        first: Vec<u8>,
    ) -> Direction {
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
        if bytes.is_empty() {
            // Most connections: what was read goes on as it is.
            bytes = first;
        } else {
            bytes.extend(first);
        }
        Direction::beginning_with(bytes, header)
    }
}

/// Makes the coming close send RST and discard what is unsent (SO_LINGER of zero, tcp(7)).
fn reset_on_close(stream: &SockRef<'_>) {
    if let Err(error) = stream.set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "the peer will see FIN in place of RST");
    }
}
