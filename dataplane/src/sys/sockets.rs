//! Socket calls and options that std, nix and socket2 do not offer, or offer only with more system calls.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use libc::c_int;
use nix::sys::socket::{NetlinkAddr, getsockname};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Time of silence after which a TCP peer is probed (SO_KEEPALIVE). This detects a peer that vanished long before the idle timeout
/// does. A client's own probes end at the gateway.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(180);

/// Receive buffer for a burst of datagrams while the worker is busy. The kernel caps it at net.core.rmem_max, and only uses memory
/// for data that waits.
pub(crate) const UDP_RECEIVE_BUFFER: usize = 4 << 20;

/// Accepts one connection, nonblocking and close-on-exec from the start. `std` and `socket2` need a second system call for
/// nonblocking.
///
/// # Errors
/// Returns an error if accept(2) fails, including `WouldBlock` and pending errors of the new connection.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<(Socket, SocketAddr)> {
    let listener = listener.as_fd();
    let accept4 = |storage: *mut socket2::SockAddrStorage, length: *mut libc::socklen_t| {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: `listener` outlives the call, and socket2 passes a storage of the length that `length` specifies.
        let fd = unsafe { libc::accept4(listener.as_raw_fd(), storage.cast(), length, flags) };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
    };
    // SAFETY: on success accept4 has written a valid address and its length.
    let (fd, peer) = unsafe { SockAddr::try_init(accept4) }?;
    // SAFETY: accept4 has just returned this descriptor, and it has no other owner.
    let connection = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    match peer.as_socket() {
        Some(peer) => Ok((connection, peer)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "the peer has no internet address")),
    }
}

/// Sets `option` of `level` to `value`.
///
/// # Errors
/// Returns an error if setsockopt(2) fails.
pub(crate) fn set_int(socket: impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the borrow keeps the descriptor open, and the option takes an int, which `value` is.
    let outcome = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, ptr::from_ref(&value).cast(), length)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the next close of a TCP socket send RST and discard unsent data (SO_LINGER of zero, tcp(7)).
pub(crate) fn reset_on_close(socket: &Socket) {
    if let Err(error) = socket.set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "the peer will see FIN in place of RST");
    }
}

/// Number of packets that the kernel has dropped at the socket since it was created, because of its filter or of full queues
/// (`SO_MEMINFO`, include/uapi/linux/sock_diag.h). The count wraps around.
///
/// # Errors
/// Returns an error if getsockopt(2) fails.
pub(crate) fn dropped_packets(socket: impl AsFd) -> io::Result<u32> {
    const SK_MEMINFO_VARS: usize = 9;
    const SK_MEMINFO_DROPS: usize = 8;
    let mut numbers = [0_u32; SK_MEMINFO_VARS];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the borrow keeps the descriptor open, and the kernel writes at most `length` bytes, the size of `numbers`.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            ptr::from_mut(&mut numbers).cast(),
            &raw mut length,
        )
    };
    if outcome == 0 { Ok(numbers[SK_MEMINFO_DROPS]) } else { Err(io::Error::last_os_error()) }
}

/// A socket registered with tokio's reactor, for parts other than workers.
pub(crate) type Registered = AsyncFd<Arc<Socket>>;

/// Registers a nonblocking socket for these events only, which tokio's own socket types do not allow. Must be called inside a
/// runtime.
pub(crate) fn register(socket: Arc<Socket>, interest: Interest) -> io::Result<Registered> {
    // SAFETY: an `Arc<Socket>` returns the same open descriptor while it exists, and the registration owns it.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

/// A netlink socket (netlink(7)) and its port, a number that is unique for this protocol in this network namespace while the socket
/// is open. Nonblocking, since the kernel has answered a request before send(2) returns.
#[derive(Debug)]
pub(crate) struct Netlink {
    /// Sends to the kernel unless an address is given.
    pub(crate) socket: Socket,
    /// Port that the kernel assigned.
    pub(crate) port: u32,
}

/// Opens a netlink socket for `NETLINK_ROUTE`, `NETLINK_NETFILTER` and so on, which receives the kernel's messages to these groups.
///
/// # Errors
/// Returns an error if socket(2) or bind(2) fails.
pub(crate) fn open_netlink(protocol: c_int, groups: u32) -> io::Result<Netlink> {
    let kind = Type::RAW.nonblocking().cloexec();
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), kind, Some(Protocol::from(protocol)))?;
    // Port 0 requests a free one.
    nix::sys::socket::bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    let port = getsockname::<NetlinkAddr>(socket.as_raw_fd())?.pid();
    Ok(Netlink { socket, port })
}
