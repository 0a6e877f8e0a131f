//! The map of verdicts: what happens to packets of each frontend, and to others at dedicated addresses.

use std::io;
use std::net::IpAddr;

use crate::sys::bpf::map::{Map, MapKind};
use sheave_model::{FrontendAddr, Protocol};

/// So many entries there may be. The kernel takes 2 MiB for a table of this size, more only for what is in it.
const MOST: usize = 1 << 17;

/// Bytes of a key: the address as IPv6 has it, port, protocol.
pub(super) const KEY: usize = 16 + 2 + 2;
/// Port and protocol of the entry for all of an address that has none of its own. A frontend's protocol is never 0.
pub(super) const ALL_ELSE: i32 = 0;
/// Bytes of a value: one of the verdicts below, the source set's number.
const VALUE: usize = 4 + 4;

/// The verdicts as the program reads them.
pub(super) const REFUSED: i32 = 0;
pub(super) const IGNORE: i32 = 1;
pub(super) const FORWARD: i32 = 2;
pub(super) const LISTED: i32 = 3;
pub(super) const PASS: i32 = 4;
/// Whatever is none of the others, for the program.
const LISTED_OR_ITSELF: i32 = 5;

/// What becomes of packets to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::listener) enum Verdict {
    /// Refused, as by a closed port.
    Refuse,
    /// They vanish.
    Ignore,
    /// The workers get them.
    Forward,
    /// The workers get those of a source set.
    Listed {
        /// Its number.
        source_set: u32,
        /// The frontend's own address belongs to it, too.
        itself: bool,
    },
    /// The kernel looks for a socket as if there were no program: they have sockets of their own.
    Pass,
}

impl Verdict {
    fn value(self) -> [u8; VALUE] {
        let (verdict, source_set) = match self {
            Self::Refuse => (REFUSED, 0),
            Self::Ignore => (IGNORE, 0),
            Self::Forward => (FORWARD, 0),
            Self::Listed { source_set, itself: false } => (LISTED, source_set),
            Self::Listed { source_set, itself: true } => (LISTED_OR_ITSELF, source_set),
            Self::Pass => (PASS, 0),
        };
        let mut value = [0; VALUE];
        value[..4].copy_from_slice(&verdict.to_ne_bytes());
        value[4..].copy_from_slice(&source_set.to_ne_bytes());
        value
    }
}

/// An address of either family as the program has it.
pub(super) fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn key(addr: FrontendAddr) -> [u8; KEY] {
    let protocol = match addr.protocol {
        Protocol::Tcp => libc::IPPROTO_TCP,
        Protocol::Udp => libc::IPPROTO_UDP,
    };
    key_at(addr.ip, i32::from(addr.port) | protocol << 16)
}

fn key_at(ip: IpAddr, place: i32) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..16].copy_from_slice(&address(ip));
    key[16..].copy_from_slice(&place.to_ne_bytes());
    key
}

/// The map of all verdicts.
#[derive(Debug)]
pub(in crate::listener) struct VerdictMap(Map<KEY, VALUE>);

impl VerdictMap {
    /// None yet.
    ///
    /// # Errors
    /// As bpf(2).
    pub(super) fn new() -> io::Result<Self> {
        Map::new(MapKind::Hash, MOST).map(Self)
    }

    /// The map itself.
    pub(super) fn map(&self) -> &Map<KEY, VALUE> {
        &self.0
    }

    /// From now on this becomes of packets to `addr`.
    ///
    /// # Errors
    /// As bpf(2): `E2BIG` if there are too many.
    pub(in crate::listener) fn put(&self, addr: FrontendAddr, verdict: Verdict) -> io::Result<()> {
        self.0.put(&key(addr), &verdict.value())
    }

    /// From now on packets to `addr` are none of ours, unless all else at its address is refused.
    pub(in crate::listener) fn remove(&self, addr: FrontendAddr) {
        if let Err(error) = self.0.remove(&key(addr)) {
            tracing::debug!(frontend = %addr, %error, "had no verdict");
        }
    }

    /// From now on packets to this address are refused, unless they have a verdict of their own.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(in crate::listener) fn refuse_all_else(&self, ip: IpAddr) -> io::Result<()> {
        self.0.put(&key_at(ip, ALL_ELSE), &Verdict::Refuse.value())
    }

    /// Takes that back.
    pub(in crate::listener) fn pass_all_else(&self, ip: IpAddr) {
        if let Err(error) = self.0.remove(&key_at(ip, ALL_ELSE)) {
            tracing::debug!(%ip, %error, "was not dedicated");
        }
    }
}
