//! Live TCP sockets of this network namespace, as sock_diag(7) lists them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use nix::libc;
use sheave_kernel::attributes::Attributes;

use crate::netlink::{Netlink, from_bytes, to_bytes};
use crate::unseen::{Right, Unseen};

/// INET_DIAG_REQ_BYTECODE, INET_DIAG_BC_S_COND and INET_DIAG_BC_D_COND (linux/inet_diag.h).
const BYTECODE: u16 = 1;
const LOCAL_CONDITION: u8 = 7;
const REMOTE_CONDITION: u8 = 8;
/// TCP_NEW_SYN_RECV (include/net/tcp_states.h): a connection that is not accepted yet.
const NEW_SYN_RECEIVED: u32 = 1 << 12;
/// How many sockets are returned.
const MOST: usize = 1000;

/// A TCP socket with a peer.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSocket {
    /// Its own address and port.
    pub local: SocketAddr,
    /// Ends of its peer.
    pub remote: SocketAddr,
    /// Its state.
    pub state: TcpState,
    /// Bytes that were written and not acknowledged by the peer.
    pub send_queue: u32,
    /// Measurements of TCP; `None` for a socket that is being opened or is closed.
    pub info: Option<TcpInfo>,
}

/// Measurements of a TCP socket (`struct tcp_info` in linux/tcp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// How often the segment that waits was sent again, without an answer.
    pub retransmits: u8,
    /// Segments that wait for an acknowledgement.
    pub unacked: u32,
}

/// State of a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Open.
    Established,
    /// Was asked for a connection.
    SynReceived,
    /// Another state, by its number in include/net/tcp_states.h.
    Other(u8),
}

/// A listening TCP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListeningSocket {
    /// Its address and port; the address is unspecified if it listens on all.
    pub local: SocketAddr,
    /// Connections that wait for the program to accept them.
    pub accept_queue: u32,
    /// How many may wait.
    pub accept_queue_limit: u32,
}

/// The sockets between a client and a frontend, at most a thousand.
///
/// # Errors
/// If the kernel has no sock_diag, or the sockets are too many for the time.
pub fn of_client(client: IpAddr, frontend: SocketAddr, within: Duration) -> Result<Vec<TcpSocket>, Unseen> {
    let states = (StateFlags::all() - StateFlags::LISTEN).bits() | NEW_SYN_RECEIVED;
    list(frontend, Some(SocketAddr::new(client, 0)), states, within, |response| {
        Some(TcpSocket {
            local: local(response),
            remote: remote(response),
            state: read_state(response.header.state),
            send_queue: response.header.send_queue,
            info: response.nlas.iter().find_map(|nla| match nla {
                Nla::TcpInfo(bytes) => read_info(bytes),
                _ => None,
            }),
        })
    })
}

/// The sockets that listen on a frontend's address and port, or on its port of all addresses. With SO_REUSEPORT there are several.
///
/// # Errors
/// As [`of_client`].
pub fn listening(frontend: SocketAddr, within: Duration) -> Result<Vec<ListeningSocket>, Unseen> {
    // Of all addresses, since the filter has no "or".
    let any = SocketAddr::new(unspecified(frontend.ip()), frontend.port());
    let listening = StateFlags::LISTEN.bits();
    let mut found = list(any, None, listening, within, |response| {
        let local = local(response);
        let matches = local.ip().is_unspecified() && (local.is_ipv6() || frontend.is_ipv4());
        (local.ip() == frontend.ip() || matches).then_some(ListeningSocket {
            local,
            accept_queue: response.header.recv_queue,
            accept_queue_limit: response.header.send_queue,
        })
    })?;
    found.sort_by_key(|socket| socket.local.ip().is_unspecified());
    Ok(found)
}

/// The sockets with these addresses and ports, where 0 and the unspecified address stand for any. Sockets of IPv6 that carry IPv4 are
/// listed as IPv4.
fn list<T>(
    local_addr: SocketAddr,
    remote_addr: Option<SocketAddr>,
    states: u32,
    within: Duration,
    read: impl Fn(&InetResponse) -> Option<T>,
) -> Result<Vec<T>, Unseen> {
    let families: &[i32] =
        if local_addr.is_ipv4() { &[libc::AF_INET, libc::AF_INET6] } else { &[libc::AF_INET6] };
    let remote = remote_addr.map(|addr| condition(REMOTE_CONDITION, addr));
    let bytecode = join([condition(LOCAL_CONDITION, local_addr)].into_iter().chain(remote));
    let dump = || -> io::Result<Vec<T>> {
        let mut netlink = Netlink::open(libc::NETLINK_SOCK_DIAG, within)?;
        let mut all = Vec::new();
        for family in families {
            let (kind, mut body) = to_bytes(&request(*family as u8, states));
            body.extend_from_slice(Attributes::new().bytes(BYTECODE, &bytecode).as_bytes());
            all.append(&mut netlink.dump(kind, &body, |found: &mut Vec<T>, kind, payload| {
                if let Some(SockDiagMessage::InetResponse(response)) = from_bytes(kind, payload)
                    && found.len() < MOST
                {
                    found.extend(read(&response));
                }
            })?);
        }
        Ok(all)
    };
    dump().map_err(|error| Unseen::from_io("TCP sockets", &error, Right::Nothing, "sock_diag of TCP"))
}

