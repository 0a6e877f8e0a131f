//! Path MTU: which sizes of packets reach a peer and come back, by ICMP echo that no router may fragment.
//!
//! Packets are written with their IP header, and what the kernel has learned of the path does not count (IP_PMTUDISC_PROBE), so each
//! leaves whole (`raw_send_hdrinc` in net/ipv4/raw.c, `rawv6_send_hdrinc` in net/ipv6/raw.c). As after any packet, the kernel keeps
//! for some minutes what a router then reports.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::socket::{SockaddrIn6, SockaddrStorage, recvfrom};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use sheave_announce::frame::{icmpv6_checksum, internet_checksum};
use socket2::{Domain, Protocol, Socket, Type};

use crate::unseen::{Errno, Missing, Right, Unseen};

const WHAT: &str = "the path MTU";
/// The size of the small packet: the least IPv4 MTU (RFC 791), which every path carries.
const SMALL: u16 = 68;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const ICMP_HEADER: usize = 8;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// "Don't fragment" (RFC 791, section 3.1).
const DONT_FRAGMENT: u16 = 0x4000;
const TTL: u8 = 64;
/// How often each size is sent: a packet may be lost.
const ATTEMPTS: u32 = 3;

/// Results of both sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Result of a packet of 68 bytes (IPv6: 80).
    pub small: Echo,
    /// Result of a packet of the given size.
    pub large: Echo,
}

impl PathMtu {
    /// Whether the path loses large packets without a report: a small one is answered, and a large one is not.
    pub fn is_black_hole(&self) -> bool {
        matches!((&self.small, &self.large), (Echo::Answered { .. }, Echo::Silent))
    }
}

/// Result of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Echo {
    /// The peer answered.
    Answered {
        /// Time from the packet to its answer.
        after: Duration,
    },
    /// Nobody answered. Many machines and firewalls drop echo requests, so a silent small packet says nothing.
    Silent,
    /// A router does not forward such a size.
    TooBig {
        /// The largest that it forwards; 0 if it does not say.
        mtu: u32,
        /// The router.
        by: IpAddr,
    },
    /// The packet is larger than the MTU of this machine's own link.
    LargerThanLink,
    /// A router, the peer or this machine's kernel reported that the peer cannot be reached.
    Unreachable {
        /// Reporter; `None`: the kernel.
        by: Option<IpAddr>,
        /// The kernel's error, if it was the kernel.
        error: Option<Errno>,
    },
}

/// Sends a small echo request and one of `size` bytes (the whole IP packet, usually the MTU of the link) and waits for both.
///
/// # Errors
/// Without CAP_NET_RAW, and for a link-local peer, whose link is not known.
pub fn probe(peer: IpAddr, from: Option<IpAddr>, size: u16, within: Duration) -> Result<PathMtu, Unseen> {
    let unseen = |error: &io::Error| Unseen::from_io(WHAT, error, Right::NetRaw, "raw sockets");
    let source = match from {
        Some(from) => from,
        None => match source_towards(peer) {
            Ok(source) => source,
            Err(error) => {
                let unreachable = Echo::Unreachable { by: None, error: Some(Errno::of(&error)) };
                return Ok(PathMtu { small: unreachable.clone(), large: unreachable });
            }
        },
    };
    if source.is_ipv4() != peer.is_ipv4() {
        return Err(Unseen::new(WHAT, Missing::Link(format!("{source} and {peer} are of two families"))));
    }
    let socket = open(peer).map_err(|error| unseen(&error))?;
    let mut exchange = Exchange::new(source, peer, size);
    exchange.run(&socket, within).map_err(|error| unseen(&error))?;
    let [small, large] = exchange.results.map(|result| result.unwrap_or(Echo::Silent));
    Ok(PathMtu { small, large })
}

fn open(peer: IpAddr) -> io::Result<Socket> {
    match peer {
        IpAddr::V4(_) => {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
            socket.set_header_included_v4(true)?;
            set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
            Ok(socket)
        }
        IpAddr::V6(_) => {
            let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
            socket.set_header_included_v6(true)?;
            set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
            Ok(socket)
        }
    }
}

