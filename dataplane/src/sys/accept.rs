//! `accept4(2)`: the one call that takes a connection off a listening socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use socket2::{SockAddr, Socket};

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
