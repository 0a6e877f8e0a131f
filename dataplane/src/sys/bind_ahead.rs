//! Binding an address that this machine may not have yet.

use std::io;
use std::net::SocketAddr;

use socket2::Socket;

/// Binds a socket to an address of its family alone, whether or not the address is there already (IP_FREEBIND, ip(7)):
/// it may be announced to this machine later.
pub(crate) fn bind_ahead(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    if addr.is_ipv4() {
        socket.set_freebind_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
    }
    socket.bind(&addr.into())
}
