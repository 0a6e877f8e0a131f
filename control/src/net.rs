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

/// Largest length of a DNS name (RFC 1123) in bytes, and so of the name of an object.
pub(crate) const DNS_NAME: usize = 253;
/// Largest length of a label of a DNS name.
const DNS_LABEL: usize = 63;

/// Whether it can be an `ingress[].hostname`: a lowercase DNS subdomain (RFC 1123) that is not an address.
pub(crate) fn is_host_name(name: &str) -> bool {
    name.len() <= DNS_NAME && name.split('.').all(is_dns_label) && name.parse::<IpAddr>().is_err()
}

/// Whether an object may have this name: a lowercase DNS subdomain. The API server limits its whole length alone (`IsDNS1123Subdomain`
/// in apimachinery/pkg/util/validation).
pub(crate) fn is_object_name(name: &str) -> bool {
    name.len() <= DNS_NAME && name.split('.').all(has_form_of_label)
}

/// Whether a Namespace or a Service may have this name: a lowercase DNS label.
pub(crate) fn is_dns_label(label: &str) -> bool {
    label.len() <= DNS_LABEL && has_form_of_label(label)
}

fn has_form_of_label(label: &str) -> bool {
    let (bytes, inside) = (label.as_bytes(), |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    bytes.first().is_some_and(inside)
        && bytes.last().is_some_and(inside)
        && bytes.iter().all(|it| inside(it) || *it == b'-')
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

    #[test]
    fn labels_are_those_of_rfc_1123() {
        let longest = "a".repeat(63);
        assert!(["a", "0", "a-b", &longest].iter().all(|it| is_dns_label(it)));
        let longer = "a".repeat(64);
        assert!(!["", "-a", "a-", "A", "a.b", "a_b", "ä", "a\n", &longer].iter().any(|it| is_dns_label(it)));
    }
}
