//! Which names the API takes for host names. Knows nothing of who has one.

use std::net::IpAddr;

/// Of a DNS name (RFC 1123) and of each of its labels, in bytes.
const DNS_NAME: usize = 253;
const DNS_LABEL: usize = 63;

/// Whether it may be an `ingress[].hostname`: a DNS subdomain (RFC 1123) in small letters that is no address.
pub(crate) fn is_valid(name: &str) -> bool {
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
    fn a_host_name_is_what_karmada_takes_for_one() {
        for good in ["a", "web.example.com", "1a.2b", "x-y.z", "1.2.3.4.example"] {
            assert!(is_valid(good), "{good}");
        }
        let long = ["a"; 128].join(".");
        for bad in ["", "Web", "a_b", "-a", "a-", "a..b", "a.", "203.0.113.7", "::1", long.as_str()] {
            assert!(!is_valid(bad), "{bad}");
        }
    }
}
