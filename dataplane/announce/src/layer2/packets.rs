//! The sockets that frames leave by, and by which what others say about announced addresses arrives.
//!
//! One packet socket sends everything, and receives ARP of all interfaces. Frames of neighbour discovery are sent by it too: a raw
//! socket would choose a source address of its own, and cannot send from the unspecified one. It cannot receive them without
//! a look at every IPv6 packet of the machine; a raw ICMPv6 socket sees fewer.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::cmsg_space;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, LinkAddr, MsgFlags, SockaddrIn6, recvfrom, recvmsg, sendto, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::filter::{Watched, arp_filter, neighbour_filter};
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
        if !self.destinations.contains_key(&link) {
            self.destinations = link_addresses()?;
        }
        let destination = self.destinations.get(&link).ok_or(io::ErrorKind::NotFound)?;
        sendto(self.arp.get().as_raw_fd(), frame, destination, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }

    /// Forgets where links are, because some have changed.
    pub(super) fn links_changed(&mut self) {
        self.destinations.clear();
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
/// Those of socket(2), for example without CAP_NET_RAW.
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

/// The address of each link. Only the index counts where a whole frame is sent, but it cannot be made from the index without `unsafe`.
fn link_addresses() -> io::Result<BTreeMap<u32, LinkAddr>> {
    let links = getifaddrs()?.filter_map(|found| found.address?.as_link_addr().copied());
    Ok(links.filter_map(|address| Some((u32::try_from(address.ifindex()).ok()?, address))).collect())
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

/// What is watched of a family: the part for IPv4 first.
pub(super) fn family(ip: IpAddr) -> usize {
    usize::from(ip.is_ipv6())
}
