//! One side of a relayed connection: its socket, and its readiness as far as it is known without a system call.
//!
//! The poller is edge-triggered, so an event's readiness is kept until a call disproves it: a read that returns less than requested has
//! emptied the socket (epoll(7), "Do I need to continuously read/write..."), and a short write has filled it. This avoids calls that only
//! return `EAGAIN`. Exceptions are conditions that no further event reports: while an error or urgent data is pending, a short read proves
//! nothing, and the socket counts as readable until a call has returned the error or `EAGAIN`.

use std::io;
use std::net::Shutdown;

use socket2::{Socket, TcpKeepalive};

use crate::sys::epoll::Readiness;
use crate::sys::pipe::Pipe;
use crate::sys::sockets::{KEEPALIVE_IDLE, reset_on_close};
use crate::sys::stream::{self, Heard};

/// Keepalive settings. Only the idle time is set; the system's settings (tcp(7)) apply to further probes, which takes two system calls
/// instead of four.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);

/// Bytes per read of the beginning of a stream: a usual PROXY header with its TLVs, or a ClientHello with a post-quantum key, and little
/// of the data that follows.
const BEGINNING: usize = 4096;

/// Result of a read from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum ReadOutcome {
    /// Number of bytes read, at least one.
    Bytes(usize),
    /// The peer has sent FIN and everything before it was read.
    End,
    /// Nothing to read: wait for an event.
    NotNow,
}

/// State of Nagle's algorithm, which delays small writes until earlier ones are acknowledged (RFC 896). A relay writes whole reads, so it
/// gains nothing from the delay. The first write is never delayed, and many connections make no second one, so `TCP_NODELAY` is set before
/// the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nagle {
    Unwritten,
    WrittenOnce,
    Off,
}

/// Socket options that only a connection of some age needs, so that short ones do not pay for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aged {
    /// Enable keepalives, which probe a quiet peer.
    Probe,
    /// Detach the filter that was inherited from the listener. It has admitted the connection, would run for each of its packets, and
    /// stays in memory until the last connection detaches it, even after the listener got another filter.
    Unfilter,
    Done,
}

/// A nonblocking TCP socket.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    readable: bool,
    writable: bool,
    /// Whether FIN has arrived.
    finished: bool,
    /// Whether FIN has arrived and everything before it was read.
    emptied: bool,
    /// Whether an error is pending that no call has returned yet, mostly a reset. Data before it can still be read.
    broken: bool,
    /// Whether urgent data is pending. It ends a read before the socket is empty (`tcp_recvmsg_locked` in net/ipv4/tcp.c), and is not part
    /// of the data that a read returns.
    urgent: bool,
    /// Whether urgent data may be ahead that no event has reported yet: the last read did not empty the socket.
    unaware: bool,
    nagle: Nagle,
    /// Whether acknowledgements wait for data to carry them (TCP_QUICKACK off).
    acknowledges_late: bool,
    aged: Aged,
}

impl Stream {
    /// A socket that a listener accepted, which has inherited the listener's options.
    pub(super) fn accepted(socket: Socket) -> Self {
        Self::new(socket, Nagle::Off, Aged::Unfilter)
    }

    /// A socket that is about to be connected. Most clients send first and have sent by then: that data carries the handshake's last
    /// acknowledgement, which is therefore not sent separately (`tcp_rcv_synsent_state_process` in net/ipv4/tcp_input.c).
    pub(super) fn to_connect(socket: Socket) -> Self {
        let mut stream = Self::new(socket, Nagle::Unwritten, Aged::Probe);
        stream.acknowledges_late = stream.socket.set_tcp_quickack(false).is_ok();
        stream
    }

    /// Acknowledges at once from now on, so that a peer that waits for acknowledgements before it sends (RFC 896) is not delayed.
    pub(super) fn acknowledge(&mut self) {
        if std::mem::take(&mut self.acknowledges_late) {
            drop(self.socket.set_tcp_quickack(true));
        }
    }

    /// The socket, for polling and socket options.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// A stream of unknown readiness, until an event arrives.
    fn new(socket: Socket, nagle: Nagle, aged: Aged) -> Self {
        Self {
            socket,
            readable: false,
            writable: false,
            finished: false,
            emptied: false,
            broken: false,
            urgent: false,
            unaware: false,
            nagle,
            acknowledges_late: false,
            aged,
        }
    }

