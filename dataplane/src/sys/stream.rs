//! Moving bytes between a TCP socket and memory or a pipe, one system call each. Nothing here waits: a socket that has
//! nothing to give or no room says so.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::socket::{MsgFlags, recv, send};
use socket2::Socket;

use super::pipe::Pipe;

/// Reads what is there, up to the buffer's length; 0 is the peer's FIN.
///
/// # Errors
/// As recv(2), `WouldBlock` included.
pub(crate) fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    uninterrupted(|| recv(fd, buffer, MsgFlags::empty()))
}

/// Writes what fits, and gives how much that was.
///
/// # Errors
/// As send(2), `WouldBlock` included.
pub(crate) fn transmit(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    uninterrupted(|| send(fd, bytes, MsgFlags::MSG_NOSIGNAL))
}

/// Moves up to `length` bytes into an empty pipe; 0 is the peer's FIN. The pipe must be empty: then `WouldBlock` can only
/// mean that the socket has nothing (splice(2) does not tell which side would block).
///
/// # Errors
/// As splice(2).
pub(crate) fn splice_in(socket: &Socket, pipe: &Pipe, length: usize) -> io::Result<usize> {
    uninterrupted(|| splice(socket, None, pipe.write_end(), None, length, splice_flags()))
}

/// Moves up to `length` bytes, all of which the pipe must hold, into the socket. Less means that it has no more room, or
/// that it may be tried again.
///
/// # Errors
/// As splice(2), `WouldBlock` included.
pub(crate) fn splice_out(pipe: &Pipe, socket: &Socket, length: usize) -> io::Result<usize> {
    uninterrupted(|| splice(pipe.read_end(), None, socket, None, length, splice_flags()))
}

fn splice_flags() -> SpliceFFlags {
    SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE
}

fn uninterrupted(mut call: impl FnMut() -> nix::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            outcome => return outcome.map_err(io::Error::from),
        }
    }
}
