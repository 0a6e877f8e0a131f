//! `accept4(2)`: the one call that takes a connection off a listening socket.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use socket2::{SockAddr, SockRef};

/// Takes one connection, nonblocking and close-on-exec from birth. `std` and `socket2` need a second system call for
/// the first of these.
///
/// The listener's filter does not come along: it has let the connection in, would be run for each of its packets, and
/// would stay in memory as long as the connection, however often the listener has got another since.
///
/// # Errors
/// As accept(2), `WouldBlock` included; pending errors of the new connection are reported here too.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<(TcpStream, SocketAddr)> {
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
    let connection = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // An error says that there was none.
    drop(SockRef::from(&connection).detach_filter());
    match peer.as_socket() {
        Some(peer) => Ok((connection, peer)),
        None => {
            mem::drop(connection);
            Err(io::Error::new(io::ErrorKind::InvalidData, "the peer has no internet address"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::SockFilter;

    use super::*;
    use crate::sys::bpf::RETURN;

    #[test]
    fn connections_do_not_keep_the_filter_of_their_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        SockRef::from(&listener).attach_filter(&[SockFilter::new(RETURN, 0, 0, u32::MAX)]).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (connection, _) = accept(&listener).unwrap();
        let none = SockRef::from(&connection).detach_filter().unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        SockRef::from(&listener).detach_filter().unwrap();
    }
}
