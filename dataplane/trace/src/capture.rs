//! Capture of packets of a few conversations, on all interfaces, as a pcap file.
//!
//! A filter in the kernel lets packets of the addresses through; the packets of the conversations are picked here. The file has the
//! classic form, with the link type LINUX_SLL2, so that packets of all interfaces fit into one.

use std::io::{self, IoSliceMut, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::{cmsg_space, sys::socket::RecvMsg};
use sheave_model::Protocol as IpProtocol;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::unseen::{Right, Unseen};

const WHAT: &str = "packets";
/// How often a capture looks whether it is to stop.
const TICK: Duration = Duration::from_millis(100);
/// LINKTYPE_LINUX_SLL2 (<https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL2.html>) and the length of its header.
const LINK_TYPE: u32 = 276;
const COOKED_HEADER: usize = 20;
/// The classic form of pcap, with microseconds.
const MAGIC: u32 = 0xa1b2_c3d4;
const RECORD_HEADER: usize = 16;
/// How many addresses the kernel's filter compares; beyond, it lets all packets through.
const FILTERED: usize = 50;

/// The packets of one conversation, in both directions, and the ICMP reports about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The protocol.
    pub protocol: IpProtocol,
    /// The frontend or endpoint: its port is part of every packet.
    pub server: SocketAddr,
    /// The other side; `None`: any.
    pub peer: Option<IpAddr>,
    /// The other side's port; `None`: any.
    pub peer_port: Option<u16>,
}

/// Bounds of a capture. The first that is reached ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Time.
    pub time: Duration,
    /// Number of packets.
    pub packets: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Bytes of each packet that are kept, from the IP header on. 96 has all headers.
    pub snap_length: usize,
    /// Whether bytes behind the TCP or UDP header may be among them.
    pub payload: bool,
    /// Memory of the kernel for packets that wait (SO_RCVBUF). The system's limit, `net.core.rmem_max`, applies.
    pub receive_buffer: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(10),
            packets: 10_000,
            bytes: 4 << 20,
            snap_length: 96,
            payload: true,
            receive_buffer: 1 << 20,
        }
    }
}

/// Result of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Packets in the file.
    pub packets: u64,
    /// Size of the file.
    pub bytes: u64,
    /// End of the capture.
    pub ended_by: EndedBy,
}

/// Reason for the end of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The time was over.
    Time,
    /// The number of packets was reached.
    Packets,
    /// The next packet would have made the file too large.
    Bytes,
    /// The caller stopped it.
    Stopped,
}

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Packets cannot be seen.
    #[error(transparent)]
    Unseen(#[from] Unseen),
    /// The file cannot be written.
    #[error("cannot write the capture: {0}")]
    Write(#[source] io::Error),
}

/// Captures the packets of these conversations into a pcap file, until a bound is reached or `stop` is set. Packets before this call are
/// not seen.
///
/// # Errors
/// Without CAP_NET_RAW or AF_PACKET, or if the file cannot be written.
pub fn capture(
    conversations: &[Conversation],
    bounds: &Bounds,
    stop: &AtomicBool,
    file: &mut impl Write,
) -> Result<Captured, CaptureError> {
    Listener::open(conversations, bounds)?.run(conversations, bounds, stop, file)
}

/// A capture that has begun: packets wait from now on.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    begun: Instant,
}

impl Listener {
    /// Begins to receive packets.
    ///
    /// # Errors
    /// Without CAP_NET_RAW or AF_PACKET.
    pub fn open(conversations: &[Conversation], bounds: &Bounds) -> Result<Self, Unseen> {
        let unseen = |error: &io::Error| Unseen::from_io(WHAT, error, Right::NetRaw, "AF_PACKET");
        let open = || -> io::Result<Socket> {
            let protocol = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
            let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
            socket.attach_filter(&filter(conversations))?;
            socket.set_recv_buffer_size(bounds.receive_buffer)?;
            socket.set_read_timeout(Some(TICK))?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            Ok(socket)
        };
        Ok(Self { socket: open().map_err(|error| unseen(&error))?, begun: Instant::now() })
    }

