//! IP addresses and CIDRs in fields with lax validation ("legacy fields"), and addresses that endpoints and external
//! IPs must not use.

use std::net::{IpAddr, Ipv4Addr};

/// Parses like Go's lax parser: leading zeros are decimal.
fn sloppy(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let octets: Vec<u8> =
            text.split('.').map(|part| part.parse::<u16>().ok()?.try_into().ok()).collect::<Option<_>>()?;
        let digits_only = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let [a, b, c, d] = octets.try_into().ok()?;
        digits_only.then_some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
    })
}

fn has_leading_zero(text: &str) -> bool {
    text.contains('.')
        && text
            .rsplit(':')
            .next()
            .unwrap_or(text)
            .split('.')
            .any(|part| part.len() > 1 && part.starts_with('0'))
}

/// `IsValidIPForLegacyField`.
pub(crate) fn ip_errors(text: &str) -> Vec<&'static str> {
    let Some(ip) = sloppy(text) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"];
    };
    let mut errors = Vec::new();
    if has_leading_zero(text) {
        errors.push("must not have leading 0s");
    }
    if is_mapped(ip) {
        errors.push("must not be an IPv4-mapped IPv6 address");
    }
    errors
}

/// `IsValidCIDRForLegacyField`.
pub(crate) fn cidr_errors(text: &str) -> Vec<&'static str> {
    let Some((ip, address, bits)) = split_cidr(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"];
    };
    let mut errors = Vec::new();
    let prefix = text.rsplit('/').next().unwrap_or_default();
    if has_leading_zero(address) || prefix.len() > 1 && prefix.starts_with('0') {
        errors.push("must not have leading 0s in IP or prefix length");
    }
    if is_mapped(ip) {
        errors.push("must not have an IPv4-mapped IPv6 address");
    } else if ipnet::IpNet::new(ip, bits).is_ok_and(|net| net.network() != ip) {
        errors.push("must not have bits set beyond the prefix length");
    }
    errors
}

fn split_cidr(text: &str) -> Option<(IpAddr, &str, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let ip = sloppy(address)?;
    let digits_only = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let bits: u8 = digits_only.then(|| prefix.parse().ok())??;
    (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, address, bits))
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// `ValidateNonSpecialIP`.
pub(crate) fn special_ip_errors(text: &str) -> Vec<String> {
    let Some(ip) = sloppy(text) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    let mut errors = Vec::new();
    if ip.is_unspecified() {
        errors.push(format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        errors.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    let (link_local, multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        errors.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if multicast {
        errors.push("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
    errors
}

/// Canonical form (RFC 5952) of an IPv6 address that is written differently.
pub(crate) fn canonical_ip(text: &str) -> Option<String> {
    let IpAddr::V6(ip) = text.parse().ok()? else { return None };
    let canonical = ip.to_string();
    (canonical != text).then_some(canonical)
}

/// Canonical form (RFC 5952) of an IPv6 CIDR that is written differently.
pub(crate) fn canonical_cidr(text: &str) -> Option<String> {
    let (ip, _, bits) = split_cidr(text)?;
    let canonical = format!("{ip}/{bits}");
    (ip.is_ipv6() && canonical != text).then_some(canonical)
}
