//! The sockets that frames leave by, and by which what others say about announced addresses arrives.
//!
//! One packet socket sends everything, and receives ARP of all interfaces. Frames of neighbour discovery are sent by it too: a raw
//! socket would choose a source address of its own, and cannot send from the unspecified one. It cannot receive them without
//! a look at every IPv6 packet of the machine; a raw ICMPv6 socket sees fewer.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    ControlMessageOwned, LinkAddr, MsgFlags, SockaddrIn6, recvfrom, recvmsg, sendto, setsockopt, sockopt,
};
use nix::{cmsg_space, libc};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::frame::{Statement, read_arp, read_neighbour_discovery};
use crate::async_socket::{AsyncSocket, make_room};

/// Nothing that is read here is longer.
const LONGEST: usize = 512;
/// How much is received at a time, so that a flood leaves time for everything else.
pub(crate) const BUDGET: usize = 256;
/// The receive buffers, in bytes: thousands of neighbours may ask in one busy moment.
const ROOM: usize = 4 << 20;

/// A statement about an address, and where it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) link: u32,
    pub(super) statement: Statement,
}

/// The sockets.
pub(super) struct Packets {
    arp: AsyncSocket,
    /// None where the machine has no IPv6.
    icmpv6: Option<AsyncSocket>,
    /// Where frames of each link are sent to.
    destinations: BTreeMap<u32, LinkAddr>,
    watched: [Watched; 2],
}

impl Packets {
    pub(super) fn open() -> io::Result<Self> {
        let arp = open_arp(&Watched::default())?;
        // A dropped question stays unanswered, since the kernel does not answer.
        make_room(&arp, ROOM)?;
        let icmpv6 = match open_icmpv6() {
            Ok(socket) => Some(AsyncSocket::new(socket)?),
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(error),
        };
        let watched = [Watched::default(); 2];
        Ok(Self { arp: AsyncSocket::new(arp)?, icmpv6, destinations: BTreeMap::new(), watched })
    }

    /// Receives what is said about these addresses, and no more, from now on.
    pub(super) fn watch(&mut self, watched: [Watched; 2]) -> io::Result<()> {
        let [v4, v6] = watched;
        if v4 != self.watched[0] {
            self.arp.get().attach_filter(&arp_filter(&v4))?;
        }
        if let Some(socket) = self.icmpv6.as_ref().filter(|_| v6 != self.watched[1]) {
            socket.get().attach_filter(&neighbour_filter(&v6))?;
        }
        self.watched = watched;
        Ok(())
    }

    /// Sends a frame out of a link.
    pub(super) fn send(&mut self, link: u32, frame: &[u8]) -> io::Result<()> {
        let destination = self.destinations.get(&link).ok_or(io::ErrorKind::NotFound)?;
        sendto(self.arp.get().as_raw_fd(), frame, destination, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }

    /// Sets where frames are sent to; a link keeps its place for as long as it has its number.
    pub(super) fn set_destinations(&mut self, destinations: BTreeMap<u32, LinkAddr>) {
        self.destinations = destinations;
    }

    /// Where frames of a link are sent to, if that is known yet.
    pub(super) fn destination(&self, link: u32) -> Option<LinkAddr> {
        self.destinations.get(&link).copied()
    }

    /// Waits until there may be something to receive.
    pub(super) async fn ready(&self) -> io::Result<()> {
        match &self.icmpv6 {
            Some(icmpv6) => {
                tokio::select! { ready = self.arp.ready() => ready, ready = icmpv6.ready() => ready }
            }
            None => self.arp.ready().await,
        }
    }

    /// Receives what waits, up to a budget; false if more may wait.
    pub(super) fn receive(&mut self, received: &mut Vec<Received>) -> bool {
        let mut buffer = [0; LONGEST];
        for _ in 0..BUDGET {
            let arp = receive_arp(self.arp.get(), &mut buffer, received);
            let icmpv6 = self.icmpv6.as_ref();
            let icmpv6 = icmpv6.is_some_and(|socket| receive_icmpv6(socket.get(), &mut buffer, received));
            if !arp && !icmpv6 {
                return true;
            }
        }
        false
    }
}

/// A socket for ARP that receives what is said about these addresses, on all interfaces, and sends any frame.
///
/// # Errors
/// Errors of socket(2), for example without CAP_NET_RAW.
pub(crate) fn open_arp(watched: &Watched) -> io::Result<Socket> {
    let protocol = i32::from((libc::ETH_P_ARP as u16).to_be());
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(protocol)))?;
    socket.attach_filter(&arp_filter(watched))?;
    Ok(socket)
}

