//! Netlink sockets (netlink(7)): how the kernel's own configuration is read and changed.

use std::io;
use std::os::fd::AsRawFd;

use libc::c_int;
use nix::sys::socket::{NetlinkAddr, bind, getsockname};
use socket2::{Domain, Protocol, Socket, Type};

/// A netlink socket, and its port: a number that no other socket of this protocol in this network namespace has while it
/// is open. Nonblocking, since the kernel has answered a request before send(2) returns.
#[derive(Debug)]
pub(crate) struct Netlink {
    /// Speaks to the kernel when no address is given.
    pub(crate) socket: Socket,
    /// Given by the kernel.
    pub(crate) port: u32,
}

/// Opens one for `NETLINK_ROUTE`, `NETLINK_NETFILTER` and so on.
///
/// # Errors
/// As socket(2) and bind(2).
pub(crate) fn open(protocol: c_int) -> io::Result<Netlink> {
    let kind = Type::RAW.nonblocking().cloexec();
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), kind, Some(Protocol::from(protocol)))?;
    // Port 0 asks for a free one.
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let port = getsockname::<NetlinkAddr>(socket.as_raw_fd())?.pid();
    Ok(Netlink { socket, port })
}
