//! A socket that tokio has no type for, and that it waits for nevertheless.

use std::io;

use socket2::Socket;
use tokio::io::unix::AsyncFd;

/// A nonblocking socket. Whoever receives does so until nothing waits, and only then waits for more.
#[derive(Debug)]
pub(crate) struct AsyncSocket(AsyncFd<Socket>);

impl AsyncSocket {
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        #[expect(
            deprecated,
            reason = "`register` is unsafe, for types whose descriptor changes; a `Socket` keeps its own until it is dropped"
        )]
        let socket = AsyncFd::new(socket)?;
        Ok(Self(socket))
    }

    pub(crate) fn get(&self) -> &Socket {
        self.0.get_ref()
    }

    /// Waits until there may be something to receive that was not there at the last wait.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}