fn open_icmpv6() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.attach_filter(&neighbour_filter(&Watched::default()))?;
    make_room(&socket, ROOM)?;
    setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    Ok(socket)
}

/// False if nothing waits. Any error counts as that: those of a socket that cannot receive are of single packets or links.
fn receive_arp(socket: &Socket, buffer: &mut [u8], received: &mut Vec<Received>) -> bool {
    let Ok((length, from)) = recvfrom::<LinkAddr>(socket.as_raw_fd(), buffer) else { return false };
    let Some(from) = from else { return true };
    // A frame to somebody else, or of a VLAN that this machine is not in.
    if from.pkttype() == libc::PACKET_OTHERHOST {
        return true;
    }
    let Ok(link) = u32::try_from(from.ifindex()) else { return true };
    let statements = read_arp(&buffer[..length]).into_iter().flatten();
    received.extend(statements.map(|statement| Received { link, statement }));
    true
}

fn receive_icmpv6(socket: &Socket, buffer: &mut [u8], received: &mut Vec<Received>) -> bool {
    let mut space = cmsg_space!(libc::in6_pktinfo);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty());
    let Ok(message) = message else { return false };
    let (length, source) = (message.bytes, message.address.map(|from| from.ip()));
    let link = message.cmsgs().ok().and_then(|mut messages| {
        messages.find_map(|message| match message {
            ControlMessageOwned::Ipv6PacketInfo(info) => Some(info.ipi6_ifindex),
            _ => None,
        })
    });
    if let (Some(link), Some(source)) = (link, source)
        && let Some(statement) = read_neighbour_discovery(source, &buffer[..length])
    {
        received.push(Received { link, statement });
    }
    true
}

/// Index of a family in pairs: IPv4 comes first.
pub(super) fn family(ip: IpAddr) -> usize {
    usize::from(ip.is_ipv6())
}

/// Addresses that a filter lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// The lowest and the highest last 32 bits of the addresses.
    range: Option<(u32, u32)>,
}

impl Watched {
    /// Adds an address.
    pub(crate) fn add(&mut self, ip: IpAddr) {
        let last = last_word(ip);
        let (low, high) = self.range.unwrap_or((last, last));
        self.range = Some((low.min(last), high.max(last)));
    }
}

fn last_word(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => u128::from(ip) as u32,
    }
}

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Where the IPv6 header is, for a filter that sees ICMPv6 alone (SKF_NET_OFF in linux/filter.h).
const NETWORK_HEADER: u32 = -0x10_0000_i32 as u32;
const PASS: SockFilter = SockFilter::new(RETURN, 0, 0, u32::MAX);
const DROP: SockFilter = SockFilter::new(RETURN, 0, 0, 0);

/// For frames of ARP: a sender or a target in the range.
pub(super) fn arp_filter(watched: &Watched) -> Vec<SockFilter> {
    let Some((low, high)) = watched.range else { return vec![DROP] };
    let mut filter = vec![
        // The protocol is IPv4.
        SockFilter::new(LOAD_HALF, 0, 0, 16),
        SockFilter::new(EQUAL, 1, 0, 0x0800),
        DROP,
    ];
    // The sender and the target.
    for offset in [28, 38] {
        filter.push(SockFilter::new(LOAD_WORD, 0, 0, offset));
        filter.extend(in_range(low, high));
    }
    filter.push(DROP);
    filter
}

/// For ICMPv6: advertisements and solicitations of an address in the range, that no router has passed on.
pub(super) fn neighbour_filter(watched: &Watched) -> Vec<SockFilter> {
    let Some((low, high)) = watched.range else { return vec![DROP] };
    let mut filter = vec![
        SockFilter::new(LOAD_BYTE, 0, 0, NETWORK_HEADER.wrapping_add(7)),
        SockFilter::new(EQUAL, 1, 0, 255),
        DROP,
        SockFilter::new(LOAD_BYTE, 0, 0, 0),
        SockFilter::new(EQUAL, 2, 0, 136),
        SockFilter::new(EQUAL, 1, 0, 135),
        DROP,
        SockFilter::new(LOAD_WORD, 0, 0, 20),
    ];
    filter.extend(in_range(low, high));
    filter.push(DROP);
    filter
}

/// Passes what is loaded if it is in the range, or goes on after it.
fn in_range(low: u32, high: u32) -> [SockFilter; 3] {
    [SockFilter::new(AT_LEAST, 0, 2, low), SockFilter::new(GREATER, 1, 0, high), PASS]
}
