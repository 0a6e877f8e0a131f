//! Transfers between a TCP socket and memory or a pipe, one system call each. No function waits: a socket without data or room returns
//! `WouldBlock`.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::socket::{MsgFlags, recv, send};
use socket2::Socket;

use super::pipe::Pipe;

/// Reads the available data, up to the buffer's length; 0 means the peer's FIN.
///
/// # Errors
/// Returns an error if recv(2) fails, including `WouldBlock`.
pub(crate) fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    uninterrupted(|| recv(fd, buffer, MsgFlags::empty()))
}

/// Writes what fits, and returns the number of bytes. With `more`, a last segment that is not full waits for the next write or FIN.
///
/// # Errors
/// Returns an error if send(2) fails, including `WouldBlock`.
pub(crate) fn transmit(socket: &Socket, bytes: &[u8], more: bool) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    let flags = if more { MsgFlags::from_bits_retain(libc::MSG_MORE) } else { MsgFlags::empty() };
    uninterrupted(|| send(fd, bytes, MsgFlags::MSG_NOSIGNAL | flags))
}

/// From asm-generic/sockios.h and linux/sockios.h; missing in libc.
const SIOCATMARK: libc::Ioctl = 0x8905;
const SIOCOUTQ: libc::Ioctl = libc::TIOCOUTQ;
const SIOCINQ: libc::Ioctl = libc::FIONREAD;

/// Whether the next byte to read is the urgent one.
///
/// # Errors
/// Returns an error if ioctl(2) fails.
pub(crate) fn is_at_urgent_mark(socket: &Socket) -> io::Result<bool> {
    Ok(ask(socket, SIOCATMARK)? != 0)
}

/// Number of written bytes that the peer has not acknowledged.
///
/// # Errors
/// Returns an error if ioctl(2) fails.
pub(crate) fn unacknowledged(socket: &Socket) -> io::Result<usize> {
    Ok(usize::try_from(ask(socket, SIOCOUTQ)?).unwrap_or_default())
}

/// Number of received bytes that were not read.
///
/// # Errors
/// Returns an error if ioctl(2) fails.
pub(crate) fn unread(socket: &Socket) -> io::Result<usize> {
    Ok(usize::try_from(ask(socket, SIOCINQ)?).unwrap_or_default())
}

/// Makes a request whose result is an int.
fn ask(socket: &Socket, request: libc::Ioctl) -> io::Result<libc::c_int> {
    let mut answer: libc::c_int = 0;
    // SAFETY: the borrow keeps the descriptor open, and all requests used here write an int (tcp(7)).
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut answer) };
    if outcome == 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}

/// Reads the urgent byte from any position in the stream; `None` if there is none, or if it was read before.
///
/// # Errors
/// Returns an error if recv(2) fails; `WouldBlock` if the byte is announced but has not arrived.
pub(crate) fn receive_urgent(socket: &Socket) -> io::Result<Option<u8>> {
    let (fd, mut byte) = (socket.as_raw_fd(), [0]);
    match uninterrupted(|| recv(fd, &mut byte, MsgFlags::MSG_OOB)) {
        Ok(count) => Ok((count > 0).then_some(byte[0])),
        // The error of `tcp_recv_urg` in net/ipv4/tcp.c in these cases.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes one byte as urgent data.
///
/// # Errors
/// Returns an error if send(2) fails, including `WouldBlock`.
pub(crate) fn transmit_urgent(socket: &Socket, byte: u8) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    uninterrupted(|| send(fd, &[byte], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_OOB))
}

/// Moves up to `length` bytes into a pipe; 0 means the peer's FIN, or urgent data ahead (`tcp_splice_read` in net/ipv4/tcp.c). The pipe
/// must be empty, so that `WouldBlock` can only mean that the socket has no data (splice(2) does not report which side would block).
///
/// # Errors
/// Returns an error if splice(2) fails.
pub(crate) fn splice_in(socket: &Socket, pipe: &Pipe, length: usize) -> io::Result<usize> {
    uninterrupted(|| splice(socket, None, pipe.write_end(), None, length, splice_flags()))
}

/// Moves up to `length` bytes from the pipe, which must hold that many, into the socket. Less means that the socket has no more room, or
/// that a retry may move more.
///
/// # Errors
/// Returns an error if splice(2) fails, including `WouldBlock`.
pub(crate) fn splice_out(pipe: &Pipe, socket: &Socket, length: usize) -> io::Result<usize> {
    uninterrupted(|| splice(pipe.read_end(), None, socket, None, length, splice_flags()))
}

/// A number that changes whenever the peer acknowledges bytes, or makes room by reading (tcp(7), `TCP_INFO`; the window is included since
/// Linux 5.4). 0 if the kernel does not report it.
pub(crate) fn taken_by_peer(socket: &Socket) -> u64 {
    info(socket).map_or(0, |info| info.tcpi_bytes_acked.wrapping_add(u64::from(info.tcpi_snd_wnd) << 32))
}

/// Segments received from a peer, and the time since its last acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Number of segments of any kind (Linux 4.2).
    pub(crate) segments: u32,
    /// Time since the last segment with an acknowledgement, new or repeated.
    pub(crate) quiet: Duration,
}

/// Segments and time of silence of a connection's peer.
pub(crate) fn heard_from_peer(socket: &Socket) -> Heard {
    info(socket).map_or_else(Heard::default, |info| Heard {
        segments: info.tcpi_segs_in,
        quiet: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    })
}

/// Number of connections that wait to be accepted from a listening socket (`tcp_get_info` in net/ipv4/tcp.c).
pub(crate) fn waiting_connections(listener: &Socket) -> usize {
    info(listener).map_or(0, |info| info.tcpi_unacked as usize)
}

/// Number of received segments.
#[cfg(test)]
pub(crate) fn received_segments(socket: &Socket) -> u32 {
    info(socket).map_or(0, |info| info.tcpi_segs_in)
}

fn info(socket: &Socket) -> Option<libc::tcp_info> {
    // SAFETY: a plain C struct of integers, for which all zeroes are a value. Older kernels fill in less of it.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: the borrow keeps the descriptor open, and the kernel writes at most `length` bytes.
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
