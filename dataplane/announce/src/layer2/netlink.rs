//! The sockets of NETLINK_ROUTE: requests with their replies, and notifications of links and addresses.
//!
//! The kernel handles a request within the system call that sends it (`netlink_rcv_skb` in net/netlink/af_netlink.c), so its reply
//! already waits when that returns: nothing here waits for anything but the kernel's own lock.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::libc;
use nix::sys::socket::{NetlinkAddr, bind};
use socket2::{Domain, Protocol, Socket, Type};
use tracing::debug;

use crate::async_socket::{AsyncSocket, make_room};

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// How many requests are sent at once. Their notifications fit in the buffer of `Notifications` even where it cannot grow.
pub(crate) const BATCH: usize = 128;
/// Room for notifications while the thread is busy; the kernel takes memory only for what waits.
const NOTIFICATION_BUFFER: usize = 4 << 20;
/// The longest message: a link with many virtual functions.
pub(super) const LONGEST: usize = 256 << 10;
/// Messages begin at multiples of this (NLMSG_ALIGNTO in linux/netlink.h).
const ALIGNMENT: usize = 4;
const HEADER: usize = 16;
/// The kernel has replied before the request returns. Only a reply that it had no memory for is waited for.
const LOST_REPLY: Duration = Duration::from_secs(1);

/// Sends requests and receives their replies.
pub(crate) struct Requests {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Requests {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = open()?;
        socket.set_read_timeout(Some(LOST_REPLY))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; LONGEST] })
    }

    /// Everything of a kind: `request` is an `RTM_GET...` message.
    pub(crate) fn dump(&mut self, request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        let sequence = self.send(vec![request], NLM_F_DUMP)?;
        let mut items = Vec::new();
        loop {
            for reply in self.receive()? {
                match reply.payload {
                    _ if reply.header.sequence_number != sequence => {}
                    NetlinkPayload::InnerMessage(item) => items.push(item),
                    NetlinkPayload::Error(verdict) if verdict.code.is_some() => return Err(verdict.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(items),
                    _ => {}
                }
            }
        }
    }

    /// Carries out one request.
    pub(crate) fn change(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        match self.change_all(vec![request], flags)?.pop() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Carries out up to `BATCH` requests, whatever becomes of each; returns those that failed, by their place.
    pub(crate) fn change_all(
        &mut self,
        requests: Vec<RouteNetlinkMessage>,
        flags: u16,
    ) -> io::Result<Vec<(usize, io::Error)>> {
        debug_assert!(requests.len() <= BATCH);
        let first = self.sequence.wrapping_add(1);
        let last = self.send(requests, flags)?;
        let mut failed = Vec::new();
        loop {
            for reply in self.receive()? {
                let NetlinkPayload::Error(verdict) = reply.payload else { continue };
                let sequence = reply.header.sequence_number;
                if sequence.wrapping_sub(first) > last.wrapping_sub(first) {
                    continue;
                }
                if verdict.code.is_some() {
                    failed.push((sequence.wrapping_sub(first) as usize, verdict.to_io()));
                }
                if sequence == last {
                    return Ok(failed);
                }
            }
        }
    }

    /// Sends requests, of which the last is acknowledged and the others are heard of only if they fail; returns the number of the last.
    fn send(&mut self, requests: Vec<RouteNetlinkMessage>, flags: u16) -> io::Result<u32> {
        let (mut bytes, count) = (Vec::new(), requests.len());
        for (place, request) in requests.into_iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            let mut message = to_kernel(request, flags);
            if place + 1 == count && flags & NLM_F_DUMP != NLM_F_DUMP {
                message.header.flags |= NLM_F_ACK;
            }
            message.header.sequence_number = self.sequence;
            append(&mut bytes, message);
        }
        self.socket.send(&bytes)?;
        Ok(self.sequence)
    }

    fn receive(&mut self) -> io::Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
        let length = (&self.socket).read(&mut self.buffer)?;
        Ok(parse(&self.buffer[..length]))
    }
}

/// Notifications of the links and addresses of the machine.
pub(crate) struct Notifications {
    socket: AsyncSocket,
    buffer: Vec<u8>,
}

/// Result of a look at the notifications.
#[must_use]
pub(crate) enum Notified {
    /// These messages, in their order.
    Messages(Vec<RouteNetlinkMessage>),
    /// More than the kernel kept: only a dump shows what is so.
    Overrun,
    /// Nothing more waits.
    Nothing,
}

impl Notifications {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = open()?;
        make_room(&socket, NOTIFICATION_BUFFER)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Self { socket: AsyncSocket::new(socket)?, buffer: vec![0; LONGEST] })
    }

    /// Waits until there may be something.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        self.socket.ready().await
    }

    /// Receives without waiting.
    pub(crate) fn receive(&mut self) -> io::Result<Notified> {
        match self.socket.get().read(&mut self.buffer) {
            Ok(length) => {
                let messages = parse::<RouteNetlinkMessage>(&self.buffer[..length]).into_iter();
                let inner = messages.filter_map(|message| match message.payload {
                    NetlinkPayload::InnerMessage(inner) => Some(inner),
                    _ => None,
                });
                Ok(Notified::Messages(inner.collect()))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(Notified::Overrun),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Notified::Nothing),
            Err(error) => Err(error),
        }
    }
}

fn open() -> io::Result<Socket> {
    Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(Protocol::from(libc::NETLINK_ROUTE)))
}

/// A message to the kernel, with these additional flags.
pub(super) fn to_kernel<M>(content: impl Into<NetlinkPayload<M>>, flags: u16) -> NetlinkMessage<M> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    NetlinkMessage::new(header, content.into())
}

/// Adds a message to a datagram.
pub(super) fn append<M: NetlinkSerializable>(datagram: &mut Vec<u8>, mut message: NetlinkMessage<M>) {
    message.finalize();
    let start = datagram.len();
    datagram.resize(start + message.buffer_len().next_multiple_of(ALIGNMENT), 0);
    message.serialize(&mut datagram[start..]);
}

/// The messages of a datagram. One that cannot be read is left out: a link of a kind that nobody here has heard of must not hide the others.
pub(super) fn parse<M: NetlinkDeserializable>(mut bytes: &[u8]) -> Vec<NetlinkMessage<M>> {
    let mut messages = Vec::new();
    while let Some(length) = bytes.first_chunk().map(|length| u32::from_ne_bytes(*length) as usize) {
        let Some(message) = bytes.get(..length).filter(|_| length >= HEADER) else { break };
        match NetlinkMessage::deserialize(message) {
            Ok(message) => messages.push(message),
            Err(error) => debug!(%error, "a message of the kernel cannot be read"),
        }
        bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    messages
}
