//! Moving bytes between a TCP stream and memory or a pipe, one system call each, without the trailing call that would
//! only say `EAGAIN`.
//!
//! epoll is edge-triggered here. A read that gives less than was asked for has emptied the socket (epoll(7), "Do I need
//! to continuously read/write..."), and a short write has filled it; either way the readiness that tokio remembers is
//! cleared at once. tokio does so when the closure answers `WouldBlock`, so that is what the closures below answer,
//! with the real outcome beside it. A FIN or RST that came with the last bytes is not lost: tokio never clears the
//! closed states.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::socket::{MsgFlags, recv, send};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::pipe::Pipe;

/// What an attempt to take bytes from a stream gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Taken {
    /// That many, at least one.
    Bytes(usize),
    /// The peer has sent FIN and everything before it was taken.
    End,
    /// None for now; readiness is cleared, so wait for it.
    NotNow,
}

/// Reads what is there, up to the buffer's length.
pub(crate) fn receive(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<Taken> {
    let capacity = buffer.len();
    let fd = stream.as_raw_fd();
    let received = attempt(stream, Interest::READABLE, capacity, || recv(fd, buffer, MsgFlags::empty()))?;
    Ok(taken(received))
}

/// Writes what fits, and gives how much that was; less than all means: wait for readiness.
pub(crate) fn transmit(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let fd = stream.as_raw_fd();
    let sent = attempt(stream, Interest::WRITABLE, bytes.len(), || send(fd, bytes, MsgFlags::MSG_NOSIGNAL))?;
    Ok(sent.unwrap_or(0))
}

/// Moves up to `length` bytes into an empty pipe. The pipe must be empty: then `EAGAIN` can only mean that the socket
/// has nothing (splice(2) does not tell which side would block).
pub(crate) fn splice_in(stream: &TcpStream, pipe: &Pipe, length: usize) -> io::Result<Taken> {
    // A short splice may also mean that the pipe ran out of slots, so only EAGAIN clears the readiness.
    let moved = attempt(stream, Interest::READABLE, 0, || {
        splice(stream, None, pipe.write_end(), None, length, splice_flags())
    })?;
    Ok(taken(moved))
}

/// Moves up to `length` bytes, all of which the pipe must hold, into the stream; less means: wait for readiness.
pub(crate) fn splice_out(pipe: &Pipe, stream: &TcpStream, length: usize) -> io::Result<usize> {
    let mut moved = 0;
    while moved < length {
        let step = attempt(stream, Interest::WRITABLE, 0, || {
            splice(pipe.read_end(), None, stream, None, length - moved, splice_flags())
        })?;
        match step {
            Some(bytes) if bytes > 0 => moved += bytes,
            Some(_) | None => break,
        }
    }
    Ok(moved)
}

fn splice_flags() -> SpliceFFlags {
    SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE
}

fn taken(outcome: Option<usize>) -> Taken {
    match outcome {
        None => Taken::NotNow,
        Some(0) => Taken::End,
        Some(bytes) => Taken::Bytes(bytes),
    }
}

/// Runs `call` if the stream is ready as far as tokio knows; `None` is "would block". An outcome between nothing and
/// `full` clears the readiness without a second call.
fn attempt(
    stream: &TcpStream,
    interest: Interest,
    full: usize,
    mut call: impl FnMut() -> nix::Result<usize>,
) -> io::Result<Option<usize>> {
    let mut short = None;
    let outcome = stream.try_io(interest, || {
        loop {
            match call() {
                Ok(count) if 0 < count && count < full => {
                    short = Some(count);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(count) => return Ok(count),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    });
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(short),
        Err(error) => Err(error),
    }
}
