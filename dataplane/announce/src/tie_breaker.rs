//! The tie-breaker: whether an address, usually the router's, answers. A gateway that half of the others or fewer hear goes on if it does.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::LinkAddr;
use socket2::{Domain, Protocol, Socket, Type};

use self::neighbour::{ArpAsker, advertises};
use crate::async_socket::AsyncSocket;
use crate::layer2::MacAddress;
use crate::layer2::frame::{internet_checksum, solicitation};

mod neighbour;

/// ICMP types of an echo and its reply (RFC 792), and the same of ICMPv6 (RFC 4443).
const ECHO: (u8, u8) = (8, 0);
const ECHO_V6: (u8, u8) = (128, 129);
/// How long the routing table is believed for the router's address.
const LOOK: Duration = Duration::from_secs(5);

/// How many pings may wait for their answers.
const UNANSWERED: usize = 4;

/// Address whose answers let a gateway go on without a majority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieBreaker {
    /// Nothing: only a majority has a quorum.
    #[default]
    None,
    /// The next hop of the default route, if it answers pings, or ARP or neighbour discovery.
    Router,
    /// This address, if it answers in the same ways.
    Address(IpAddr),
}

/// Asks the tie-breaker: by pings, and where it does not answer them, as a neighbour.
#[derive(Debug)]
pub(crate) struct Pinger {
    pub(crate) tie_breaker: TieBreaker,
    /// An IPv6 router's address is mostly one of its link alone, and has that as its scope.
    target: Option<SocketAddr>,
    looked: Option<Instant>,
    socket: Option<AsyncSocket>,
    /// Where the target is an IPv4 address in a subnet of this machine.
    neighbour: Option<ArpAsker>,
    /// Numbers the pings of this process, so that answers to others do not count.
    identifier: u16,
    sequence: u16,
    /// The last pings: an answer may take longer than until the next one.
    sent: VecDeque<(u16, Instant)>,
    /// When the neighbour was asked last, and before that.
    asked: [Option<Instant>; 2],
    /// When a ping that was answered was sent last, and when anything was that was answered.
    pinged: Option<Instant>,
    pub(crate) answered: Option<Instant>,
}

/// An answer of the tie-breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// When that was sent which is answered.
    pub(crate) asked: Instant,
    by_ping: bool,
}

impl Pinger {
    pub(crate) fn new(tie_breaker: TieBreaker) -> Self {
        Self {
            tie_breaker,
            target: None,
            looked: None,
            socket: None,
            neighbour: None,
            identifier: std::process::id() as u16,
            sequence: 0,
            sent: VecDeque::new(),
            asked: [None; 2],
            pinged: None,
            answered: None,
        }
    }

    /// The address that is asked, if there is one.
    pub(crate) fn target(&self) -> Option<IpAddr> {
        self.target.map(|target| target.ip())
    }

    /// Takes an answer into account.
    pub(crate) fn note(&mut self, Answer { asked, by_ping }: Answer) {
        self.answered = self.answered.max(Some(asked));
        if by_ping {
            self.pinged = self.pinged.max(Some(asked));
        }
    }

    /// Sends a ping, and asks the neighbour if pings are not answered. Without a way to the target it only becomes unreachable. `way` says by which link
    /// an address of this machine has a neighbour.
    pub(crate) fn ping(
        &mut self,
        now: Instant,
        way: impl FnOnce(Ipv4Addr, Ipv4Addr) -> Option<(LinkAddr, MacAddress)>,
    ) {
        if self.looked.is_none_or(|at| now.saturating_duration_since(at) >= LOOK) {
            self.looked = Some(now);
            self.look(way);
        }
        let (Some(target), Some(socket)) = (self.target, &self.socket) else { return };
        self.sequence = self.sequence.wrapping_add(1);
        let request = echo(target.ip(), self.identifier, self.sequence);
        if self.sent.len() == UNANSWERED {
            self.sent.pop_front();
        }
        self.sent.push_back((self.sequence, now));
        // What cannot be sent is not answered either.
        socket.get().send(&request).ok();
        if self.sent.iter().all(|(_, sent)| self.pinged.is_none_or(|pinged| pinged < *sent)) {
            self.asked = [Some(now), self.asked[0]];
            match target.ip() {
                IpAddr::V4(_) => self.neighbour.iter().for_each(ArpAsker::ask),
                IpAddr::V6(ip) => _ = socket.get().send(&solicitation(ip)).ok(),
            }
        }
    }

    /// Waits for an answer. Cancel safe.
    pub(crate) async fn answered(&self) -> Answer {
        let by_neighbour = async {
            match &self.neighbour {
                Some(neighbour) if neighbour.answered().await.is_ok() => self.neighbour_answer(),
                _ => None,
            }
        };
        tokio::select! {
            Some(answer) = by_neighbour => answer,
            Some(answer) = self.message() => answer,
            else => std::future::pending().await,
        }
    }

