//! An entry of `spec.addresses` as an interval of addresses. It is never enumerated: `fd00::/64` costs as much as a single
//! address.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::holders::UsedAddresses;
use crate::net;
use crate::net::Family;

/// Addresses from `first` to `last`, inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressRange {
    family: Family,
    first: u128,
    last: u128,
    /// Addresses to leave out because equipment mishandles them, if the pool avoids those.
    buggy: AvoidedAddresses,
    /// Start of the search: every address before it is in use or left out.
    cursor: u128,
}

/// Addresses that a range leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AvoidedAddresses {
    /// No addresses.
    Allowed,
    /// IPv4 addresses that end in .0 or .255, which old equipment treats as network and broadcast addresses.
    Ends,
    /// The subnet-router anycast address of an IPv6 CIDR (RFC 4291, 2.6.1).
    Anycast(u128),
}

/// Intervals that no frontend can listen on: unspecified, multicast, reserved, and link-local IPv6 addresses.
const SPECIAL: [(Family, u128, u128); 5] = [
    (Family::V4, 0, 0x00ff_ffff),
    (Family::V4, 0xe000_0000, 0xffff_ffff),
    (Family::V6, 0, 0),
    (Family::V6, 0xfe80 << 112, (0xfec0 << 112) - 1),
    (Family::V6, 0xff00 << 112, u128::MAX),
];

impl AddressRange {
    /// Parses a CIDR, a range or a single address; the error describes the mistake.
    pub(crate) fn read(entry: &str, avoid_buggy: bool) -> Result<Self, &'static str> {
        let entry = entry.trim();
        let (first, last) = if let Ok(cidr) = entry.parse::<IpNet>() {
            (cidr.network().to_canonical(), cidr.broadcast().to_canonical())
        } else if let Some((first, last)) = entry.split_once('-') {
            (net::parse_ip(first)?, net::parse_ip(last)?)
        } else {
            let ip = net::parse_ip(entry)?;
            (ip, ip)
        };
        let family = Family::of(first);
        if Family::of(last) != family {
            return Err("mixes IPv4 and IPv6");
        }
        let (first, last) = (number(first), number(last));
        if first > last {
            return Err("ends before it begins");
        }
        if SPECIAL.iter().any(|(of, from, to)| *of == family && first <= *to && *from <= last) {
            return Err("holds unspecified, link-local, multicast or reserved addresses");
        }
        let buggy = match family {
            _ if !avoid_buggy => AvoidedAddresses::Allowed,
            Family::V4 => AvoidedAddresses::Ends,
            // Only subnets have the anycast address, and /127 links do not use it (RFC 6164).
            Family::V6 if entry.contains('/') && last - first > 1 => AvoidedAddresses::Anycast(first),
            Family::V6 => AvoidedAddresses::Allowed,
        };
        Ok(Self { family, first, last, buggy, cursor: first })
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.spans(ip) && !self.leaves_out(number(ip))
    }

    /// Whether an address is between its ends, left out or not.
    pub(crate) fn spans(&self, ip: IpAddr) -> bool {
        let number = number(ip);
        Family::of(ip) == self.family && self.first <= number && number <= self.last
    }

    /// Whether both contain some common address, left out or not.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    /// The lowest address that is not in use.
    pub(super) fn first_free(&mut self, used: &UsedAddresses) -> Option<IpAddr> {
        while self.cursor <= self.last {
            let ip = address(self.family, self.cursor);
            if !self.leaves_out(self.cursor) && used.is_free(ip) {
                return Some(ip);
            }
            // No overflow: the highest addresses of both families are reserved.
            self.cursor += 1;
        }
        None
    }

    /// Makes the search find `ip` again.
    pub(super) fn freed(&mut self, ip: IpAddr) {
        if self.contains(ip) {
            self.cursor = self.cursor.min(number(ip));
        }
    }

    fn leaves_out(&self, number: u128) -> bool {
        match self.buggy {
            AvoidedAddresses::Allowed => false,
            AvoidedAddresses::Ends => matches!(number & 0xff, 0 | 0xff),
            AvoidedAddresses::Anycast(anycast) => number == anycast,
        }
    }
}

