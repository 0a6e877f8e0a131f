//! The sockets of NETLINK_ROUTE: requests with their replies, and notifications of links and addresses.
//!
//! The kernel handles a request within the system call that sends it (`netlink_rcv_skb` in net/netlink/af_netlink.c), so its reply
//! already waits when that returns: nothing here waits for anything but the kernel's own lock.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable,
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
/// How often a dump is begun anew where something changes while it is read.
const DUMP_ATTEMPTS: usize = 20;

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

    /// Everything of a kind: `request` is an `RTM_GET...` message. The kernel goes through its list by places, so a change meanwhile may
    /// hide something else. It marks such a list, and then all is read once more.
    pub(crate) fn dump(&mut self, request: &RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut items = Vec::new();
        for _ in 0..DUMP_ATTEMPTS {
            let consistent;
            (items, consistent) = self.dump_once(request.clone())?;
            if consistent {
                break;
            }
        }
        // What changes faster than it can be read is still worth more than nothing.
        Ok(items)
    }

    /// Everything of a kind, and whether nothing has changed while it was read.
    fn dump_once(&mut self, request: RouteNetlinkMessage) -> io::Result<(Vec<RouteNetlinkMessage>, bool)> {
        let sequence = self.send(vec![request], NLM_F_DUMP)?;
        let (mut items, mut consistent) = (Vec::new(), true);
        loop {
            for reply in self.receive()? {
                if reply.header.sequence_number != sequence {
                    continue;
                }
                consistent &= reply.header.flags & NLM_F_DUMP_INTR == 0;
                match reply.payload {
                    NetlinkPayload::InnerMessage(item) => items.push(item),
                    NetlinkPayload::Error(verdict) if verdict.code.is_some() => return Err(verdict.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok((items, consistent)),
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
        #[cfg(test)]
        slowness::wait(requests.len());
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

/// Lets each change wait, as it does for the kernel's lock where Pods come and go.
#[cfg(test)]
pub(crate) mod slowness {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    static MILLISECONDS: AtomicU64 = AtomicU64::new(0);
    /// One test at a time sets it.
    static SET: Mutex<()> = Mutex::new(());

    /// Has each change of this process, and each survey, take so many milliseconds from now on. To be held until the end of the test.
    pub(crate) fn set(milliseconds: u64) -> MutexGuard<'static, ()> {
        let guard = SET.lock().unwrap_or_else(PoisonError::into_inner);
        MILLISECONDS.store(milliseconds, Ordering::Relaxed);
        guard
    }

    pub(in crate::layer2) fn wait(changes: usize) {
        let each = Duration::from_millis(MILLISECONDS.load(Ordering::Relaxed));
        sheave_test_support::patience::let_pass(each * changes as u32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Write as _;
    use std::net::IpAddr;

    use netlink_packet_core::{DoneMessage, NLM_F_MULTIPART};
    use netlink_packet_route::address::AddressMessage;

    use super::super::kernel_address::identity;
    use super::*;

    /// A kernel that answers each dump with the next of these: addresses, and the flags of the end.
    fn kernel(mut dumps: VecDeque<(Vec<IpAddr>, u16)>) -> Requests {
        let (socket, mut kernel) = Socket::pair(Domain::UNIX, Type::DGRAM, None).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(length) = kernel.read(&mut buffer) {
                let asked = parse::<RouteNetlinkMessage>(&buffer[..length]).remove(0);
                let (ips, flags) = dumps.pop_front().expect("no more dumps");
                let mut replies: Vec<NetlinkMessage<RouteNetlinkMessage>> = ips
                    .iter()
                    .map(|&ip| to_kernel(RouteNetlinkMessage::NewAddress(identity(ip, 1)), 0))
                    .collect();
                let mut end = to_kernel(NetlinkPayload::Done(DoneMessage::default()), 0);
                end.header.flags = NLM_F_MULTIPART | flags;
                replies.push(end);
                let mut datagram = Vec::new();
                for mut reply in replies {
                    reply.header.sequence_number = asked.header.sequence_number;
                    append(&mut datagram, reply);
                }
                kernel.write_all(&datagram).unwrap();
            }
        });
        socket.set_read_timeout(Some(LOST_REPLY)).unwrap();
        Requests { socket, sequence: 0, buffer: vec![0; LONGEST] }
    }

    fn ips(last: &[u8]) -> Vec<IpAddr> {
        last.iter().map(|&number| IpAddr::from([192, 0, 2, number])).collect()
    }

    fn dumped(requests: &mut Requests) -> Vec<IpAddr> {
        let items = requests.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default())).unwrap();
        let ip = |item: &RouteNetlinkMessage| match item {
            RouteNetlinkMessage::NewAddress(message) => message.attributes.iter().find_map(|one| match one {
                netlink_packet_route::address::AddressAttribute::Local(ip) => Some(*ip),
                _ => None,
            }),
            _ => None,
        };
        items.iter().filter_map(ip).collect()
    }

    #[test]
    fn a_dump_in_which_something_changed_is_read_once_more() {
        let mut requests =
            kernel([(ips(&[1, 3]), NLM_F_DUMP_INTR), (ips(&[1, 2, 3]), 0), (ips(&[4]), 0)].into());
        assert_eq!(dumped(&mut requests), ips(&[1, 2, 3]));
        assert_eq!(dumped(&mut requests), ips(&[4]));
    }

    #[test]
    fn what_changes_all_the_time_is_taken_as_it_is() {
        let mut requests = kernel(vec![(ips(&[7]), NLM_F_DUMP_INTR); DUMP_ATTEMPTS].into());
        assert_eq!(dumped(&mut requests), ips(&[7]));
    }
}
