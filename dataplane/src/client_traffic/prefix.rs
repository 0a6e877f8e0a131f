//! Client networks by which traffic is counted.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefix length for IPv4: the longest that is routed on the Internet.
const IPV4_LENGTH: u32 = 24;
/// Prefix length for IPv6: the smallest network of a site (RFC 6177), so that a site does not look like many clients.
const IPV6_LENGTH: u32 = 56;

/// Network of a client: an IPv4 /24 or an IPv6 /56. Eight bytes, since every connection has one: the leading bits of the
/// address, and the family in the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientPrefix(u64);

const _: () = assert!(IPV4_LENGTH <= 32 && IPV6_LENGTH <= 56, "the family is in the last byte");
const IPV6: u64 = 6;

impl ClientPrefix {
    /// The network of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self(u64::from(u32::from(ip) & !(u32::MAX >> IPV4_LENGTH)) << 8),
            IpAddr::V6(ip) => Self((u128::from(ip) >> 64) as u64 & !(u64::MAX >> IPV6_LENGTH) | IPV6),
        }
    }
}

impl fmt::Display for ClientPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & 0xff == IPV6 {
            let ip = Ipv6Addr::from(u128::from(self.0 & !0xff) << 64);
            write!(f, "{ip}/{IPV6_LENGTH}")
        } else {
            write!(f, "{}/{IPV4_LENGTH}", Ipv4Addr::from((self.0 >> 8) as u32))
        }
    }
}
