//! Network segment: which machines answer for an address, by ARP and neighbour discovery.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::{LinkAddr, MsgFlags, recvfrom, sendto};
use sheave_announce::MacAddress;
use sheave_announce::frame::{claim, neighbour_solicitation, probe};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::link::Link;
use crate::unseen::{Missing, Right, Unseen};

const WHAT: &str = "who answers for the address";
/// Nothing that is read is longer.
const LONGEST: usize = 512;
/// How often the question is sent: a frame may be lost.
const QUESTIONS: u32 = 2;

/// The MAC addresses that answer for an address on a link within the time, in their order, each once. Those of this machine are not
/// among them.
///
/// IPv4 is asked by a probe (RFC 5227, section 2.1.1), which changes no neighbour cache. IPv6 is asked from the link-local address of
/// the link, and by the form of duplicate address detection where there is none.
///
/// # Errors
/// Without CAP_NET_RAW, or if the link is down or has no neighbours.
pub fn who_has(ip: IpAddr, link: &Link, within: Duration) -> Result<Vec<MacAddress>, Unseen> {
    let unseen = |error: &io::Error| Unseen::from_io(WHAT, error, Right::NetRaw, "AF_PACKET");
    let Some(mac) = link.mac.filter(|_| link.has_neighbours) else {
        return Err(Unseen::new(WHAT, Missing::Link(format!("{} has no neighbours", link.name))));
    };
    if !link.is_up || !link.has_carrier {
        return Err(Unseen::new(WHAT, Missing::Link(format!("{} is down", link.name))));
    }
    let socket = open(ip).map_err(|error| unseen(&error))?;
    let address = link_address(link.index).map_err(|error| unseen(&error))?;
    let question = question(ip, link, mac);
    let begin = Instant::now();
    let mut found = Vec::new();
    let mut sent = 0;
    while begin.elapsed() < within {
        if begin.elapsed() >= within / QUESTIONS * sent {
            sendto(socket.as_raw_fd(), &question, &address, MsgFlags::empty())
                .map_err(|errno| unseen(&errno.into()))?;
            sent += 1;
        }
        let until = if sent < QUESTIONS { within / QUESTIONS * sent } else { within };
        let left = until.saturating_sub(begin.elapsed()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).map_err(|error| unseen(&error))?;
        if let Some(answer) = receive(&socket, ip, link.index).map_err(|error| unseen(&error))?
            && answer != mac
            && !found.contains(&answer)
        {
            found.push(answer);
        }
    }
    Ok(found)
}

fn question(ip: IpAddr, link: &Link, mac: MacAddress) -> Vec<u8> {
    let link_local = link.addresses.iter().find_map(|address| match address.ip {
        IpAddr::V6(source) if source.is_unicast_link_local() => Some(source),
        _ => None,
    });
    match (ip, link_local) {
        (IpAddr::V6(target), Some(source)) => neighbour_solicitation(mac, source, target),
        _ => probe(mac, ip),
    }
}

/// `None`: the time is over, or it was something else.
fn receive(socket: &Socket, ip: IpAddr, link_index: u32) -> io::Result<Option<MacAddress>> {
    let mut buffer = [0; LONGEST];
    let (length, from) = match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) {
        Ok(received) => received,
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let here = from.is_some_and(|from| {
        u32::try_from(from.ifindex()) == Ok(link_index) && from.pkttype() != libc::PACKET_OUTGOING
    });
    let claimed = buffer.get(..length).and_then(claim).filter(|(claimed, _)| here && *claimed == ip);
    Ok(claimed.map(|(_, mac)| mac))
}

/// A packet socket that receives what is said about the address.
fn open(ip: IpAddr) -> io::Result<Socket> {
    let (protocol, filter) = match ip {
        IpAddr::V4(ip) => (libc::ETH_P_ARP, arp_filter(ip.to_bits())),
        IpAddr::V6(ip) => (libc::ETH_P_IPV6, advertisement_filter(ip)),
    };
    let protocol = Protocol::from(i32::from((protocol as u16).to_be()));
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol))?;
    socket.attach_filter(&filter)?;
    Ok(socket)
}

/// The address of a link for a packet socket. It cannot be made from the index without `unsafe`.
fn link_address(index: u32) -> io::Result<LinkAddr> {
    let mut links = getifaddrs()?.filter_map(|found| found.address?.as_link_addr().copied());
    links.find(|address| u32::try_from(address.ifindex()) == Ok(index)).ok_or(io::ErrorKind::NotFound.into())
}

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Frames of ARP whose sender has the address.
fn arp_filter(ip: u32) -> Vec<SockFilter> {
    all(&[(LOAD_HALF, 16, 0x0800), (LOAD_WORD, 28, ip)])
}

/// Neighbour advertisements of an address: ICMPv6, from a neighbour (RFC 4861, section 7.1), with the last 32 bits of the address.
fn advertisement_filter(ip: Ipv6Addr) -> Vec<SockFilter> {
    all(&[
        (LOAD_BYTE, 20, 58),
        (LOAD_BYTE, 21, 255),
        (LOAD_BYTE, 54, 136),
        (LOAD_WORD, 74, ip.to_bits() as u32),
    ])
}

/// Passes frames in which all these values are at their places.
fn all(values: &[(u16, u32, u32)]) -> Vec<SockFilter> {
    let mut filter = Vec::new();
    for &(load, at, value) in values {
        filter.extend([
            SockFilter::new(load, 0, 0, at),
            SockFilter::new(EQUAL, 1, 0, value),
            SockFilter::new(RETURN, 0, 0, 0),
        ]);
    }
    filter.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    filter
}
