//! Socket calls and options that neither std, nix nor socket2 offers, or that they take more system calls for.

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

/// A TCP peer that was quiet for so long is probed (SO_KEEPALIVE). This finds a peer that vanished long before the idle timeout
/// does, and a client's own probes end here.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(180);

/// Room for a burst of datagrams while the worker is busy. The kernel caps it at net.core.rmem_max, and takes memory only for
/// what waits.
pub(crate) const UDP_RECEIVE_BUFFER: usize = 4 << 20;

/// Takes one connection, nonblocking and close-on-exec from birth. `std` and `socket2` need a second system call for
/// the first of these.
///
/// # Errors
/// As accept(2), `WouldBlock` included; pending errors of the new connection are reported here too.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<(Socket, SocketAddr)> {
    let listener = listener.as_fd();
    let accept4 = |storage: *mut socket2::SockAddrStorage, length: *mut libc::socklen_t| {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: `listener` outlives the call, and socket2 gives a storage that is as long as `length` says.
        let fd = unsafe { libc::accept4(listener.as_raw_fd(), storage.cast(), length, flags) };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
    };
    // SAFETY: on success accept4 has written a valid address and its length.
    let (fd, peer) = unsafe { SockAddr::try_init(accept4) }?;
    // SAFETY: accept4 has just returned this descriptor, and nobody else knows it.
    let connection = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    match peer.as_socket() {
        Some(peer) => Ok((connection, peer)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "the peer has no internet address")),
    }
}

/// Sets `option` of `level` to `value`.
///
/// # Errors
/// As setsockopt(2).
pub(crate) fn set_int(socket: impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open for the time of the borrow, and the option takes an int, which `value` is.
    let outcome = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, ptr::from_ref(&value).cast(), length)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the coming close of a TCP socket send RST and discard what is unsent (SO_LINGER of zero, tcp(7)).
pub(crate) fn reset_on_close(socket: &Socket) {
    if let Err(error) = socket.set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "the peer will see FIN in place of RST");
    }
}

/// Packets that the kernel has dropped at the socket since it was made, because of its filter or of full queues
/// (`SO_MEMINFO`, include/uapi/linux/sock_diag.h). The count wraps around.
///
/// # Errors
/// As getsockopt(2).
pub(crate) fn dropped_packets(socket: impl AsFd) -> io::Result<u32> {
    const SK_MEMINFO_VARS: usize = 9;
    const SK_MEMINFO_DROPS: usize = 8;
    let mut numbers = [0_u32; SK_MEMINFO_VARS];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the descriptor is open for the time of the borrow, and the kernel writes no more than `length` bytes, which
    // `numbers` has.
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

/// A socket that tokio's reactor watches, for what is no worker's.
pub(crate) type Registered = AsyncFd<Arc<Socket>>;

/// Registers a nonblocking socket for these events only, which tokio's own socket types do not allow. Must be called inside a
/// runtime.
pub(crate) fn register(socket: Arc<Socket>, interest: Interest) -> io::Result<Registered> {
    // SAFETY: an `Arc<Socket>` gives the same open descriptor for as long as it lives, and the registration owns it.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

/// A netlink socket (netlink(7)) and its port: a number that no other socket of this protocol in this network namespace has while it
/// is open. Nonblocking, since the kernel has answered a request before send(2) returns.
#[derive(Debug)]
pub(crate) struct Netlink {
    /// Speaks to the kernel when no address is given.
    pub(crate) socket: Socket,
    /// Given by the kernel.
    pub(crate) port: u32,
}

/// Opens one for `NETLINK_ROUTE`, `NETLINK_NETFILTER` and so on, which receives what the kernel sends to these groups.
///
/// # Errors
/// As socket(2) and bind(2).
pub(crate) fn open_netlink(protocol: c_int, groups: u32) -> io::Result<Netlink> {
    let kind = Type::RAW.nonblocking().cloexec();
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), kind, Some(Protocol::from(protocol)))?;
    // Port 0 asks for a free one.
    nix::sys::socket::bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    let port = getsockname::<NetlinkAddr>(socket.as_raw_fd())?.pid();
    Ok(Netlink { socket, port })
}