fn request(family: u8, states: u32) -> SockDiagMessage {
    SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: libc::IPPROTO_TCP as u8,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::from_bits_retain(states),
        socket_id: SocketId::new_v4(),
    })
}

/// A condition of the kernel's filter (`struct inet_diag_hostcond` in linux/inet_diag.h).
struct Condition {
    side: u8,
    host: Vec<u8>,
}

fn condition(side: u8, addr: SocketAddr) -> Condition {
    let (family, octets) = match addr.ip() {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    // An unspecified family stands for both; -1 for any port.
    let (family, octets) =
        if addr.ip().is_unspecified() { (libc::AF_UNSPEC, vec![]) } else { (family, octets) };
    let port = if addr.port() == 0 { -1 } else { i32::from(addr.port()) };
    let host = [&[family as u8, (octets.len() * 8) as u8, 0, 0][..], &port.to_ne_bytes(), &octets].concat();
    Condition { side, host }
}

/// Conditions that all hold: each goes on with the next one, or jumps past the end, which rejects (`inet_diag_bc_run` in
/// net/ipv4/inet_diag.c).
fn join(conditions: impl Iterator<Item = Condition>) -> Vec<u8> {
    const OPERATION: usize = 4;
    let conditions: Vec<Condition> = conditions.collect();
    let mut left: usize = conditions.iter().map(|condition| OPERATION + condition.host.len()).sum();
    let mut bytecode = Vec::new();
    for condition in conditions {
        let length = OPERATION + condition.host.len();
        bytecode.extend([condition.side, length as u8]);
        bytecode.extend(((left + 4) as u16).to_ne_bytes());
        bytecode.extend(condition.host);
        left -= length;
    }
    bytecode
}

fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() }
}

fn local(response: &InetResponse) -> SocketAddr {
    let id = &response.header.socket_id;
    SocketAddr::new(id.source_address.to_canonical(), id.source_port)
}

fn remote(response: &InetResponse) -> SocketAddr {
    let id = &response.header.socket_id;
    SocketAddr::new(id.destination_address.to_canonical(), id.destination_port)
}

fn read_state(state: u8) -> TcpState {
    match state {
        1 => TcpState::Established,
        3 | 12 => TcpState::SynReceived,
        other => TcpState::Other(other),
    }
}

/// Reads by places, since the structure grows with the kernel's version.
fn read_info(bytes: &[u8]) -> Option<TcpInfo> {
    let unacked = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
    Some(TcpInfo { retransmits: *bytes.get(2)?, unacked })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of `struct tcp_info` in linux/tcp.h.
    #[test]
    fn each_number_has_its_place() {
        let mut bytes = vec![0; 28];
        bytes[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        for (place, word) in bytes[8..].chunks_exact_mut(4).enumerate() {
            word.copy_from_slice(&(100 + place as u32).to_ne_bytes());
        }
        assert_eq!(read_info(&bytes), Some(TcpInfo { retransmits: 3, unacked: 104 }));
        assert_eq!(read_info(&bytes[..27]), None);
    }

    #[test]
    fn each_condition_goes_on_with_the_next_or_rejects() {
        let host = |text: &str| text.parse().unwrap();
        let bytecode = join(
            [
                condition(LOCAL_CONDITION, host("10.0.0.1:80")),
                condition(REMOTE_CONDITION, host("[2001:db8::1]:0")),
            ]
            .into_iter(),
        );
        let no = |at: usize| usize::from(u16::from_ne_bytes([bytecode[at + 2], bytecode[at + 3]]));
        let first = usize::from(bytecode[1]);
        assert_eq!((bytecode[0], bytecode[first], first), (LOCAL_CONDITION, REMOTE_CONDITION, 16));
        assert_eq!(first + usize::from(bytecode[first + 1]), bytecode.len());
        assert_eq!((no(0), first + no(first)), (bytecode.len() + 4, bytecode.len() + 4));
    }
}
