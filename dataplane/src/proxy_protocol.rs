//! PROXY protocol headers, versions 1 (text) and 2 (binary), with which a proxy passes on its client's address (HAProxy's
//! `doc/proxy-protocol.txt`, "the specification" below).
//!
//! The module converts between bytes and addresses. Existing crates are not used because they reject prefixes of valid
//! headers (`ppp` 2.3), accept `PROXYxTCP4` and lines of any length (`proxy-header` 0.1), or panic if the last byte is
//! missing (`proxy-protocol` 0.5), and none accepts LOCAL with an unknown family.

mod v1;
mod v2;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

pub use self::v1::write as write_v1;
pub use self::v2::{LONGEST, write as write_v2};

/// Addresses of the client's connection at the first proxy. Parsed addresses are canonical: an IPv4-mapped IPv6 address
/// (`::ffff:192.0.2.1`) becomes IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Address of the client.
    pub client: SocketAddr,
    /// Address that the client connected to.
    pub destination: SocketAddr,
}

/// Transport of the client's connection; only version 2 carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

/// The result of parsing the beginning of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Parsed {
    /// A prefix of a header, or no bytes yet.
    Incomplete,
    /// A complete header. The client's bytes follow it.
    Header {
        /// The header's length in bytes.
        length: usize,
        /// `None` (LOCAL, UNKNOWN, or no internet addresses): the connection's own addresses apply.
        addresses: Option<Addresses>,
    },
    /// Not a header, regardless of the bytes that follow.
    Invalid(ParseError),
}

/// Reason why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The bytes are of another protocol.
    #[error("it begins with other bytes")]
    NoHeader,
    /// A line of version 1 without an end.
    #[error("the line of version 1 does not end within 107 bytes")]
    EndlessLine,
    /// A malformed line of version 1.
    #[error("the line of version 1 is malformed")]
    Line,
    /// A binary header of a version other than 2, or with an unknown command.
    #[error("unknown version or command")]
    Command,
    /// A family or transport that version 2 does not define.
    #[error("unknown address family or transport")]
    Family,
    /// A header of version 2 that is too short for the addresses it announces.
    #[error("too short for its addresses")]
    Short,
}

/// Parses a header at the beginning of `bytes`. Every proper prefix of a header is [`Parsed::Incomplete`]; [`LONGEST`] bytes
/// or more never are.
pub fn parse(bytes: &[u8]) -> Parsed {
    // The versions begin with different bytes (2.2 of the specification).
    match bytes.first() {
        None => Parsed::Incomplete,
        Some(b'P') => v1::parse(bytes),
        Some(_) => v2::parse(bytes),
    }
}

/// Addresses of client and destination in the same family.
enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Pair {
    /// IPv4 if both addresses are; otherwise an IPv4 address is mapped to IPv6, as in HAProxy (make_proxy_line in
    /// src/connection.c).
    fn of(addresses: &Addresses) -> Self {
        let mapped = |ip| match ip {
            IpAddr::V4(ip) => Ipv4Addr::to_ipv6_mapped(&ip),
            IpAddr::V6(ip) => ip,
        };
        match (addresses.client.ip().to_canonical(), addresses.destination.ip().to_canonical()) {
            (IpAddr::V4(client), IpAddr::V4(destination)) => Self::V4(client, destination),
            (client, destination) => Self::V6(mapped(client), mapped(destination)),
        }
    }
}

/// Canonical addresses of a parsed header.
fn read(client: (IpAddr, u16), destination: (IpAddr, u16)) -> Addresses {
    let canonical = |(ip, port): (IpAddr, u16)| SocketAddr::new(ip.to_canonical(), port);
    Addresses { client: canonical(client), destination: canonical(destination) }
}
