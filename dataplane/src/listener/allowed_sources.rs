//! Sources that a frontend allows, normalized for lookup in the kernel: equal for as many frontends as possible, and as the
//! shorter of two lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use sheave_model::AddressSet;

/// Address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(crate) fn any(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// Offset of the source address in the header of a packet (RFC 791, RFC 8200). The destination follows it.
    pub(crate) const fn source_offset(self) -> u8 {
        match self {
            Self::V4 => 12,
            Self::V6 => 8,
        }
    }

    /// Length of an address in bytes.
    pub(crate) const fn address_length(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }
}

/// Sources that a socket admits, in a form that is equal for as many sockets as possible.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AllowedSources {
    pub(crate) family: Family,
    /// Admitted addresses of that family.
    pub(crate) others: AddressSet,
    /// Whether the socket's own address is admitted in addition to the others. Frontends that admit the cluster admit their own
    /// address, too; if the set contained that address, no two sets would be equal.
    pub(crate) itself: bool,
}

impl AllowedSources {
    /// The sources from `set` that a socket with the address `own` admits.
    pub(crate) fn new(set: &AddressSet, own: IpAddr) -> Self {
        let sources = set.of_family(own);
        let others = sources.without(own);
        // Taking an address out of a wider interval leaves at least as many intervals.
        let itself = others.intervals() < sources.intervals();
        Self { family: Family::of(own), others: if itself { others } else { sources }, itself }
    }

    /// The prefixes to look up, and whether they are allowed or denied: whichever list is shorter. A list of all addresses but a
    /// few would have dozens of prefixes for each of those.
    pub(crate) fn listed(&self) -> (Vec<IpNet>, Listed) {
        let admitted = self.others.cidrs();
        let refused = self.others.complement().of_family(self.family.any()).cidrs();
        if refused.len() < admitted.len() { (refused, Listed::Denied) } else { (admitted, Listed::Allowed) }
    }
}

/// Meaning of the prefixes in a list; all other addresses have the opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Allowed,
    Denied,
}