/// Number of addresses that the ranges of one pool can allocate, counting addresses in several ranges once.
pub(super) fn size(ranges: &[AddressRange]) -> u128 {
    let mut sorted: Vec<&AddressRange> = ranges.iter().collect();
    sorted.sort_unstable_by_key(|range| (range.family == Family::V6, range.first, range.last));
    let mut merged: Vec<(&AddressRange, u128)> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some((first, last)) if first.family == range.family && range.first <= *last => {
                *last = range.last.max(*last);
            }
            _ => merged.push((range, range.last)),
        }
    }
    let all = merged.iter().fold(0_u128, |sum, (range, last)| {
        let ends = match range.buggy {
            AvoidedAddresses::Ends => ends_up_to(*last) - range.first.checked_sub(1).map_or(0, ends_up_to),
            AvoidedAddresses::Allowed | AvoidedAddresses::Anycast(_) => 0,
        };
        sum.saturating_add((last - range.first).saturating_add(1) - ends)
    });
    // An anycast address that another range does not leave out is subtracted, too: it is one of 2^64.
    let anycast: BTreeSet<u128> = ranges
        .iter()
        .filter_map(|range| if let AvoidedAddresses::Anycast(ip) = range.buggy { Some(ip) } else { None })
        .collect();
    all - anycast.len() as u128
}

/// How many numbers up to this one end in .0 or .255.
fn ends_up_to(number: u128) -> u128 {
    2 * (number >> 8) + 1 + u128::from(number & 0xff == 0xff)
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        // The numbers of an IPv4 range fit in 32 bits by construction.
        Family::V4 => Ipv4Addr::from(number as u32).into(),
        Family::V6 => Ipv6Addr::from(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first addresses of an entry if each one stays in use.
    fn given(entry: &str, avoid_buggy: bool, at_most: usize) -> Vec<String> {
        let mut range = AddressRange::read(entry, avoid_buggy).unwrap();
        let mut used = UsedAddresses::default();
        std::iter::from_fn(|| {
            let ip = range.first_free(&used)?;
            assert!(used.add(ip, &"shop".into()));
            Some(ip.to_string())
        })
        .take(at_most)
        .collect()
    }

    #[test]
    fn addresses_are_given_in_order() {
        assert_eq!(
            given("203.0.113.8/30", false, 9),
            ["203.0.113.8", "203.0.113.9", "203.0.113.10", "203.0.113.11"]
        );
        assert_eq!(given(" 10.0.0.255 - 10.0.1.1 ", false, 9), ["10.0.0.255", "10.0.1.0", "10.0.1.1"]);
        assert_eq!(given("2001:db8::7", false, 9), ["2001:db8::7"]);
        assert_eq!(given("fd00::/64", false, 2), ["fd00::", "fd00::1"]);
    }

    #[test]
    fn addresses_that_equipment_mishandles_are_left_out_on_request() {
        assert_eq!(given("10.0.0.254-10.0.1.1", true, 9), ["10.0.0.254", "10.0.1.1"]);
        assert_eq!(given("fd00::/64", true, 1), ["fd00::1"]);
        assert_eq!(given("fd00::/127", true, 9), ["fd00::", "fd00::1"]);
        assert_eq!(given("fd00::-fd00::1", true, 9), ["fd00::", "fd00::1"]);
    }

    #[test]
    fn its_size_is_how_many_it_gives() {
        for (entry, avoid) in [
            ("10.0.0.254-10.0.1.1", true),
            ("10.0.0.0/22", true),
            ("10.0.0.0/22", false),
            ("10.0.0.255", true),
            ("10.0.0.1-10.0.0.254", true),
            ("fd00::/120", true),
            ("fd00::/127", true),
        ] {
            let range = AddressRange::read(entry, avoid).unwrap();
            assert_eq!(size(&[range]), given(entry, avoid, 2000).len() as u128, "{entry}");
        }
    }

    #[test]
    fn what_several_ranges_hold_counts_once() {
        let read = |entry: &&str| AddressRange::read(entry, true).unwrap();
        let overlapping =
            ["10.0.0.3-10.0.0.6", "10.0.0.1-10.0.0.4", "10.0.0.2", "10.0.0.250-10.0.1.1", "fd00::1"];
        assert_eq!(size(&overlapping.iter().map(read).collect::<Vec<_>>()), 6 + 6 + 1);
    }

    #[test]
    fn a_freed_address_is_found_again() {
        let mut range = AddressRange::read("10.0.0.0/8", false).unwrap();
        let first = range.first_free(&UsedAddresses::default()).unwrap();
        let mut used = UsedAddresses::default();
        assert!(used.add(first, &"shop".into()));
        assert_ne!(range.first_free(&used), Some(first));
        range.freed(first);
        assert_eq!(range.first_free(&UsedAddresses::default()), Some(first));
    }

    #[test]
    fn entries_that_make_no_sense_are_refused() {
        for entry in [
            "",
            "x",
            "10.0.0.0/33",
            "10.0.0.2-10.0.0.1",
            "10.0.0.1-fd00::1",
            "0.0.0.0/0",
            "::/0",
            "224.0.0.0/4",
            "ff00::/8",
            "fe80::/64",
            "10.0.0.1-",
            "255.255.255.255",
        ] {
            assert!(AddressRange::read(entry, false).is_err(), "{entry}");
        }
    }
}
