//! Sockets of a host, read from its `/proc/net`.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::host::Host;

/// `TCP_LISTEN` in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Inodes of the TCP sockets that listen on an address, which identify accept queues.
pub fn listening(host: &Host, address: SocketAddr) -> BTreeSet<u64> {
    inodes(host, "tcp", address, Some(LISTEN))
}

/// Inodes of the unconnected UDP sockets bound to an address.
pub fn udp_bound(host: &Host, address: SocketAddr) -> BTreeSet<u64> {
    // TCP_CLOSE, the state of a UDP socket without a peer.
    inodes(host, "udp", address, Some("07"))
}

fn inodes(host: &Host, protocol: &str, address: SocketAddr, state: Option<&str>) -> BTreeSet<u64> {
    let suffix = if address.is_ipv6() { "6" } else { "" };
    let path = format!("/proc/thread-self/net/{protocol}{suffix}");
    let table = host.run(|| fs::read_to_string(path)).expect("the socket table is readable");
    table.lines().skip(1).filter_map(|line| inode(line, address, state)).collect()
}

/// Inode of a line. Columns: `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...`
fn inode(line: &str, address: SocketAddr, state: Option<&str>) -> Option<u64> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    let wanted =
        parse(columns.get(1)?)? == address && state.is_none_or(|state| columns.get(3) == Some(&state));
    wanted.then(|| columns.get(9)?.parse().ok()).flatten()
}

/// Parses an address, printed as 32-bit words in host byte order.
fn parse(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let words = ip.as_bytes().chunks(8).map(|word| u32::from_str_radix(str::from_utf8(word).ok()?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<_>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let ip = <[u8; 4]>::try_from(bytes.as_slice())
        .map(|v4| IpAddr::from(Ipv4Addr::from(v4)))
        .or_else(|_| <[u8; 16]>::try_from(bytes.as_slice()).map(|v6| Ipv6Addr::from(v6).into()))
        .ok()?;
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}