    pub(super) fn on_ready(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable();
        self.writable |= readiness.writable();
        self.finished |= readiness.finished();
        self.broken |= readiness.broken();
        self.urgent |= readiness.urgent();
    }

    /// Whether the peer has finished and all its data was read.
    pub(super) fn is_emptied(&self) -> bool {
        self.emptied
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether the socket has room. For a connecting socket: whether the attempt has completed or failed.
    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether an event reported an error that no call has returned yet, mostly a reset.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Takes the error that an event reported, if any.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        if !std::mem::take(&mut self.broken) {
            return None;
        }
        let pending = self.socket.take_error().ok().flatten();
        Some(pending.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
    }

    /// Takes the error of a failed connect. `None` if the socket is connected, even if the peer has reset it since: the next call returns
    /// that reset after the data before it. A peer that resets a connection during the handshake refuses it (`tcp_reset` in
    /// net/ipv4/tcp_input.c).
    pub(super) fn take_connect_error(&mut self) -> Option<io::Error> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        let error = self.take_error()?;
        self.broken = matches!(error.kind(), ConnectionReset | BrokenPipe);
        (!self.broken).then_some(error)
    }

    /// Reads the data that has arrived.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        if self.emptied {
            return Ok(ReadOutcome::End);
        }
        // A read that begins at the mark skips the urgent byte (`tcp_recvmsg_locked` in net/ipv4/tcp.c).
        let unaware = std::mem::take(&mut self.unaware) && !self.urgent;
        if unaware && stream::is_at_urgent_mark(&self.socket)? {
            // The urgent byte may have been read already, which `receive_urgent` finds out.
            self.urgent = true;
            return Ok(ReadOutcome::NotNow);
        }
        let taken = self.taken(stream::receive(&self.socket, buffer))?;
        if taken == ReadOutcome::End
            && let Some(error) = self.take_error()
        {
            // A previous call has fetched the error, so no further call returns it.
            return Err(error);
        }
        self.unaware = taken == ReadOutcome::Bytes(buffer.len());
        if let ReadOutcome::Bytes(count) = taken
            && count < buffer.len()
            && !self.broken
            && !self.urgent
        {
            // A later error has its own event.
            self.emptied = self.finished;
            self.readable = self.emptied;
        }
        Ok(taken)
    }

    /// Appends the data that has arrived, not past `most` bytes in all.
    pub(super) fn append(&mut self, bytes: &mut Vec<u8>, most: usize) -> io::Result<ReadOutcome> {
        let before = bytes.len();
        bytes.resize(most.min(before + BEGINNING), 0);
        let outcome = self.receive(&mut bytes[before..]);
        let count = if let Ok(ReadOutcome::Bytes(count)) = outcome { count } else { 0 };
        bytes.truncate(before + count);
        outcome
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Reads the urgent byte if everything before it was read. The next read begins after it.
    pub(super) fn receive_urgent(&mut self) -> io::Result<Option<u8>> {
        if !self.urgent || !stream::is_at_urgent_mark(&self.socket)? {
            return Ok(None);
        }
        match stream::receive_urgent(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            outcome => {
                self.urgent = false;
                outcome
            }
        }
    }

    /// Moves up to `length` bytes into an empty pipe. The caller must confirm `End` with [`Self::receive`].
    pub(super) fn splice_in(&mut self, pipe: &Pipe, length: usize) -> io::Result<ReadOutcome> {
        // A short splice may only mean that the pipe ran out of slots, so only `EAGAIN` shows that the socket is empty.
        let taken = self.taken(stream::splice_in(&self.socket, pipe, length))?;
        if taken == ReadOutcome::End && stream::is_at_urgent_mark(&self.socket)? {
            // The splice stopped at the mark with a FIN pending. A read would skip the urgent byte.
            self.urgent = true;
            return Ok(ReadOutcome::NotNow);
        }
        Ok(taken)
    }

    fn taken(&mut self, outcome: io::Result<usize>) -> io::Result<ReadOutcome> {
        match outcome {
            Ok(0) => Ok(ReadOutcome::End),
            Ok(count) => Ok(ReadOutcome::Bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                self.urgent = false;
                // A write may have been the call that returned the error.
                self.take_error().map_or(Ok(ReadOutcome::NotNow), Err)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes an urgent byte; `false` means that the caller must wait for room.
    pub(super) fn transmit_urgent(&mut self, byte: u8) -> io::Result<bool> {
        self.before_write();
        Ok(self.sent(stream::transmit_urgent(&self.socket, byte))? > 0)
    }

    /// Writes what fits, and returns the number of bytes; less than all means that the caller must wait for room. With `last`, the data
    /// leaves together with the FIN, which the caller must send next.
    pub(super) fn transmit(&mut self, bytes: &[u8], last: bool) -> io::Result<usize> {
        self.before_write();
        let sent = self.sent(stream::transmit(&self.socket, bytes, last))?;
        self.writable &= sent == bytes.len();
        Ok(sent)
    }

    /// Moves `length` bytes from the pipe into the socket and returns the number moved; less means that the caller must wait for room.
    pub(super) fn splice_out(&mut self, pipe: &Pipe, length: usize) -> io::Result<usize> {
        self.before_write();
        let mut moved = 0;
        while moved < length && self.writable {
            moved += self.sent(stream::splice_out(pipe, &self.socket, length - moved))?;
        }
        Ok(moved)
    }

    fn sent(&mut self, outcome: io::Result<usize>) -> io::Result<usize> {
        let sent = match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            outcome => outcome?,
        };
        self.writable &= sent > 0;
        Ok(sent)
    }

    fn before_write(&mut self) {
        self.nagle = match self.nagle {
            Nagle::Unwritten => Nagle::WrittenOnce,
            Nagle::WrittenOnce => {
                if let Err(error) = self.socket.set_tcp_nodelay(true) {
                    tracing::debug!(%error, "small writes may wait");
                }
                Nagle::Off
            }
            Nagle::Off => return,
        };
    }

    /// Sends a FIN. Not an error if the peer is already gone.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self.socket.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            outcome => outcome,
        }
    }

    /// A number that changes whenever the peer has read some of the written data.
    pub(super) fn taken_by_peer(&self) -> u64 {
        stream::taken_by_peer(&self.socket)
    }

    /// Segments and time of silence of the peer.
    pub(super) fn heard_from_peer(&self) -> Heard {
        stream::heard_from_peer(&self.socket)
    }

    /// Whether written data is not yet acknowledged by the peer.
    pub(super) fn has_unsent(&self) -> bool {
        stream::unacknowledged(&self.socket).is_ok_and(|bytes| bytes > 0)
    }

    /// Number of bytes that were written but not acknowledged, or received but not read.
    pub(super) fn waiting(&self) -> u64 {
        let bytes = [stream::unacknowledged(&self.socket), stream::unread(&self.socket)];
        bytes.into_iter().map(|bytes| bytes.unwrap_or(0) as u64).sum()
    }

    /// Makes close(2) send RST and discard unsent data.
    pub(super) fn reset_on_close(&self) {
        reset_on_close(&self.socket);
    }

    /// Sets the options of [`Aged`], one step per call.
    pub(super) fn age(&mut self) {
        match std::mem::replace(&mut self.aged, Aged::Done) {
            Aged::Probe => {
                if let Err(error) = self.socket.set_tcp_keepalive(&KEEPALIVE) {
                    tracing::debug!(%error, "a vanished endpoint is noticed by the idle timeout alone");
                }
            }
            // An error means that there was no filter.
            Aged::Unfilter => drop(self.socket.detach_filter()),
            Aged::Done => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use socket2::{SockFilter, SockRef};

    use super::*;
    use crate::sys::bpf::classic::RETURN;
    use crate::sys::sockets::accept;

    #[test]
    fn connections_do_not_keep_the_filter_of_their_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        SockRef::from(&listener).attach_filter(&[SockFilter::new(RETURN, 0, 0, u32::MAX)]).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (connection, _) = accept(&listener).unwrap();
        let mut connection = Stream::accepted(connection);
        connection.age();
        let none = connection.socket.detach_filter().unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        SockRef::from(&listener).detach_filter().unwrap();
    }
}
