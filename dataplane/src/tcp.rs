//! TCP connections from accept to close: accept, read who the client is if the peer is a trusted proxy, pick and connect an
//! endpoint, send a PROXY protocol header if it wants one, relay, count. Everything runs on the worker that accepted.

mod accept;
mod connect;
mod connection_table;
mod idle_clock;
mod pipe_pool;
mod read_proxy_header;
mod relay;
mod session;
mod splice;
mod stream;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sheave_model::{ClientAddr, ClientSource, FrontendAddr, Protocol};
use socket2::{SockRef, Socket};
use tokio::io::Interest;

use crate::counters::{CloseReason, TcpCounters};
use crate::proxy_protocol::{self, Addresses, Transport};
use crate::select::ActiveFrontend;
use crate::sys::sockets::register;
use crate::task;
use crate::worker::context::WorkerContext;
use accept::Acceptor;
pub(crate) use accept::SteeredTcp;
use connect::{Connected, CrowdedEndpoints, Search};
use connection_table::ConnectionTable;
pub(crate) use pipe_pool::PipeBudget;
use pipe_pool::PipePool;
use read_proxy_header::ProxyHeader;
use session::Session;
use splice::{Direction, RelayBuffers};
use stream::Stream;

/// How long to wait while this machine is short of what sockets need: neither clients nor endpoints are to blame, and the
/// kernel's queues hold the clients meanwhile. HAProxy waits as long (`src/listener.c`).
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// What all TCP connections of one worker share.
pub(crate) struct TcpContext {
    pub(crate) worker: Rc<WorkerContext>,
    pub(crate) connections: ConnectionTable,
    crowded: CrowdedEndpoints,
}

impl TcpContext {
    /// Must be called inside the worker's runtime.
    ///
    /// # Errors
    /// If the epoll instance cannot be made.
    pub(crate) fn new(
        worker: &Rc<WorkerContext>,
        pipes: PipeBudget,
        busy_poll: Duration,
    ) -> io::Result<Rc<Self>> {
        let buffers = RelayBuffers::new(PipePool::new(pipes), Arc::clone(&worker.shared.capacity));
        let connections = ConnectionTable::new(buffers, worker.shared.timeouts.idle, busy_poll)?;
        Ok(Rc::new(Self { worker: Rc::clone(worker), connections, crowded: CrowdedEndpoints::default() }))
    }

    /// Starts what drives the connections, for ever.
    pub(crate) fn spawn_tasks(self: &Rc<Self>) {
        let [driven, connects, idle, pipes, memory] = [(); 5].map(|()| Rc::clone(self));
        task::spawn(async move { driven.connections.drive().await });
        task::spawn(async move { connects.connections.watch_connects().await });
        task::spawn(async move { idle.connections.watch_idle().await });
        task::spawn(async move { pipes.connections.watch_pipes().await });
        task::spawn(async move { memory.connections.watch_memory(&memory.worker.shared.capacity).await });
    }
}

/// Accepts on one frontend's socket, each connection in a task of its own, until the socket breaks or the process
/// drains. On draining, what has already shaken hands is still served.
///
/// # Errors
/// The error that made the socket useless.
pub(crate) async fn listen(
    context: &Rc<TcpContext>,
    addr: FrontendAddr,
    socket: &Arc<Socket>,
    counters: &Arc<TcpCounters>,
) -> io::Result<()> {
    accept_all(context, addr, socket, |_| Some((addr, Arc::clone(counters)))).await
}

