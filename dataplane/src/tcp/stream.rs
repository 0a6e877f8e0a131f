//! One side of a relayed connection: its socket, and what is known of it without asking the kernel.
//!
//! Events come once per change, so what they reported is remembered until a call shows otherwise: a read that gives less than
//! was asked for has emptied the socket (epoll(7), "Do I need to continuously read/write..."), a short write has filled
//! it. So no call is made only to be answered `EAGAIN`. The exceptions are what no further event reports: while an error or
//! urgent data is pending, a short read proves nothing, and the socket counts as readable until a call has returned the
//! error or `EAGAIN`.

use std::io;
use std::net::{Shutdown, SocketAddr};

use socket2::{Socket, TcpKeepalive};

use crate::sys::Errno;
use crate::sys::epoll::Readiness;
use crate::sys::pipe::Pipe;
use crate::sys::sockets::{KEEPALIVE_IDLE, reset_on_close};
use crate::sys::stream::{self, Heard};

/// How often a quiet endpoint is probed after the first time is the system's to say (tcp(7)): two system calls in place
/// of four.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);

/// What an attempt to take bytes from a stream gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum ReadOutcome {
    /// That many, at least one.
    Bytes(usize),
    /// The peer has sent FIN and everything before it was taken.
    End,
    /// None for now: wait for an event.
    NotNow,
}

/// Whether small writes wait for earlier ones to be acknowledged (RFC 896). A relay writes whole reads, so it could only
/// lose by that; but a first write never waits, and many connections make no second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nagle {
    Unwritten,
    WrittenOnce,
    Off,
}

/// Options that only a connection of some age needs, so that short ones do not pay for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aged {
    /// Probe the peer when it is quiet.
    Probe,
    /// Let go of the filter that was inherited from the listener: it has let the connection in, is run for each of its
    /// packets, and stays in memory as long as any connection has it, however often the listener has got another since.
    Unfilter,
    Done,
}

/// A nonblocking TCP socket.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    readable: bool,
    writable: bool,
    /// FIN has come.
    finished: bool,
    /// FIN has come and nothing is left before it.
    emptied: bool,
    /// An error is pending that no call has returned yet: a reset, mostly. Data before it can still be read.
    broken: bool,
    /// Urgent data is pending. It ends a read before the socket is empty (`tcp_recvmsg_locked` in net/ipv4/tcp.c), and is
    /// no part of what a read gives.
    urgent: bool,
    /// Urgent data may be ahead that no event has reported yet: there is more than was read.
    unaware: bool,
    nagle: Nagle,
    /// Acknowledgements wait for bytes to go with (TCP_QUICKACK off).
    acknowledges_late: bool,
    aged: Aged,
}

impl Stream {
    /// What a listener gave: it has inherited the listener's options.
    pub(super) fn accepted(socket: Socket) -> Self {
        Self::new(socket, Nagle::Off, Aged::Unfilter)
    }

    /// A socket that is about to be connected. Most clients speak first, and have by then: what they sent takes the handshake's
    /// last acknowledgement along, which is not sent by itself (`tcp_rcv_synsent_state_process` in net/ipv4/tcp_input.c).
    pub(super) fn to_connect(socket: Socket) -> Self {
        let mut stream = Self::new(socket, Nagle::Unwritten, Aged::Probe);
        stream.acknowledges_late = stream.socket.set_tcp_quickack(false).is_ok();
        stream
    }