    /// Writes packets until a bound is reached or `stop` is set. Those that wait then are still written, for a tenth of a second at most.
    ///
    /// # Errors
    /// If packets cannot be received, or the file cannot be written.
    pub fn run(
        self,
        conversations: &[Conversation],
        bounds: &Bounds,
        stop: &AtomicBool,
        file: &mut impl Write,
    ) -> Result<Captured, CaptureError> {
        let header = file_header(bounds.snap_length);
        file.write_all(&header).map_err(CaptureError::Write)?;
        let mut captured = Captured { packets: 0, bytes: header.len() as u64, ended_by: EndedBy::Packets };
        // The whole packet is read, since ICMP quotes at any place; only a part of it is written.
        let mut buffer = vec![0; usize::from(u16::MAX)];
        let mut ending: Option<(EndedBy, Instant)> = None;
        while captured.packets < bounds.packets {
            if ending.is_none() {
                let stopped = stop.load(Ordering::Relaxed).then_some(EndedBy::Stopped);
                let over = (self.begun.elapsed() >= bounds.time).then_some(EndedBy::Time);
                ending = over.or(stopped).map(|ended_by| (ended_by, Instant::now()));
            }
            let received = self.receive(&mut buffer, ending.is_some())?;
            if let Some((ended_by, since)) = ending
                && (received.is_none() || since.elapsed() > TICK)
            {
                captured.ended_by = ended_by;
                break;
            }
            let Some(packet) = received else { continue };
            let kept = packet.length.min(buffer.len());
            if !conversations.iter().any(|conversation| conversation.has(&buffer[..kept])) {
                continue;
            }
            let wanted = if bounds.payload { kept } else { header_length(&buffer[..kept]) };
            let kept = &buffer[..wanted.min(kept).min(bounds.snap_length)];
            let size = (RECORD_HEADER + COOKED_HEADER + kept.len()) as u64;
            if captured.bytes + size > bounds.bytes {
                captured.ended_by = EndedBy::Bytes;
                break;
            }
            file.write_all(&packet.record(kept)).map_err(CaptureError::Write)?;
            captured.packets += 1;
            captured.bytes += size;
        }
        file.flush().map_err(CaptureError::Write)?;
        Ok(captured)
    }

    /// `None`: nothing has come for a while, or, when the capture ends, nothing waits.
    fn receive(&self, buffer: &mut [u8], ends: bool) -> Result<Option<Packet>, Unseen> {
        let mut space = cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(buffer)];
        // With this flag, the length is that of the packet and not of what fits.
        let now = if ends { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
        let flags = MsgFlags::MSG_TRUNC | now;
        match recvmsg::<LinkAddr>(self.socket.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Ok(message) => Ok(Packet::of(&message)),
            // The latter: an interface went down.
            Err(NixErrno::EAGAIN | NixErrno::EINTR | NixErrno::ENETDOWN) => Ok(None),
            Err(errno) => Err(Unseen::from_io(WHAT, &errno.into(), Right::NetRaw, "AF_PACKET")),
        }
    }
}

/// Metadata of a packet.
struct Packet {
    from: LinkAddr,
    time: Duration,
    length: usize,
}

impl Packet {
    fn of(message: &RecvMsg<'_, '_, LinkAddr>) -> Option<Self> {
        let time = message.cmsgs().ok()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        Some(Self { from: message.address?, time: time.unwrap_or_default(), length: message.bytes })
    }

    /// The record of a file, with the kept bytes of the packet.
    fn record(&self, kept: &[u8]) -> Vec<u8> {
        let mut record = Vec::with_capacity(RECORD_HEADER + COOKED_HEADER + kept.len());
        let numbers = [
            self.time.as_secs() as u32,
            self.time.subsec_micros(),
            (COOKED_HEADER + kept.len()) as u32,
            (COOKED_HEADER + self.length) as u32,
        ];
        record.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        // The protocol is in network order already.
        record.extend(self.from.protocol().to_ne_bytes());
        record.extend([0, 0]);
        record.extend((self.from.ifindex() as u32).to_be_bytes());
        record.extend(self.from.hatype().to_be_bytes());
        record.push(self.from.pkttype());
        record.push((self.from.halen() as u8).min(8));
        let mac = self.from.addr().unwrap_or_default();
        record.extend(mac);
        record.extend([0, 0]);
        record.extend(kept);
        record
    }
}

/// In the machine's order, which readers recognise by the magic number.
fn file_header(snap_length: usize) -> Vec<u8> {
    let mut header = MAGIC.to_ne_bytes().to_vec();
    header.extend(2_u16.to_ne_bytes());
    header.extend(4_u16.to_ne_bytes());
    let limit = (COOKED_HEADER + snap_length) as u32;
    header.extend([0, 0, limit, LINK_TYPE].iter().flat_map(|number| number.to_ne_bytes()));
    header
}

