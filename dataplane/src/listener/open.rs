//! Opens listening sockets: one per worker on the same address.

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

/// The kernel caps it at net.core.somaxconn, which is the administrator's to raise.
const BACKLOG: i32 = 65_535;
/// A client that vanished, as behind NAT, is found in about five minutes.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(Duration::from_secs(15)).with_retries(9);

/// Whether another process may already hold the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// No socket of ours is on it: make sure that nobody else's is. With SO_REUSEPORT alone a second process of the same
    /// user would join in silently and take half of the connections.
    First,
    /// Sockets of ours may still be on it.
    Again,
}

/// Binds one socket per worker. None of them is left behind on error.
///
/// # Errors
/// As bind(2) and listen(2): `AddrInUse` if another process has the address, `PermissionDenied` for a port below 1024
/// without CAP_NET_BIND_SERVICE.
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

/// Makes sure that no other process has a frontend's address, and holds it no longer.
///
/// # Errors
/// As [`open`].
pub(super) fn probe(addr: FrontendAddr) -> io::Result<()> {
    bound(addr.protocol, addr.socket_addr(), false, &SourceFilter::Everyone).map(drop)
}

/// Only when all are bound: a group that grows while it listens would move connections between its queues.
pub(super) fn listen(protocol: Protocol, sockets: &[Socket]) -> io::Result<()> {
    match protocol {
        Protocol::Tcp => sockets.iter().try_for_each(|socket| socket.listen(BACKLOG)),
        Protocol::Udp => Ok(()),
    }
}

/// A socket on an address, bound but not listening yet. Until that it drops what `filter` does not let in.
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
            // Connections in TIME_WAIT do not hold the port. Accepted sockets inherit the other two.
            socket.set_reuse_address(true)?;
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&KEEPALIVE)?;
        }
        Protocol::Udp => {
            socket.set_recv_buffer_size(UDP_RECEIVE_BUFFER)?;
            mmsg::allow_fragments(&socket, domain)?;
        }
    }
    // Before bind, so that no packet gets past it.
    filter.attach(&socket)?;
    bind_freebind(&socket, addr)?;
    Ok(socket)
}

/// A frontend that could not be opened.
#[derive(Debug)]
pub struct BindFailure {
    /// Which frontend.
    pub frontend: Arc<Frontend>,
    /// As bind(2): mostly `AddrInUse` or `PermissionDenied`; `EMFILE` also if listening sockets have had their share of the
    /// descriptors.
    pub error: io::Error,
    /// It still listens, but admits the clients that it admitted before.
    pub listening: bool,
    /// Another process of the machine has the address, and it is not tried again: that process may only be about to start anew.
    pub is_final: bool,
}

impl BindFailure {
    /// Whether it is descriptors that are missing, which every other frontend lacks as well.
    pub(crate) fn is_of_everyone(&self) -> bool {
        let number = self.error.raw_os_error().map(Errno::from_raw);
        matches!(number, Some(Errno::EMFILE | Errno::ENFILE))
    }

    /// Whether another process has the address.
    pub(crate) fn is_of_another_process(&self) -> bool {
        self.error.raw_os_error().map(Errno::from_raw) == Some(Errno::EADDRINUSE)
    }

    /// Whether it says the same of the same frontend.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.frontend, &other.frontend)
            && self.listening == other.listening
            && self.is_final == other.is_final
            && self.error.kind() == other.error.kind()
            && self.error.raw_os_error() == other.error.raw_os_error()
    }
}