/// The address from which the kernel sends to a peer.
fn source_towards(peer: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((peer, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Both packets and what was heard of them.
struct Exchange {
    peer: IpAddr,
    identifier: u16,
    /// The packets: the small one has sequence number 0, the large one 1.
    packets: [Vec<u8>; 2],
    sent: [Option<Instant>; 2],
    results: [Option<Echo>; 2],
}

impl Exchange {
    fn new(source: IpAddr, peer: IpAddr, size: u16) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let identifier = (std::process::id() as u16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let small = if peer.is_ipv4() { SMALL } else { SMALL + 12 };
        let packets = [(small, 0), (size.max(small), 1)]
            .map(|(size, sequence)| packet(source, peer, identifier, sequence, usize::from(size)));
        Self { peer, identifier, packets, sent: [None; 2], results: [None, None] }
    }

    fn run(&mut self, socket: &Socket, within: Duration) -> io::Result<()> {
        let begin = Instant::now();
        let mut attempts = 0;
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while begin.elapsed() < within && self.results.iter().any(Option::is_none) {
            if begin.elapsed() >= within / ATTEMPTS * attempts {
                self.send(socket)?;
                attempts += 1;
            }
            let until = if attempts < ATTEMPTS { within / ATTEMPTS * attempts } else { within };
            let left = until.saturating_sub(begin.elapsed()).max(Duration::from_millis(1));
            socket.set_read_timeout(Some(left))?;
            match recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut buffer) {
                Ok((length, from)) => self.read(&buffer[..length], from),
                // The latter are reports that the kernel attributes to the socket (`raw_err` in net/ipv4/raw.c), and that can be read as well.
                Err(
                    NixErrno::EAGAIN
                    | NixErrno::EINTR
                    | NixErrno::EHOSTUNREACH
                    | NixErrno::ENETUNREACH
                    | NixErrno::EMSGSIZE,
                ) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Sends what has no result yet.
    fn send(&mut self, socket: &Socket) -> io::Result<()> {
        let to = SocketAddr::new(self.peer, 0).into();
        for (place, packet) in self.packets.iter().enumerate() {
            if self.results[place].is_some() {
                continue;
            }
            self.sent[place] = Some(Instant::now());
            let Err(error) = socket.send_to(packet, &to) else { continue };
            self.results[place] = match error.raw_os_error() {
                Some(libc::EMSGSIZE) => Some(Echo::LargerThanLink),
                // A full queue, which may be empty at the next attempt.
                Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR) => None,
                Some(code) => Some(Echo::Unreachable { by: None, error: Some(Errno(code)) }),
                None => return Err(error),
            };
        }
        Ok(())
    }

    /// Reads a message of ICMP: an answer, or a report about one of the packets.
    fn read(&mut self, bytes: &[u8], from: Option<SockaddrStorage>) {
        let heard = match self.peer {
            IpAddr::V4(_) => self.read_icmp(bytes),
            IpAddr::V6(_) => {
                let from = from.and_then(|from| from.as_sockaddr_in6().map(SockaddrIn6::ip));
                from.and_then(|from| self.read_icmpv6(bytes, from))
            }
        };
        let Some((place, result)) = heard else { return };
        if let Some(slot @ None) = self.results.get_mut(usize::from(place)) {
            *slot = Some(result);
        }
    }

    /// The place of a packet that this request or answer belongs to.
    fn place(&self, message: &[u8], kind: u8) -> Option<u16> {
        let header = message.first_chunk::<ICMP_HEADER>()?;
        let (identifier, sequence) =
            (u16::from_be_bytes([header[4], header[5]]), u16::from_be_bytes([header[6], header[7]]));
        (header[0] == kind && identifier == self.identifier && sequence < 2).then_some(sequence)
    }

    fn answered(&self, place: u16) -> Echo {
        let sent = self.sent.get(usize::from(place)).copied().flatten();
        Echo::Answered { after: sent.map_or(Duration::ZERO, |sent| sent.elapsed()) }
    }

    /// RFC 792; a report quotes the packet.
    fn read_icmp(&self, packet: &[u8]) -> Option<(u16, Echo)> {
        let message = skip_ipv4(packet)?;
        let source = Ipv4Addr::from(*packet.get(12..)?.first_chunk::<4>()?);
        let header = message.first_chunk::<ICMP_HEADER>()?;
        let (kind, code) = (header[0], header[1]);
        if kind == 0 {
            let place = self.place(message, 0).filter(|_| IpAddr::V4(source) == self.peer)?;
            return Some((place, self.answered(place)));
        }
        let quoted = &message[ICMP_HEADER..];
        let destination = Ipv4Addr::from(*quoted.get(16..)?.first_chunk::<4>()?);
        let place = self.place(skip_ipv4(quoted)?, 8).filter(|_| IpAddr::V4(destination) == self.peer)?;
        let mtu = u32::from(u16::from_be_bytes([header[6], header[7]]));
        match (kind, code) {
            (3, 4) => Some((place, Echo::TooBig { mtu, by: source.into() })),
            // Unreachable, and time exceeded: a loop of routes.
            (3 | 11, _) => Some((place, Echo::Unreachable { by: Some(source.into()), error: None })),
            _ => None,
        }
    }

    /// RFC 4443. The kernel gives raw sockets no IPv6 header.
    fn read_icmpv6(&self, message: &[u8], source: Ipv6Addr) -> Option<(u16, Echo)> {
        let header = message.first_chunk::<ICMP_HEADER>()?;
        if header[0] == 129 {
            let place = self.place(message, 129).filter(|_| IpAddr::V6(source) == self.peer)?;
            return Some((place, self.answered(place)));
        }
        let quoted = &message[ICMP_HEADER..];
        let destination = Ipv6Addr::from(*quoted.get(24..)?.first_chunk::<16>()?);
        let request = quoted.get(IPV6_HEADER..).filter(|_| quoted[6] == ICMPV6)?;
        let place = self.place(request, 128).filter(|_| IpAddr::V6(destination) == self.peer)?;
        let mtu = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        match header[0] {
            2 => Some((place, Echo::TooBig { mtu, by: source.into() })),
            1 | 3 => Some((place, Echo::Unreachable { by: Some(source.into()), error: None })),
            _ => None,
        }
    }
}

/// Body of an IPv4 packet of ICMP.
fn skip_ipv4(packet: &[u8]) -> Option<&[u8]> {
    let length = usize::from(packet.first()? & 0xf) * 4;
    (*packet.get(9)? == ICMP && length >= IPV4_HEADER).then(|| packet.get(length..))?
}

/// An echo request of `size` bytes with its IP header; of an odd size, one byte less, for the checksum.
fn packet(source: IpAddr, destination: IpAddr, identifier: u16, sequence: u16, size: usize) -> Vec<u8> {
    let head = |kind: u8| [&[kind, 0, 0, 0][..], &identifier.to_be_bytes(), &sequence.to_be_bytes()].concat();
    match (source, destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut message = head(128);
            message.resize((size - IPV6_HEADER) & !1, 0);
            let sum = icmpv6_checksum(source, destination, &message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let length = (message.len() as u16).to_be_bytes();
            let header =
                [&[0x60, 0, 0, 0][..], &length, &[ICMPV6, TTL], &source.octets(), &destination.octets()];
            [header.concat(), message].concat()
        }
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut message = head(8);
            message.resize((size - IPV4_HEADER) & !1, 0);
            let sum = internet_checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let length = ((message.len() + IPV4_HEADER) as u16).to_be_bytes();
            let fragment = DONT_FRAGMENT.to_be_bytes();
            // The kernel writes the identification and the checksum (`raw_send_hdrinc`).
            let header = [
                &[0x45, 0][..],
                &length,
                &[0, 0],
                &fragment,
                &[TTL, ICMP, 0, 0],
                &source.octets(),
                &destination.octets(),
            ];
            [header.concat(), message].concat()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;

    use super::*;

    proptest::proptest! {
        #[test]
        fn any_bytes_can_be_read(mut bytes in vec(any::<u8>(), 0..120), kind in 0_u8..12) {
            let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
            Exchange::new(v4.into(), v4.into(), 1500).read_icmp(&bytes);
            let exchange = Exchange::new(v6.into(), v6.into(), 1500);
            exchange.read_icmpv6(&bytes, v6);
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            exchange.read_icmpv6(&bytes, v6);
        }

        #[test]
        fn a_packet_has_the_size_that_is_asked_for(size in 80_u16..9000) {
            for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                let packet = packet(ip, ip, 1, 1, usize::from(size));
                assert_eq!(packet.len(), usize::from(size & !1));
            }
        }
    }
}