    /// Which question a neighbour answers cannot be told: it is taken for the one before the last.
    fn neighbour_answer(&self) -> Option<Answer> {
        let [last, before] = self.asked;
        Some(Answer { asked: before.or(last)?, by_ping: false })
    }

    async fn message(&self) -> Option<Answer> {
        let socket = self.socket.as_ref()?;
        let mut buffer = [0; 256];
        loop {
            // ICMP errors for earlier pings are answers of somebody else.
            while let Ok(length) = socket.get().read(&mut buffer) {
                let message = &buffer[..length];
                let sequence = reply(message, self.target(), self.identifier);
                let sent = self.sent.iter().find(|(number, _)| sequence == Some(*number));
                if let Some((_, asked)) = sent {
                    return Some(Answer { asked: *asked, by_ping: true });
                }
                if advertises(message, self.target())
                    && let Some(answer) = self.neighbour_answer()
                {
                    return Some(answer);
                }
            }
            socket.ready().await.ok()?;
        }
    }

    /// Finds the target, and opens a socket for it if it is another one than before.
    fn look(&mut self, way: impl FnOnce(Ipv4Addr, Ipv4Addr) -> Option<(LinkAddr, MacAddress)>) {
        let target = match self.tie_breaker {
            TieBreaker::None => None,
            TieBreaker::Router => router(),
            TieBreaker::Address(ip) => Some(SocketAddr::new(ip, 0)),
        };
        if target != self.target || self.socket.is_none() {
            self.socket = target.and_then(|target| {
                open(target)
                    .inspect_err(|error| tracing::warn!(%target, %error, "the tie-breaker cannot be pinged"))
                    .ok()
            });
            self.target = target;
            (self.sent, self.asked) = (VecDeque::new(), [None; 2]);
            (self.pinged, self.answered) = (None, None);
        }
        // Addresses and interfaces of this machine change.
        if let Some(SocketAddr::V4(target)) = target {
            self.neighbour = ArpAsker::open(*target.ip(), way).ok().flatten();
        } else {
            self.neighbour = None;
        }
    }
}

fn open(target: SocketAddr) -> io::Result<AsyncSocket> {
    let (domain, protocol) = match target {
        SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    // From then on only what the target sends is received (raw(7)).
    socket.connect(&target.into())?;
    if target.is_ipv6() {
        // As neighbour discovery wants it (RFC 4861, 7.1).
        socket.set_unicast_hops_v6(255)?;
    }
    AsyncSocket::new(socket)
}

/// The kernel computes the checksum of ICMPv6 (RFC 3542, 3.1), and not that of ICMP.
fn echo(target: IpAddr, identifier: u16, sequence: u16) -> [u8; 8] {
    let kind = if target.is_ipv4() { ECHO.0 } else { ECHO_V6.0 };
    let [a, b] = identifier.to_be_bytes();
    let [c, d] = sequence.to_be_bytes();
    let mut message = [kind, 0, 0, 0, a, b, c, d];
    let [high, low] = internet_checksum(&message).to_be_bytes();
    (message[2], message[3]) = (high, low);
    message
}

/// The number of the ping that a packet answers. A raw socket of IPv4 receives the IP header as well.
fn reply(packet: &[u8], target: Option<IpAddr>, identifier: u16) -> Option<u16> {
    let (message, kind) = match target {
        Some(IpAddr::V4(_)) => {
            let header = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
            (packet.get(header..).unwrap_or_default(), ECHO.1)
        }
        _ => (packet, ECHO_V6.1),
    };
    match message {
        [first, 0, _, _, a, b, c, d, ..] if *first == kind && identifier == u16::from_be_bytes([*a, *b]) => {
            Some(u16::from_be_bytes([*c, *d]))
        }
        _ => None,
    }
}

/// The next hop of the default route; IPv4 before IPv6.
fn router() -> Option<SocketAddr> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    if let Some(ip) = router_v4(&read("/proc/net/route")) {
        return Some(SocketAddr::new(ip.into(), 0));
    }
    let (ip, interface) = router_v6(&read("/proc/net/ipv6_route"))?;
    let scope = if_nametoindex(interface.as_str()).ok()?;
    Some(SocketAddrV6::new(ip, 0, 0, if ip.is_unicast_link_local() { scope } else { 0 }).into())
}

