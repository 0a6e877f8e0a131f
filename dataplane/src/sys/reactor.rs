//! Registers sockets with the worker's reactor for chosen events only, which tokio's own socket types do not allow.
//!
//! It must not know what the sockets are for.

use std::io;
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket and its place in the reactor.
pub(crate) type Registered = AsyncFd<UdpSocket>;

/// Registers a nonblocking socket. Must be called inside the worker's runtime.
pub(crate) fn register(socket: UdpSocket, interest: Interest) -> io::Result<Rc<Registered>> {
    // SAFETY: a `UdpSocket` owns its descriptor, gives the same one each time and keeps it open until dropped. It is
    // shared from the start, so that nobody can put another one in its place.
    let registered = unsafe { AsyncFd::register_with_interest(socket, interest) }?;
    Ok(Rc::new(registered))
}

/// Registers a listening socket that its owner shares with the worker. Must be called inside the worker's runtime.
pub(crate) fn listening(socket: Arc<Socket>) -> io::Result<AsyncFd<Arc<Socket>>> {
    // SAFETY: an `Arc<Socket>` gives the same open descriptor for as long as it lives, and the registration owns it.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}
