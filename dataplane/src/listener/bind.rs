//! Making the sockets of a frontend: one per worker on the same address, ready to accept.
//!
//! It must not know tables or workers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol as SocketProtocol, Socket, TcpKeepalive, Type};

use super::filter::Filter;
use crate::model::{FrontendAddr, Protocol};
use crate::tcp::PROBE_AFTER;
use crate::{sys, udp};

/// The kernel caps it at net.core.somaxconn, which is the administrator's to raise.
const BACKLOG: i32 = 65_535;
/// A client that vanished, as behind NAT, is found in about five minutes.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(Duration::from_secs(15)).with_retries(9);

/// Whether another process may already hold the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// We never had it: make sure that nobody else has. With SO_REUSEPORT alone a second process of the same user
    /// would join in silently and take half of the connections.
    First,
    /// Sockets of ours may still be on it.
    Again,
}

/// Binds one socket per worker. None of them is left behind on error.
///
/// # Errors
/// As bind(2) and listen(2): `AddrInUse` if another process has the address, `PermissionDenied` for a port below 1024
/// without CAP_NET_BIND_SERVICE.
pub(super) fn bind(
    addr: FrontendAddr,
    claim: Claim,
    filter: &Filter,
    workers: usize,
) -> io::Result<Vec<Arc<Socket>>> {
    if claim == Claim::First {
        bound(addr, false, &Filter::Everyone)?;
    }
    let sockets = (0..workers).map(|_| bound(addr, true, filter)).collect::<io::Result<Vec<_>>>()?;
    if addr.protocol == Protocol::Tcp {
        // Only now: a group that grows while it listens would move connections between its queues.
        for socket in &sockets {
            socket.listen(BACKLOG)?;
        }
    }
    Ok(sockets.into_iter().map(Arc::new).collect())
}

fn bound(addr: FrontendAddr, shared: bool, filter: &Filter) -> io::Result<Socket> {
    let (kind, protocol) = match addr.protocol {
        Protocol::Tcp => (Type::STREAM, SocketProtocol::TCP),
        Protocol::Udp => (Type::DGRAM, SocketProtocol::UDP),
    };
    let domain = if addr.ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, kind.nonblocking().cloexec(), Some(protocol))?;
    socket.set_reuse_port(shared)?;
    match addr.protocol {
        Protocol::Tcp => {
            // Connections in TIME_WAIT do not hold the port. Accepted sockets inherit the other two.
            socket.set_reuse_address(true)?;
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&KEEPALIVE)?;
        }
        Protocol::Udp => {
            socket.set_recv_buffer_size(udp::RECEIVE_BUFFER)?;
            sys::mmsg::allow_fragments(&socket, domain)?;
        }
    }
    // Before bind, so that no packet gets past it.
    filter.attach(&socket)?;
    sys::bind_ahead::bind_ahead(&socket, addr.socket_addr())?;
    Ok(socket)
}
