//! Waiting for a socket that its owner shares with a worker.

use std::io;
use std::sync::Arc;

use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a shared socket with the current reactor, for reading.
///
/// # Errors
/// As epoll_ctl(2).
pub(crate) fn readable(socket: Arc<Socket>) -> io::Result<AsyncFd<Arc<Socket>>> {
    // SAFETY: an `Arc<Socket>` gives the same open descriptor for as long as it lives, and the registration owns it.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }.map_err(io::Error::from)
}