/// Reads /proc/net/route (fib_route_seq_show in net/ipv4/fib_trie.c): interface, destination, gateway, flags, references, use, metric,
/// mask; addresses in the byte order of the machine.
fn router_v4(table: &str) -> Option<Ipv4Addr> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok();
        let (destination, gateway, mask) = (number(1)?, number(2)?, number(7)?);
        let metric: u32 = fields.get(6)?.parse().ok()?;
        (destination == 0 && mask == 0 && gateway != 0).then_some((metric, gateway))
    });
    routes.min().map(|(_, gateway)| Ipv4Addr::from(gateway.to_ne_bytes()))
}

/// Reads /proc/net/ipv6_route (rt6_info_route in net/ipv6/route.c): destination, its length, source, its length, gateway, metric,
/// references, use, flags, interface.
fn router_v6(table: &str) -> Option<(Ipv6Addr, String)> {
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let gateway = Ipv6Addr::from(u128::from_str_radix(fields.get(4)?, 16).ok()?);
        let metric = u32::from_str_radix(fields.get(5)?, 16).ok()?;
        let is_default = *fields.get(1)? == "00" && !gateway.is_unspecified();
        is_default.then_some((metric, gateway, (*fields.get(9)?).to_owned()))
    });
    routes.min().map(|(_, gateway, interface)| (gateway, interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_has_the_checksum_of_the_rfc() {
        let message = echo("192.0.2.1".parse().unwrap(), 0x1234, 7);
        assert_eq!(message, [8, 0, 0xe5, 0xc4, 0x12, 0x34, 0, 7]);
        assert_eq!(internet_checksum(&message), 0, "it sums up to nothing");
    }

    #[test]
    fn an_answer_says_to_which_ping_of_this_process() {
        let v4 = Some("192.0.2.1".parse().unwrap());
        let mut packet = vec![0x45; 1];
        packet.resize(20, 0);
        packet.extend([0, 0, 1, 2, 0x12, 0x34, 0, 7]);
        assert_eq!(reply(&packet, v4, 0x1234), Some(7));
        assert_eq!(reply(&packet, v4, 0x1235), None);
        packet[20] = 8;
        assert_eq!(reply(&packet, v4, 0x1234), None, "a request is none");
        let v6 = Some("2001:db8::1".parse().unwrap());
        assert_eq!(reply(&[129, 0, 0, 0, 0x12, 0x34, 0, 7], v6, 0x1234), Some(7));
        for length in 0..8 {
            assert_eq!(reply(&[129, 0, 0, 0, 0x12, 0x34, 0, 7][..length], v6, 0x1234), None);
            assert_eq!(reply(&packet[..length], v4, 0x1234), None);
        }
    }

    /// Each takes longer than until the next ping.
    #[tokio::test]
    async fn an_answer_that_comes_after_the_next_ping_counts() {
        let mut pinger = Pinger::new(TieBreaker::Address(Ipv4Addr::LOCALHOST.into()));
        let start = Instant::now();
        pinger.ping(start, |_, _| None);
        pinger.ping(start + Duration::from_millis(100), |_, _| None);
        let first = pinger.answered().await;
        pinger.note(first);
        assert_eq!((first.asked, pinger.answered), (start, Some(start)));
    }

    #[test]
    fn the_router_is_the_next_hop_of_the_best_default_route() {
        let header = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let hop =
            |text: &str| format!("{:08X}", u32::from_ne_bytes(text.parse::<Ipv4Addr>().unwrap().octets()));
        let line = |destination: &str, gateway: &str, metric: u32, mask: &str| {
            format!(
                "eth0\t{}\t{}\t0003\t0\t0\t{metric}\t{}\t0\t0\t0\n",
                hop(destination),
                hop(gateway),
                hop(mask)
            )
        };
        let table = [
            header.to_owned(),
            line("10.0.0.0", "0.0.0.0", 0, "255.0.0.0"),
            line("0.0.0.0", "10.0.0.2", 200, "0.0.0.0"),
            line("0.0.0.0", "10.0.0.1", 100, "0.0.0.0"),
            line("0.0.0.0", "10.0.0.3", 0, "128.0.0.0"),
        ];
        assert_eq!(router_v4(&table.concat()), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(router_v4(header), None);
        let zero = "0".repeat(32);
        let v6 = |length: &str, gateway: &str, metric: &str| {
            let gateway = u128::from(gateway.parse::<Ipv6Addr>().unwrap());
            format!("{zero} {length} {zero} 00 {gateway:032x} {metric} 00000001 00000000 00450003     eth0\n")
        };
        let table = [
            v6("00", "fe80::1", "00000001"),
            v6("00", "2001:db8::1", "00000400"),
            v6("40", "2001:db8::2", "00000000"),
        ];
        let on_eth0 = |ip: &str| Some((ip.parse().unwrap(), "eth0".to_owned()));
        assert_eq!(router_v6(&table.concat()), on_eth0("fe80::1"));
        assert_eq!(router_v6(&table[1..].concat()), on_eth0("2001:db8::1"));
    }
}
