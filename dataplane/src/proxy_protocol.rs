//! PROXY protocol headers, versions 1 (text) and 2 (binary): how one proxy tells the next who its client is
//! (HAProxy's `doc/proxy-protocol.txt`, "the specification" below).
//!
//! It must not know sockets: bytes in, addresses out, and the other way round. It is own code because the crates at hand
//! call beginnings of valid headers invalid (`ppp` 2.3), take `PROXYxTCP4` and lines without bound (`proxy-header` 0.1),
//! or panic where the last byte is missing (`proxy-protocol` 0.5), and none takes LOCAL with a family that it does not
//! know.

mod v1;
mod v2;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// Who speaks to whom, as the first proxy saw it. Parsed addresses are canonical: an IPv4 address that was written as
/// IPv6 (`::ffff:192.0.2.1`) is given as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub client: SocketAddr,
    /// The address that the client addressed.
    pub destination: SocketAddr,
}

/// What the client speaks over; only version 2 can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

/// What bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Parsed {
    /// The beginning of a header so far, or nothing yet.
    Incomplete,
    /// A whole header. What follows it is the client's.
    Header {
        /// The header's length in bytes.
        length: usize,
        /// `None` (LOCAL, UNKNOWN, or no internet addresses): the connection's own addresses are the true ones.
        addresses: Option<Addresses>,
    },
    /// No header, and more bytes will not make it one.
    Invalid(ParseError),
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Something else is spoken here.
    #[error("it begins with no PROXY protocol header")]
    NoHeader,
    /// A line of version 1 that does not end.
    #[error("the line of version 1 does not end within 107 bytes")]
    EndlessLine,
    /// A line of version 1 that is not as specified.
    #[error("the line of version 1 is malformed")]
    Line,
    /// A binary header of a version other than 2, or with an unknown command.
    #[error("unknown version or command")]
    Command,
    /// A family or transport that version 2 does not have.
    #[error("unknown address family or transport")]
    Family,
    /// A header of version 2 that is too short for the addresses it announces.
    #[error("too short for its addresses")]
    Short,
}

/// Looks for a header at the beginning of `bytes`. However a header is cut into reads, the answer for each part of it
/// is [`Parsed::Incomplete`]; [`LONGEST`] bytes are never incomplete.
pub fn parse(bytes: &[u8]) -> Parsed {
    // The two begin with different bytes (2.2 of the specification).
    match bytes.first() {
        None => Parsed::Incomplete,
        Some(b'P') => v1::parse(bytes),
        Some(_) => v2::parse(bytes),
    }
}

/// The length in bytes of the longest header that there can be.
pub const LONGEST: usize = v2::LONGEST;

/// A header of version 1, which knows TCP alone.
#[must_use]
pub fn write_v1(addresses: &Addresses) -> Vec<u8> {
    v1::write(addresses)
}

/// A header of version 2.
#[must_use]
pub fn write_v2(transport: Transport, addresses: &Addresses) -> Vec<u8> {
    v2::write(transport, addresses)
}

/// The addresses of client and destination in the one family that a header can have.
enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Pair {
    /// IPv4 if both are; else an IPv4 address is mapped into IPv6, as HAProxy does (make_proxy_line in
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

/// The addresses as a header had them, with their ports.
fn read(client: (IpAddr, u16), destination: (IpAddr, u16)) -> Addresses {
    let canonical = |(ip, port): (IpAddr, u16)| SocketAddr::new(ip.to_canonical(), port);
    Addresses { client: canonical(client), destination: canonical(destination) }
}