impl Conversation {
    /// Whether an IP packet is part of it, or an ICMP report about it.
    fn has(&self, packet: &[u8]) -> bool {
        let Some(headers) = Headers::read(packet) else { return false };
        let number = match self.protocol {
            IpProtocol::Tcp => libc::IPPROTO_TCP,
            IpProtocol::Udp => libc::IPPROTO_UDP,
        };
        if i32::from(headers.protocol) == number {
            return self.matches(&headers);
        }
        let quoted = match i32::from(headers.protocol) {
            // Unreachable, time exceeded and parameter problem (RFC 792).
            libc::IPPROTO_ICMP if matches!(headers.body.first(), Some(3 | 11 | 12)) => headers.body.get(8..),
            // The errors of RFC 4443.
            libc::IPPROTO_ICMPV6 if headers.body.first().is_some_and(|kind| *kind < 128) => {
                headers.body.get(8..)
            }
            _ => None,
        };
        let quoted = quoted.and_then(Headers::read);
        quoted.is_some_and(|quoted| i32::from(quoted.protocol) == number && self.matches(&quoted))
    }

    fn matches(&self, headers: &Headers<'_>) -> bool {
        let is = |server: IpAddr, server_port: Option<u16>, peer: IpAddr, peer_port: Option<u16>| {
            // A fragment after the first has no ports.
            let ports = server_port.is_none_or(|port| port == self.server.port())
                && self.peer_port.is_none_or(|port| peer_port.is_none_or(|found| found == port));
            server == self.server.ip() && self.peer.is_none_or(|ip| ip == peer) && ports
        };
        let [source, destination] = headers.ends;
        let [source_port, destination_port] = headers.ports();
        is(source, source_port, destination, destination_port)
            || is(destination, destination_port, source, source_port)
    }
}

/// Length of what comes before the bytes that the two sides send each other: the IP header with its extensions, and the one behind it. An
/// ICMP report has those of the packet that it quotes as well.
fn header_length(packet: &[u8]) -> usize {
    let Some(headers) = Headers::read(packet) else { return 0 };
    let before = packet.len() - headers.body.len();
    let next = match i32::from(headers.protocol) {
        _ if headers.is_later_fragment => 0,
        libc::IPPROTO_TCP => headers.body.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4),
        libc::IPPROTO_UDP => 8,
        libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6 => 8 + headers.body.get(8..).map_or(0, header_length),
        _ => 0,
    };
    before + next
}

/// Headers of an IP packet.
struct Headers<'a> {
    ends: [IpAddr; 2],
    protocol: u8,
    is_later_fragment: bool,
    body: &'a [u8],
}

impl<'a> Headers<'a> {
    fn read(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::read_ipv4(packet),
            6 => Self::read_ipv6(packet),
            _ => None,
        }
    }

    fn read_ipv4(packet: &'a [u8]) -> Option<Self> {
        let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
        let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]);
        let length = usize::from(packet[0] & 0xf) * 4;
        Some(Self {
            ends: [address(12)?, address(16)?],
            protocol: packet[9],
            is_later_fragment: fragment & 0x1fff != 0,
            body: packet.get(length..)?,
        })
    }

    /// Skips extension headers (RFC 8200, section 4).
    fn read_ipv6(packet: &'a [u8]) -> Option<Self> {
        let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
        let ends = [address(8)?, address(24)?];
        let (mut protocol, mut body) = (packet[6], packet.get(40..)?);
        let mut is_later_fragment = false;
        loop {
            let length = match i32::from(protocol) {
                libc::IPPROTO_FRAGMENT => {
                    is_later_fragment |= u16::from_be_bytes([*body.get(2)?, *body.get(3)?]) & 0xfff8 != 0;
                    8
                }
                libc::IPPROTO_HOPOPTS | libc::IPPROTO_ROUTING | libc::IPPROTO_DSTOPTS => {
                    8 + usize::from(*body.get(1)?) * 8
                }
                _ => return Some(Self { ends, protocol, is_later_fragment, body }),
            };
            protocol = *body.first()?;
            body = body.get(length..)?;
            if is_later_fragment {
                return Some(Self { ends, protocol, is_later_fragment, body });
            }
        }
    }

    fn ports(&self) -> [Option<u16>; 2] {
        let port = |at: usize| {
            let bytes = self.body.get(at..)?.first_chunk::<2>().filter(|_| !self.is_later_fragment)?;
            Some(u16::from_be_bytes(*bytes))
        };
        [port(0), port(2)]
    }
}

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const PASS: SockFilter = SockFilter::new(RETURN, 0, 0, u32::MAX);
const DROP: SockFilter = SockFilter::new(RETURN, 0, 0, 0);

