//! Sockets that tokio has no type for, and that it waits for nevertheless.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::Socket;
use tokio::io::unix::AsyncFd;

/// A nonblocking socket. Whoever receives does so until nothing waits, and only then waits for more.
#[derive(Debug)]
pub(crate) struct AsyncSocket<S: AsRawFd = Socket>(AsyncFd<S>);

impl AsyncSocket {
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::watch(socket)
    }

    pub(crate) fn get(&self) -> &Socket {
        self.0.get_ref()
    }
}

impl<S: AsRawFd> AsyncSocket<S> {
    /// Watches one that is nonblocking.
    pub(crate) fn watch(socket: S) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "`register` is unsafe, for types whose descriptor changes; a socket keeps its own until it is dropped"
        )]
        let socket = AsyncFd::new(socket)?;
        Ok(Self(socket))
    }

    /// Waits until there may be something to receive that was not there at the last wait.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

/// Gives a socket room for what arrives while nobody reads; the kernel takes memory only for what waits.
///
/// # Errors
/// Errors of setsockopt(2).
pub(crate) fn make_room(socket: &Socket, bytes: usize) -> io::Result<()> {
    // Above net.core.rmem_max only with CAP_NET_ADMIN of the first user namespace.
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}
