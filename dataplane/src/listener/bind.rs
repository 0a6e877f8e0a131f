//! Making sockets that clients meet: one per worker on the same address, ready to accept. Those of a frontend, and those
//! that packets of many are steered to.
//!
//! It must not know tables or workers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sheave_model::{FrontendAddr, Protocol};
use socket2::{Domain, Protocol as SocketProtocol, Socket, TcpKeepalive, Type};

use super::filter::Filter;
use crate::admitted::Family;
use crate::sys::ebpf::SocketFilter;
use crate::sys::ebpf::instruction::{Instruction, Register};
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
pub(super) fn bind(
    addr: FrontendAddr,
    claim: Claim,
    filter: &Filter,
    workers: usize,
) -> io::Result<Vec<Arc<Socket>>> {
    let FrontendAddr { protocol, .. } = addr;
    let addr = addr.socket_addr();
    if claim == Claim::First {
        bound(protocol, addr, false, &Filter::Everyone)?;
    }
    let sockets =
        (0..workers).map(|_| bound(protocol, addr, true, filter)).collect::<io::Result<Vec<_>>>()?;
    listen(protocol, &sockets)?;
    Ok(sockets.into_iter().map(Arc::new).collect())
}

/// Makes sure that no other process has a frontend's address, and holds it no longer.
///
/// # Errors
/// As [`bind`].
pub(super) fn probe(addr: FrontendAddr) -> io::Result<()> {
    bound(addr.protocol, addr.socket_addr(), false, &Filter::Everyone).map(drop)
}

/// One socket per worker that packets to any address are steered to. They are bound to a loopback address and a port that
/// the kernel chooses, where nobody looks for them; that address is given, too.
///
/// # Errors
/// As socket(2), bind(2) and listen(2).
pub(crate) fn steered(
    protocol: Protocol,
    family: Family,
    workers: usize,
) -> io::Result<(FrontendAddr, Vec<Arc<Socket>>)> {
    // Asked for a port to be shared, the kernel might choose one that others share already.
    let first = bound(protocol, nowhere(family), false, &Filter::Everyone)?;
    let addr = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    first.set_reuse_port(true)?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(bound(protocol, addr, true, &Filter::Everyone)?);
    }
    if protocol == Protocol::Udp {
        let tell = |socket: &Socket| sys::mmsg::tell_destination(socket, Domain::for_address(addr));
        sockets.iter().try_for_each(tell)?;
    }
    listen(protocol, &sockets)?;
    let addr = FrontendAddr { ip: addr.ip(), port: addr.port(), protocol };
    Ok((addr, sockets.into_iter().map(Arc::new).collect()))
}

/// A socket that drops all packets that are steered to it.
///
/// # Errors
/// As socket(2), bind(2), listen(2) and bpf(2).
pub(crate) fn sink(protocol: Protocol, family: Family) -> io::Result<Socket> {
    // Not a classic program, which takes another capability on TCP sockets than steering does.
    let nothing = [Instruction::set(Register::Answer, 0), Instruction::exit()];
    let nothing = Filter::Shared(Arc::new(SocketFilter::load(&nothing, "sheave_sink")?));
    let socket = bound(protocol, nowhere(family), false, &nothing)?;
    listen(protocol, std::slice::from_ref(&socket))?;
    Ok(socket)
}

fn nowhere(family: Family) -> SocketAddr {
    let loopback: IpAddr = match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(loopback, 0)
}

/// Only when all are bound: a group that grows while it listens would move connections between its queues.
fn listen(protocol: Protocol, sockets: &[Socket]) -> io::Result<()> {
    match protocol {
        Protocol::Tcp => sockets.iter().try_for_each(|socket| socket.listen(BACKLOG)),
        Protocol::Udp => Ok(()),
    }
}

fn bound(transport: Protocol, addr: SocketAddr, shared: bool, filter: &Filter) -> io::Result<Socket> {
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
            socket.set_recv_buffer_size(udp::RECEIVE_BUFFER)?;
            sys::mmsg::allow_fragments(&socket, domain)?;
        }
    }
    // Before bind, so that no packet gets past it.
    filter.attach(&socket)?;
    sys::bind_ahead::bind_ahead(&socket, addr)?;
    Ok(socket)
}
