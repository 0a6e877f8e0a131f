//! Binding of sockets to addresses that this machine does not have: ones that are announced to it later (`IP_FREEBIND`), and those of
//! clients (`IP_TRANSPARENT`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::Socket;

use super::sockets::set_int;

/// Binds a socket to an address of its own family only, even if this machine does not have the address yet (IP_FREEBIND, ip(7)).
pub(crate) fn bind_freebind(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    if addr.is_ipv4() {
        socket.set_freebind_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
    }
    socket.bind(&addr.into())
}

/// Binds a TCP socket to the client's address (`IP_TRANSPARENT`, ip(7)). connect(2) chooses the port, so that one port may be used towards
/// many endpoints (`IP_BIND_ADDRESS_NO_PORT`). A port assigned by bind(2) would be unavailable to connect(2) of every program on the
/// machine (`fastreuse` in `__inet_hash_connect`, net/ipv4/inet_hashtables.c).
///
/// # Errors
/// Returns the errors of [`bind_transparent_udp`].
pub(crate) fn bind_transparent(socket: &Socket, client: IpAddr) -> io::Result<()> {
    // Level IP for both families (__inet6_bind in net/ipv6/af_inet6.c tests the same flag).
    set_int(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1).map_err(not_available)?;
    bind_transparent_udp(socket, client, 0)
}

/// Binds a UDP socket to the client's address and this port. If the port is 0 or not free, binds to one that no other socket at that
/// address has: connect(2) would not share it either (`inet_autobind` in net/ipv4/af_inet.c).
///
/// # Errors
/// Returns `AddrNotAvailable`, which wraps the error of bind(2), or `PermissionDenied` without CAP_NET_ADMIN or CAP_NET_RAW.
pub(crate) fn bind_transparent_udp(socket: &Socket, client: IpAddr, port: u16) -> io::Result<()> {
    let bind = |port| socket.bind(&SocketAddr::new(client, port).into());
    let bound = || {
        set_transparent(socket, client.is_ipv4())?;
        if port != 0 && bind(port).is_ok() {
            return Ok(());
        }
        bind(0)
    };
    bound().map_err(not_available)
}

fn not_available(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::AddrNotAvailable, error)
}

/// Allows a socket to be bound to an address that this machine does not have.
///
/// # Errors
/// Returns `PermissionDenied` without CAP_NET_ADMIN or CAP_NET_RAW.
pub(crate) fn set_transparent(socket: &Socket, ipv4: bool) -> io::Result<()> {
    let (level, option) = match ipv4 {
        true => (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
        false => (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
    };
    set_int(socket, level, option, 1)
}
