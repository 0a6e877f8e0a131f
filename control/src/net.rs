//! Addresses and host names as the API writes them: IP families, and which addresses can carry traffic.

use std::fmt;
use std::net::IpAddr;

/// IPv4 or IPv6, named as in `ipFamilies` and `addressType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// Both families, in the order in which they are listed.
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The family with the API's name `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Parses an address of a Service, slice, Node or pool; the error states why it cannot carry traffic.
///
/// Accepts loopback addresses, although the API server rejects them for endpoints: manifests may describe a single machine.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, &'static str> {
    let ip: IpAddr = text.trim().parse().map_err(|_| "is not an IP address")?;
    let ip = ip.to_canonical();
    let refused = match ip {
        IpAddr::V4(v4) if v4.is_broadcast() => Some("is the broadcast address"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("is link-local and would need an interface"),
        _ if ip.is_unspecified() => Some("is the unspecified address"),
        _ if ip.is_multicast() => Some("is a multicast address"),
        _ => None,
    };
    refused.map_or(Ok(ip), Err)
}

/// Largest lengths of a DNS name (RFC 1123) and of each of its labels, in bytes.
const DNS_NAME: usize = 253;
const DNS_LABEL: usize = 63;

/// Whether it can be an `ingress[].hostname`: a lowercase DNS subdomain (RFC 1123) that is not an address.
pub(crate) fn is_host_name(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.len() <= DNS_LABEL
            && bytes.first().is_some_and(|it| inside(*it))
            && bytes.last().is_some_and(|it| inside(*it))
            && bytes.iter().all(|it| inside(*it) || *it == b'-')
    };
    name.len() <= DNS_NAME && name.split('.').all(is_label) && name.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_carry_traffic_are_refused() {
        for text in
            ["", "a.b", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "fe80::1", "10.0.0.1/8"]
        {
            assert!(parse_ip(text).is_err(), "{text}");
        }
    }

    #[test]
    fn blanks_are_trimmed_and_mapped_addresses_are_ipv4() {
        assert_eq!(parse_ip(" 10.0.0.1 "), Ok(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(parse_ip("::ffff:10.0.0.1").map(Family::of), Ok(Family::V4));
        assert_eq!(parse_ip("127.0.0.1"), Ok(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn a_host_name_is_what_karmada_takes_for_one() {
        for good in ["a", "web.example.com", "1a.2b", "x-y.z", "1.2.3.4.example"] {
            assert!(is_host_name(good), "{good}");
        }
        let long = ["a"; 128].join(".");
        for bad in ["", "Web", "a_b", "-a", "a-", "a..b", "a.", "203.0.113.7", "::1", long.as_str()] {
            assert!(!is_host_name(bad), "{bad}");
        }
    }
}