/// Passes packets from or to a server, and ICMP. The socket sees packets from the IP header on. Of IPv6 addresses the last 32 bits are
/// compared.
fn filter(conversations: &[Conversation]) -> Vec<SockFilter> {
    if conversations.len() > FILTERED {
        return vec![PASS];
    }
    let last_words = |v4: bool| {
        let servers = conversations.iter().map(|conversation| conversation.server.ip());
        let mut words: Vec<u32> = servers
            .filter(|ip| ip.is_ipv4() == v4)
            .map(|ip| match ip {
                IpAddr::V4(ip) => ip.to_bits(),
                IpAddr::V6(ip) => ip.to_bits() as u32,
            })
            .collect();
        words.sort_unstable();
        words.dedup();
        words
    };
    let v4 = family_filter(&last_words(true), 9, &[1], [12, 16]);
    let v6 = family_filter(&last_words(false), 6, &[58, 44, 0], [20, 36]);
    let mut filter = vec![
        SockFilter::new(LOAD_BYTE, 0, 0, 0),
        SockFilter::new(SHIFT_RIGHT, 0, 0, 4),
        SockFilter::new(EQUAL, 0, v4.len() as u8, 4),
    ];
    filter.extend(v4);
    filter.push(SockFilter::new(EQUAL, 1, 0, 6));
    filter.push(DROP);
    filter.extend(v6);
    filter
}

/// For packets of a family: passes these protocols, and these last words of one of the two addresses.
fn family_filter(
    words: &[u32],
    protocol_at: u32,
    protocols: &[u32],
    addresses_at: [u32; 2],
) -> Vec<SockFilter> {
    let mut filter = Vec::new();
    if words.is_empty() {
        return vec![DROP];
    }
    let mut compare = |load: u16, at: u32, values: &[u32]| {
        filter.push(SockFilter::new(load, 0, 0, at));
        for value in values {
            filter.extend([SockFilter::new(EQUAL, 0, 1, *value), PASS]);
        }
    };
    compare(LOAD_BYTE, protocol_at, protocols);
    for at in addresses_at {
        compare(LOAD_WORD, at, words);
    }
    filter.push(DROP);
    filter
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;

    use super::*;

    proptest::proptest! {
        #[test]
        fn any_bytes_can_be_read(mut bytes in vec(any::<u8>(), 0..120), v6: bool, protocol in 0_u8..64) {
            let server = if v6 { "[::1]:80" } else { "127.0.0.1:80" }.parse().unwrap();
            let conversation =
                Conversation { protocol: IpProtocol::Tcp, server, peer: None, peer_port: None };
            conversation.has(&bytes);
            header_length(&bytes);
            for (place, value) in [(0, if v6 { 0x60 } else { 0x45 }), (if v6 { 6 } else { 9 }, protocol)] {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = value;
                }
            }
            conversation.has(&bytes);
            header_length(&bytes);
        }
    }

    #[test]
    fn headers_end_where_the_payload_begins() {
        let v4 = |protocol: u8, body: &[u8]| {
            let mut packet = [0; 20];
            (packet[0], packet[9]) = (0x45, protocol);
            [&packet, body].concat()
        };
        let v6 = |next: u8, body: &[u8]| {
            let mut packet = [0; 40];
            (packet[0], packet[6]) = (0x60, next);
            [&packet, body].concat()
        };
        let mut tcp = [b'x'; 60];
        tcp[12] = 0x80;
        let udp = [b'x'; 30];
        let report = [&[3; 8], &v4(17, &udp)[..]].concat();
        let mut fragment = v4(17, &udp);
        fragment[7] = 8;
        let extended = v6(60, &[&[17, 0, 0, 0, 0, 0, 0, 0], &udp[..]].concat());
        let lengths = [v4(6, &tcp), v6(17, &udp), extended, v4(1, &report), fragment, v4(6, &tcp[..4])];
        assert_eq!(lengths.map(|packet| header_length(&packet)), [52, 48, 56, 20 + 8 + 28, 20, 20]);
    }

    #[test]
    fn a_filter_is_one_that_the_kernel_takes() {
        let conversation = |place: u16| Conversation {
            protocol: IpProtocol::Udp,
            server: SocketAddr::new(IpAddr::from([10, 0, 0, place as u8]), 53),
            peer: None,
            peer_port: None,
        };
        let of = |count: u16| filter(&Vec::from_iter((0..count).map(conversation)));
        // Jumps are counted in 8 bits.
        assert!(of(FILTERED as u16).len() < 256 && of(FILTERED as u16 + 1).len() == 1);
    }
}
