//! Messages with descriptors over a Unix socket that preserves message boundaries (`SOCK_SEQPACKET`,
//! unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use tokio::time::timeout;

use super::TakeoverError;
use super::message::Message;

/// Limit of descriptors in one message. The kernel passes at most 253 (`SCM_MAX_FD` in include/net/scm.h).
pub(super) const MOST_FDS: usize = 128;
/// Limit of records in one message: well below what a socket accepts at once (net.core.wmem_default).
pub(super) const MOST_RECORDS: usize = 128;
const MOST_BYTES: usize = 128 << 10;

/// Connection to the other process.
#[derive(Debug)]
pub(super) struct Channel {
    /// The socket is of type `SOCK_SEQPACKET`. `UnixStream` is only used for operations that are the same for
    /// both types.
    socket: UnixStream,
}

impl Channel {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// Wraps a socket that is nonblocking and connected.
    ///
    /// # Errors
    /// If it cannot be registered with the runtime (epoll_ctl(2)).
    pub(super) fn over(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self::new(UnixStream::from_std(socket.into())?))
    }

    /// Credentials of the other process. Its ID is 0 if it is not visible to this process, as in another Pod.
    ///
    /// # Errors
    /// If getsockopt(2) fails.
    pub(super) fn peer(&self) -> io::Result<UCred> {
        self.socket.peer_cred()
    }

    /// Whether the other process has closed its end, and there is nothing left to read.
    pub(super) fn is_closed(&self) -> bool {
        is_closed(&self.socket).unwrap_or(true)
    }

    /// Sends a message with descriptors. Waits while the other process does not read.
    ///
    /// # Errors
    /// If sendmsg(2) fails.
    pub(super) async fn send(&self, message: &Message, fds: &[impl AsFd]) -> Result<(), TakeoverError> {
        let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
        Ok(self.send_bytes(&bytes, fds).await?)
    }

    /// Like [`send`](Self::send), for a serialized message.
    pub(super) async fn send_bytes(&self, bytes: &[u8], fds: &[impl AsFd]) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let slices = [IoSlice::new(bytes)];
            Ok(rustix::net::sendmsg(&self.socket, &slices, &mut ancillary, SendFlags::NOSIGNAL).map(drop)?)
        };
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    /// Receives the next message that this version knows, with its descriptors.
    ///
    /// # Errors
    /// If recvmsg(2) fails; [`Closed`](TakeoverError::Closed) if there are no more messages; if a message is
    /// truncated or invalid.
    pub(super) async fn receive(&self) -> Result<(Message, Vec<OwnedFd>), TakeoverError> {
        loop {
            let (bytes, fds) = self.receive_bytes().await?.ok_or(TakeoverError::Closed)?;
            match serde_json::from_slice(&bytes) {
                Ok(Message::Unknown) => {}
                Ok(message) => return Ok((message, fds)),
                Err(error) => return Err(TakeoverError::Unexpected(error.to_string())),
            }
        }
    }

    /// Receives the next message, serialized; `None` if the other end is closed.
    pub(super) async fn receive_bytes(&self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        self.socket.async_io(Interest::READABLE, || receive(&self.socket)).await
    }

    /// Like [`receive`](Self::receive), with a time limit.
    ///
    /// # Errors
    /// Like [`receive`](Self::receive); [`Silent`](TakeoverError::Silent) if there is no message in time.
    pub(super) async fn receive_within(
        &self,
        patience: Duration,
    ) -> Result<(Message, Vec<OwnedFd>), TakeoverError> {
        timeout(patience, self.receive()).await.unwrap_or(Err(TakeoverError::Silent))
    }
}

/// Receives without waiting; `None` if the other end is closed.
fn receive(socket: &UnixStream) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MOST_BYTES];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let mut read = || rustix::net::recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    let received = match read() {
        // The other end closed with unread messages. What it sent before can still be read.
        Err(Errno::CONNRESET) => read(),
        received => received,
    }?;
    let fds: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    // Descriptors are truncated, too, if this process may not open as many.
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message was cut, or descriptors are short",
        ));
    }
    bytes.truncate(received.bytes);
    let closed = received.bytes == 0 && is_closed(socket)?;
    Ok((!closed).then_some((bytes, fds)))
}

/// Whether the other end is closed and there is nothing left to read. A message may be empty.
fn is_closed(socket: &UnixStream) -> io::Result<bool> {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default()))?;
    Ok(fds[0].revents().contains(PollFlags::HUP) && rustix::io::ioctl_fionread(socket)? == 0)
}
