//! Moving bytes between a TCP socket and memory or a pipe, one system call each. Nothing here waits: a socket that has
//! nothing to give or no room says so.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::time::Duration;

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

/// Writes what fits, and gives how much that was. Where there is `more`, a last segment that is not full waits for the next write or FIN.
///
/// # Errors
/// As send(2), `WouldBlock` included.
pub(crate) fn transmit(socket: &Socket, bytes: &[u8], more: bool) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    let flags = if more { MsgFlags::from_bits_retain(libc::MSG_MORE) } else { MsgFlags::empty() };
    uninterrupted(|| send(fd, bytes, MsgFlags::MSG_NOSIGNAL | flags))
}

/// asm-generic/sockios.h and linux/sockios.h, which libc does not have.
const SIOCATMARK: libc::Ioctl = 0x8905;
const SIOCOUTQ: libc::Ioctl = libc::TIOCOUTQ;
const SIOCINQ: libc::Ioctl = libc::FIONREAD;

/// Whether the next byte to be read is the urgent one.
///
/// # Errors
/// As ioctl(2).
pub(crate) fn is_at_urgent_mark(socket: &Socket) -> io::Result<bool> {
    Ok(ask(socket, SIOCATMARK)? != 0)
}

/// How many bytes were written that the peer has not acknowledged.
///
/// # Errors
/// As ioctl(2).
pub(crate) fn unacknowledged(socket: &Socket) -> io::Result<usize> {
    Ok(usize::try_from(ask(socket, SIOCOUTQ)?).unwrap_or_default())
}

/// How many bytes have arrived that were not read.
///
/// # Errors
/// As ioctl(2).
pub(crate) fn unread(socket: &Socket) -> io::Result<usize> {
    Ok(usize::try_from(ask(socket, SIOCINQ)?).unwrap_or_default())
}

/// The answer to a request whose answer is an int.
fn ask(socket: &Socket, request: libc::Ioctl) -> io::Result<libc::c_int> {
    let mut answer: libc::c_int = 0;
    // SAFETY: the descriptor is open for the time of the borrow, and both requests write an int (tcp(7)).
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut answer) };
    if outcome == 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}

/// Reads the urgent byte, wherever in the stream it is; `None` if there is none, or if it was read before.
///
/// # Errors
/// As recv(2); `WouldBlock` if it is announced and has not arrived.
pub(crate) fn receive_urgent(socket: &Socket) -> io::Result<Option<u8>> {
    let (fd, mut byte) = (socket.as_raw_fd(), [0]);
    match uninterrupted(|| recv(fd, &mut byte, MsgFlags::MSG_OOB)) {
        Ok(count) => Ok((count > 0).then_some(byte[0])),
        // As `tcp_recv_urg` in net/ipv4/tcp.c answers.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes one byte as urgent data.
///
/// # Errors
/// As send(2), `WouldBlock` included.
pub(crate) fn transmit_urgent(socket: &Socket, byte: u8) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    uninterrupted(|| send(fd, &[byte], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_OOB))
}

/// Moves up to `length` bytes into an empty pipe; 0 is the peer's FIN, or urgent data in the way
/// (`tcp_splice_read` in net/ipv4/tcp.c). The pipe must be empty: then `WouldBlock` can only
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

/// A number that changes whenever the peer has taken something: bytes that it has acknowledged, or room that it has made by
/// reading (tcp(7), `TCP_INFO`; the window is there since Linux 5.4). 0 if the kernel does not say.
pub(crate) fn taken_by_peer(socket: &Socket) -> u64 {
    info(socket).map_or(0, |info| info.tcpi_bytes_acked.wrapping_add(u64::from(info.tcpi_snd_wnd) << 32))
}

/// What has come from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Segments, of whatever kind (Linux 4.2).
    pub(crate) segments: u32,
    /// How long ago one acknowledged something, or said again what it had acknowledged.
    pub(crate) quiet: Duration,
}

/// What has come from the peer of a connection.
pub(crate) fn heard_from_peer(socket: &Socket) -> Heard {
    info(socket).map_or_else(Heard::default, |info| Heard {
        segments: info.tcpi_segs_in,
        quiet: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    })
}

/// How many connections wait to be accepted from a listening socket (`tcp_get_info` in net/ipv4/tcp.c).
pub(crate) fn waiting_connections(listener: &Socket) -> usize {
    info(listener).map_or(0, |info| info.tcpi_unacked as usize)
}

/// How many segments have come.
#[cfg(test)]
pub(crate) fn received_segments(socket: &Socket) -> u32 {
    info(socket).map_or(0, |info| info.tcpi_segs_in)
}

fn info(socket: &Socket) -> Option<libc::tcp_info> {
    // SAFETY: a plain C struct of integers, for which all zeroes are a value. Older kernels fill less of it.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: the descriptor is open for the time of the borrow, and the kernel writes `length` bytes at most.
    let outcome = unsafe {
        let value = (&raw mut info).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length)
    };
    (outcome == 0).then_some(info)
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
