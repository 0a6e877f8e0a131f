//! Opening of listening sockets: one per worker on the same address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol as SocketProtocol, Socket, TcpKeepalive, Type};

use super::source_filter::SourceFilter;
use crate::sys::bind::bind_freebind;
use crate::sys::sockets::{KEEPALIVE_IDLE, UDP_RECEIVE_BUFFER};
use crate::sys::{Errno, mmsg};
use sheave_model::{Frontend, FrontendAddr, Protocol};

/// Length of accept queues. The kernel caps it at net.core.somaxconn, which the administrator may raise.
const BACKLOG: i32 = 65_535;
/// Keepalive settings of clients. A client that vanished, for example behind NAT, is detected in about five minutes.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(Duration::from_secs(15)).with_retries(9);

/// Whether this process may already have sockets on the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// This process has none, and no other process may have one: with SO_REUSEPORT alone a second process of the same user
    /// would silently join and take half of the connections.
    First,
    /// This process may have some, so a bind without SO_REUSEPORT could fail because of them.
    Again,
}

/// Opens one socket per worker. On error all of them are closed.
///
/// # Errors
/// Returns an error if socket(2), setsockopt(2), bind(2) or listen(2) fails: `AddrInUse` if another process has the address,
/// `PermissionDenied` for a port below 1024 without CAP_NET_BIND_SERVICE.
pub(super) fn open(
    addr: FrontendAddr,
    claim: Claim,
    filter: &SourceFilter,
    workers: usize,
) -> io::Result<Vec<Arc<Socket>>> {
    let FrontendAddr { protocol, .. } = addr;
    let addr = addr.socket_addr();
    if claim == Claim::First {
        bound(protocol, addr, false, &SourceFilter::Everyone)?;
    }
    let sockets =
        (0..workers).map(|_| bound(protocol, addr, true, filter)).collect::<io::Result<Vec<_>>>()?;
    listen(protocol, &sockets)?;
    Ok(sockets.into_iter().map(Arc::new).collect())
}

/// Checks that no other process has a frontend's address, by binding to it for a moment.
///
/// # Errors
/// Returns the errors of [`open`].
pub(super) fn probe(addr: FrontendAddr, claim: Claim) -> io::Result<()> {
    bound(addr.protocol, addr.socket_addr(), claim == Claim::Again, &SourceFilter::Everyone).map(drop)
}

/// Starts to listen. All sockets must be bound: a group that grows while it listens would move connections between its queues.
pub(super) fn listen(protocol: Protocol, sockets: &[Socket]) -> io::Result<()> {
    match protocol {
        Protocol::Tcp => sockets.iter().try_for_each(|socket| socket.listen(BACKLOG)),
        Protocol::Udp => Ok(()),
    }
}

/// A socket bound to an address but not listening yet. It drops packets that `filter` does not admit.
pub(super) fn bound(
    transport: Protocol,
    addr: SocketAddr,
    shared: bool,
    filter: &SourceFilter,
) -> io::Result<Socket> {
    let (kind, protocol) = match transport {
        Protocol::Tcp => (Type::STREAM, SocketProtocol::TCP),
        Protocol::Udp => (Type::DGRAM, SocketProtocol::UDP),
    };
    let domain = Domain::for_address(addr);
    let socket = Socket::new(domain, kind.nonblocking().cloexec(), Some(protocol))?;
    socket.set_reuse_port(shared)?;
    match transport {
        Protocol::Tcp => {
            // Connections in TIME_WAIT do not block the port. Accepted sockets inherit the other two options.
            socket.set_reuse_address(true)?;
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&KEEPALIVE)?;
        }
        Protocol::Udp => {
            socket.set_recv_buffer_size(UDP_RECEIVE_BUFFER)?;
            mmsg::allow_fragments(&socket, domain)?;
        }
    }
    // Before bind, so that no packet bypasses the filter.
    filter.attach(&socket)?;
    bind_freebind(&socket, addr)?;
    Ok(socket)
}

/// Whether bind(2) failed because of another socket.
pub(super) fn is_in_use(error: &io::Error) -> bool {
    error.raw_os_error().map(Errno::from_raw) == Some(Errno::EADDRINUSE)
}

/// A frontend that could not be opened.
#[derive(Debug)]
pub struct BindFailure {
    /// The frontend.
    pub frontend: Arc<Frontend>,
    /// The error, mostly `AddrInUse` or `PermissionDenied` of bind(2), or `ResourceBusy` where a connection uses the port; also `EMFILE` if
    /// listening sockets have reached their share of the descriptors.
    pub error: io::Error,
    /// Whether the frontend still listens, with the clients that it admitted before.
    pub listening: bool,
    /// Whether the frontend is not retried: another process of the machine serves at the address, and may only be restarting.
    pub is_final: bool,
}

impl BindFailure {
    /// Whether descriptors are exhausted, which affects every other frontend as well.
    pub(crate) fn is_of_everyone(&self) -> bool {
        let number = self.error.raw_os_error().map(Errno::from_raw);
        matches!(number, Some(Errno::EMFILE | Errno::ENFILE))
    }

    /// Whether this is the same failure of the same frontend.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.frontend, &other.frontend)
            && self.listening == other.listening
            && self.is_final == other.is_final
            && self.error.kind() == other.error.kind()
            && self.error.raw_os_error() == other.error.raw_os_error()
    }
}
