//! A network: the addresses that share a prefix.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of an address; a prefix that is too long is that of the address alone.
    pub fn of(address: IpAddr, prefix: u8) -> Self {
        let masked = |bits: u128, width: u8| {
            let host = u32::from(width.saturating_sub(prefix));
            bits.checked_shr(host).and_then(|bits| bits.checked_shl(host)).unwrap_or(0)
        };
        let (address, longest) = match address {
            IpAddr::V4(ip) => (Ipv4Addr::from_bits(masked(ip.to_bits().into(), 32) as u32).into(), 32),
            IpAddr::V6(ip) => (Ipv6Addr::from_bits(masked(ip.to_bits(), 128)).into(), 128),
        };
        Self { address, prefix: prefix.min(longest) }
    }

    /// Its first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The length of its prefix, in bits.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Whether an address is in it.
    pub fn contains(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.address.is_ipv4() && Self::of(ip, self.prefix) == self
    }

    /// Whether they have addresses in common: one contains the other then.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, prefix: u8, ip: &str) -> bool {
        Network::of(network.parse().unwrap(), prefix).contains(ip.parse().unwrap())
    }

    #[test]
    fn an_address_is_in_the_networks_of_its_prefixes() {
        assert_eq!(Network::of("10.1.2.3".parse().unwrap(), 8).to_string(), "10.0.0.0/8");
        assert_eq!(Network::of("2001:db8::9".parse().unwrap(), 64).to_string(), "2001:db8::/64");
        assert_eq!(Network::of("192.0.2.1".parse().unwrap(), 77).to_string(), "192.0.2.1/32");
        assert!(contains("10.1.0.1", 16, "10.1.255.255") && !contains("10.1.0.1", 16, "10.2.0.0"));
        assert!(contains("10.0.0.1", 0, "203.0.113.1") && contains("::", 0, "2001:db8::1"));
        assert!(!contains("10.0.0.1", 0, "::1") && !contains("::", 0, "10.0.0.1"));
        let network = |ip: &str, prefix| Network::of(ip.parse().unwrap(), prefix);
        assert!(network("10.0.0.0", 8).overlaps(network("10.1.0.0", 16)));
        assert!(network("10.1.0.0", 16).overlaps(network("10.0.0.0", 8)));
        assert!(!network("10.1.0.0", 16).overlaps(network("10.2.0.0", 16)));
        assert!(contains("2001:db8::1", 128, "2001:db8::1") && !contains("2001:db8::1", 128, "2001:db8::2"));
    }
}