    /// Acknowledges at once from now on: a peer that waits for that before it goes on (RFC 896) is not to wait for ours.
    pub(super) fn acknowledge(&mut self) {
        if std::mem::take(&mut self.acknowledges_late) {
            drop(self.socket.set_tcp_quickack(true));
        }
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// As connect(2), but that it is under way is none.
    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match self.socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => Ok(()),
            outcome => outcome,
        }
    }

    /// For those who watch it.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Nothing is known until an event comes.
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

    /// Applies an event.
    pub(super) fn on_ready(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable();
        self.writable |= readiness.writable();
        self.finished |= readiness.finished();
        self.broken |= readiness.broken();
        self.urgent |= readiness.urgent();
    }

    /// Whether the peer has finished, and everything that it has sent was read.
    pub(super) fn is_emptied(&self) -> bool {
        self.emptied
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether there is room. Of a socket that is being connected: whether that has come to its end, good or bad.
    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether an event reported an error that no call has returned yet: a reset, mostly.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The error that an event reported, if any.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        if !std::mem::take(&mut self.broken) {
            return None;
        }
        let pending = self.socket.take_error().ok().flatten();
        Some(pending.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
    }

    /// Why it could not be connected. None if it is, though the peer may have reset it since: that is for the next call to tell, after the
    /// bytes that came before. A peer that resets a connection before it takes it refuses it (`tcp_reset` in net/ipv4/tcp_input.c).
    pub(super) fn take_connect_error(&mut self) -> Option<io::Error> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        let error = self.take_error()?;
        self.broken = matches!(error.kind(), ConnectionReset | BrokenPipe);
        (!self.broken).then_some(error)
    }

    /// Reads what is there.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        if self.emptied {
            return Ok(ReadOutcome::End);
        }
        // A read that begins at the mark passes over the urgent byte (`tcp_recvmsg_locked` in net/ipv4/tcp.c).
        let unaware = std::mem::take(&mut self.unaware) && !self.urgent;
        if unaware && stream::is_at_urgent_mark(&self.socket)? {
            // Or there was one that is read already, which its next look shows.
            self.urgent = true;
            return Ok(ReadOutcome::NotNow);
        }
        let taken = self.taken(stream::receive(&self.socket, buffer))?;
        if taken == ReadOutcome::End
            && let Some(error) = self.take_error()
        {
            // It was asked for before, so no call returns it.
            return Err(error);
        }
        self.unaware = taken == ReadOutcome::Bytes(buffer.len());
        if let ReadOutcome::Bytes(count) = taken
            && count < buffer.len()
            && !self.broken
            && !self.urgent
        {
            // An error that comes from now on has an event of its own.
            self.emptied = self.finished;
            self.readable = self.emptied;
        }
        Ok(taken)
    }

    /// Whether urgent data is pending.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// The urgent byte, if everything before it was read. The next read begins behind it.
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

    /// Moves up to `length` bytes into an empty pipe. `End` is to be confirmed by [`Self::receive`].
    pub(super) fn splice_in(&mut self, pipe: &Pipe, length: usize) -> io::Result<ReadOutcome> {
        // A short splice may mean that the pipe ran out of slots, so only EAGAIN says that the socket is empty.
        let taken = self.taken(stream::splice_in(&self.socket, pipe, length))?;
        if taken == ReadOutcome::End && stream::is_at_urgent_mark(&self.socket)? {
            // It stopped there with a FIN pending. A read would pass over the urgent byte.
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

    /// Writes an urgent byte; false means: wait for room.
    pub(super) fn transmit_urgent(&mut self, byte: u8) -> io::Result<bool> {
        self.before_write();
        Ok(self.sent(stream::transmit_urgent(&self.socket, byte))? > 0)
    }

    /// Writes what fits, and gives how much that was; less than all means: wait for room. What is the `last` leaves together with the FIN,
    /// which is to follow.
    pub(super) fn transmit(&mut self, bytes: &[u8], last: bool) -> io::Result<usize> {
        self.before_write();
        let sent = self.sent(stream::transmit(&self.socket, bytes, last))?;
        self.writable &= sent == bytes.len();
        Ok(sent)
    }

    /// Moves `length` bytes, which the pipe holds, into the socket; less than all means: wait for room.
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

    /// Hands on a FIN. A peer that is gone already needs none.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self.socket.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            outcome => outcome,
        }
    }

    /// A number that changes whenever the peer has taken something of what was written.
    pub(super) fn taken_by_peer(&self) -> u64 {
        stream::taken_by_peer(&self.socket)
    }

    /// What has come from the peer.
    pub(super) fn heard_from_peer(&self) -> Heard {
        stream::heard_from_peer(&self.socket)
    }

    /// Whether something was written that the peer has not acknowledged.
    pub(super) fn has_unsent(&self) -> bool {
        stream::unacknowledged(&self.socket).is_ok_and(|bytes| bytes > 0)
    }

    /// Bytes that were written and not acknowledged, and those that were not read yet.
    pub(super) fn waiting(&self) -> u64 {
        let bytes = [stream::unacknowledged(&self.socket), stream::unread(&self.socket)];
        bytes.into_iter().map(|bytes| bytes.unwrap_or(0) as u64).sum()
    }

    /// Makes the coming close send RST and discard what is unsent.
    pub(super) fn reset_on_close(&self) {
        reset_on_close(&self.socket);
    }

    /// The connection has lived for a while.
    pub(super) fn age(&mut self) {
        match std::mem::replace(&mut self.aged, Aged::Done) {
            Aged::Probe => {
                if let Err(error) = self.socket.set_tcp_keepalive(&KEEPALIVE) {
                    tracing::debug!(%error, "a vanished endpoint is noticed by the idle timeout alone");
                }
            }
            // An error says that there was none.
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