/// Accepts for all steered frontends on a socket whose own address is `own`, as [`listen`] does for one.
///
/// # Errors
/// The error that made the socket useless.
pub(crate) async fn listen_steered(
    context: &Rc<TcpContext>,
    own: FrontendAddr,
    socket: &Arc<Socket>,
    frontends: &SteeredTcp,
) -> io::Result<()> {
    accept_all(context, own, socket, |client| {
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
    context: &Rc<TcpContext>,
    addr: FrontendAddr,
    socket: &Arc<Socket>,
    find: impl Fn(&Socket) -> Option<(FrontendAddr, Arc<TcpCounters>)>,
) -> io::Result<()> {
    let socket = register(Arc::clone(socket), Interest::READABLE)?;
    let acceptor = Acceptor::new(socket, addr, &context.worker);
    let serve = |client: Socket, peer: ClientAddr| {
        let connection = find(&client)
            .and_then(|(frontend, counters)| Connection::admit(context, frontend, peer, &counters));
        match connection {
            // Borrowed: an async method that takes `self` keeps it twice.
            Some(connection) => drop(task::spawn(async move { connection.serve(client).await })),
            None => reset_on_close(&SockRef::from(&client)),
        }
    };
    tokio::select! {
        biased;
        () = context.worker.drain_begins() => {
            acceptor.accept_waiting(serve);
            Ok(())
        }
        error = acceptor.accept_until_broken(serve) => Err(error),
    }
}

/// One accepted connection until it is relayed: a task looks for its endpoint, and is gone when that is connected.
struct Connection {
    frontend: FrontendAddr,
    peer: ClientAddr,
    context: Rc<TcpContext>,
    counters: Arc<TcpCounters>,
    /// The peer is a trusted proxy that names its client.
    proxied: bool,
    connect_timeout: Duration,
    idle_timeout: Duration,
    /// Taken when it is served.
    session: Cell<Option<Session>>,
}

impl Connection {
    /// Takes a place for it; `None` if there is none, which was counted.
    fn admit(
        context: &Rc<TcpContext>,
        frontend: FrontendAddr,
        peer: ClientAddr,
        counters: &Arc<TcpCounters>,
    ) -> Option<Self> {
        let worker = &context.worker;
        let table = worker.shared.table.load();
        // It may have left the table since.
        let active = table.get(frontend);
        let proxies = active.and_then(|active| active.proxied_by());
        let proxied = proxies.is_some_and(|proxies| proxies.contains(peer.ip()));
        let client = (!proxied).then(|| peer.ip());
        // A client that may use no endpoint does not count: where the kernel cannot filter, it comes this far.
        let counts = |active: &Arc<ActiveFrontend>| {
            proxied || active.refusal(table.origin(frontend, peer), peer).is_none()
        };
        let limiter = active.and_then(|active| active.limiter().filter(|_| counts(active)));
        match Session::admit(worker, (frontend, peer), counters, limiter, client) {
            Ok(session) => {
                let timeouts = active.map(|active| active.timeouts()).unwrap_or_default();
                Some(Self {
                    frontend,
                    peer,
                    context: Rc::clone(context),
                    counters: Arc::clone(counters),
                    proxied,
                    connect_timeout: timeouts.connect.unwrap_or(worker.shared.timeouts.connect),
                    idle_timeout: timeouts.idle.unwrap_or(worker.shared.timeouts.idle),
                    session: Cell::new(Some(session)),
                })
            }
            Err(reason) => {
                worker.shared.refusals.count(frontend, counters.usage(), reason);
                None
            }
        }
    }

    /// Finds an endpoint and hands the connection to the worker's connection table. Dropping the future closes it and counts it
    /// as aborted.
    async fn serve(&self, client: Socket) {
        let Some(mut session) = self.session.take() else { return };
        let (client, header) = if self.proxied {
            let client = Arc::new(client);
            // Boxed, since few connections begin like this and all would have to carry its state.
            let limit = tokio::time::sleep(self.connect_timeout);
            match Box::pin(read_proxy_header::read(&client, limit)).await {
                Ok(header) => (Arc::into_inner(client), Some(Box::new(header))),
                Err(error) => {
                    tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, %error, "not served");
                    return session.close(error.reason());
                }
            }
        } else {
            (Some(client), None)
        };
        // Always: nobody else has it.
        let Some(client) = client else { return };
        let mut client = Stream::accepted(client);
        let address = ClientAddr(self.addresses(header.as_deref()).client);
        let TcpContext { worker, connections, .. } = &*self.context;
        if self.proxied
            && let Err(reason) = session.identify(address.ip())
        {
            worker.shared.refusals.count(self.frontend, self.counters.usage(), reason);
            client.reset_on_close();
            return session.close(CloseReason::OverLimit);
        }
        let Ok(first) = connections.first_bytes(&mut client) else {
            return session.close(CloseReason::ClientReset);
        };
        let search = Search {
            context: &self.context,
            frontend: self.frontend,
            client: address,
            client_side: &client,
            counters: &self.counters,
            timeout: self.connect_timeout,
            eager: header.is_some() || !first.is_empty(),
        };
        let reason = match search.connect().await {
            Connected::To(endpoint, picked, source) => {
                session.set_endpoint(picked);
                let upload = self.upload(source, header, first);
                if let Err(error) = endpoint.relay(client, upload, self.idle_timeout, session) {
                    tracing::debug!(peer.addr = %self.peer, %error, "cannot be watched");
                }
                return;
            }
            Connected::Failed => CloseReason::ConnectFailed,
            Connected::NoEndpoint => CloseReason::NoEndpoint,
            Connected::Denied => CloseReason::Denied,
            Connected::ClientGone => CloseReason::ClientReset,
        };
        // The handshake is done, so RST is as near to a refusal as a proxy can get.
        client.reset_on_close();
        session.close(reason);
    }

    /// Client and destination as the PROXY protocol header says, or the connection's own addresses.
    fn addresses(&self, header: Option<&ProxyHeader>) -> Addresses {
        header
            .and_then(|header| header.addresses)
            .unwrap_or_else(|| Addresses { client: self.peer.0, destination: self.frontend.socket_addr() })
    }

    /// The way to the endpoint, beginning with the header that it expects and with what the client has sent already.
    fn upload(&self, source: ClientSource, header: Option<Box<ProxyHeader>>, first: Vec<u8>) -> Direction {
        let mut bytes = match source {
            ClientSource::Gateway | ClientSource::Transparent => Vec::new(),
            ClientSource::ProxyV1 => proxy_protocol::write_v1(&self.addresses(header.as_deref())),
            ClientSource::ProxyV2 => {
                proxy_protocol::write_v2(Transport::Stream, &self.addresses(header.as_deref()))
            }
        };
        let own = bytes.len();
        if let Some(header) = header {
            bytes.extend(header.sent);
        }
        if bytes.is_empty() {
            // Most connections: what was read goes on as it is.
            bytes = first;
        } else {
            bytes.extend(first);
        }
        Direction::beginning_with(bytes, own)
    }
}

/// Makes the coming close send RST and discard what is unsent (SO_LINGER of zero, tcp(7)).
fn reset_on_close(stream: &SockRef<'_>) {
    if let Err(error) = stream.set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "the peer will see FIN in place of RST");
    }
}
