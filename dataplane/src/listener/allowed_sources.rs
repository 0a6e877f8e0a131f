//! The sources that a frontend allows, in the form in which the kernel looks them up: equal for as many frontends as possible, and
//! with the shorter of two lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use sheave_model::AddressSet;

/// The family of a socket.
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

    /// Offset of the source address in the header of a packet (RFC 791, RFC 8200). The destination follows.
    pub(crate) const fn source_offset(self) -> u8 {
        match self {
            Self::V4 => 12,
            Self::V6 => 8,
        }
    }

    /// Bytes of an address.
    pub(crate) const fn address_length(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }
}

/// Whom a socket admits, in a form that is the same for as many sockets as possible.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AllowedSources {
    pub(crate) family: Family,
    /// Of that family alone.
    pub(crate) others: AddressSet,
    /// The socket's own address as a source, if it is not among the others. Frontends that admit the cluster admit
    /// themselves too: with their addresses in the set no two sets would be the same.
    pub(crate) itself: bool,
}

impl AllowedSources {
    /// Whom a socket with this address admits.
    pub(crate) fn new(set: &AddressSet, own: IpAddr) -> Self {
        let sources = set.of_family(own);
        let others = sources.without(own);
        // Taking an address out of a wider interval leaves as many intervals, or more.
        let itself = others.intervals() < sources.intervals();
        Self { family: Family::of(own), others: if itself { others } else { sources }, itself }
    }

    /// The prefixes to look up, and what they are: whichever takes fewer of the admitted and the refused. "All but these"
    /// would take dozens of prefixes for each of these.
    pub(crate) fn listed(&self) -> (Vec<IpNet>, Listed) {
        let admitted = self.others.cidrs();
        let refused = self.others.complement().of_family(self.family.any()).cidrs();
        if refused.len() < admitted.len() { (refused, Listed::Denied) } else { (admitted, Listed::Allowed) }
    }
}

/// What prefixes in a list are; all other addresses are the opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Allowed,
    Denied,
}
