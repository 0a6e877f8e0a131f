//! Registers sockets with the worker's reactor for chosen events only, which tokio's own socket types do not allow.
//!
//! It must not know what the sockets are for.

use std::io;
use std::sync::Arc;

use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket and its place in the reactor. Shared, since a listening socket belongs to whoever opened it, too.
pub(crate) type Registered = AsyncFd<Arc<Socket>>;

/// Registers a nonblocking socket. Must be called inside the worker's runtime.
pub(crate) fn register(socket: Arc<Socket>, interest: Interest) -> io::Result<Registered> {
    // SAFETY: an `Arc<Socket>` gives the same open descriptor for as long as it lives, and the registration owns it.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}
