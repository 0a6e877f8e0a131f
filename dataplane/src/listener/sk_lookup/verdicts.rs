//! Map of verdicts: what happens to packets of each frontend, and to other packets at dedicated addresses.

use std::io;
use std::net::IpAddr;

use crate::sys::bpf::map::{Map, MapKind};
use sheave_model::{FrontendAddr, Protocol};

/// Maximum number of entries. The kernel takes 2 MiB for a table of this size, and more only for its entries.
const MOST: usize = 1 << 17;

/// Length of a key: the address as IPv6, port, protocol.
pub(super) const KEY: usize = 16 + 2 + 2;
/// Port and protocol of the entry for all traffic of an address without its own entry. A frontend's protocol is never
/// 0.
pub(super) const ALL_ELSE: i32 = 0;
/// Length of a value: one of the verdicts below, and the source set's number.
const VALUE: usize = 4 + 4;

/// Verdicts as the program reads them.
pub(super) const REFUSED: i32 = 0;
pub(super) const IGNORE: i32 = 1;
pub(super) const FORWARD: i32 = 2;
pub(super) const LISTED: i32 = 3;
pub(super) const PASS: i32 = 4;
/// Any other value, for the program.
const LISTED_OR_ITSELF: i32 = 5;

/// Verdict on packets to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::listener) enum Verdict {
    /// Refused, as if by a closed port.
    Refuse,
    /// Dropped.
    Ignore,
    /// Delivered to the workers.
    Forward,
    /// Delivered to the workers if their source is in a source set, dropped otherwise.
    Listed {
        /// Number of the set.
        source_set: u32,
        /// Whether the frontend's own address is admitted, too.
        itself: bool,
    },
    /// Passed on to the kernel's socket lookup, for a frontend with its own sockets.
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

/// An address of either family in the program's format.
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

/// Map of all verdicts.
#[derive(Debug)]
pub(in crate::listener) struct VerdictMap(Map<KEY, VALUE>);

impl VerdictMap {
    /// Creates the map without verdicts.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails.
    pub(super) fn new() -> io::Result<Self> {
        Map::new(MapKind::Hash, MOST).map(Self)
    }

    pub(super) fn map(&self) -> &Map<KEY, VALUE> {
        &self.0
    }

    /// Sets the verdict on packets to `addr`.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `E2BIG` if there are too many entries.
    pub(in crate::listener) fn put(&self, addr: FrontendAddr, verdict: Verdict) -> io::Result<()> {
        self.0.put(&key(addr), &verdict.value())
    }

    /// Removes the verdict on packets to `addr`, which pass then unless the address is dedicated.
    pub(in crate::listener) fn remove(&self, addr: FrontendAddr) {
        if let Err(error) = self.0.remove(&key(addr)) {
            tracing::debug!(frontend = %addr, %error, "had no verdict");
        }
    }

    /// Refuses packets to this address that have no verdict of their own.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put).
    pub(in crate::listener) fn refuse_all_else(&self, ip: IpAddr) -> io::Result<()> {
        self.0.put(&key_at(ip, ALL_ELSE), &Verdict::Refuse.value())
    }

    /// Undoes [`refuse_all_else`](Self::refuse_all_else).
    pub(in crate::listener) fn pass_all_else(&self, ip: IpAddr) {
        if let Err(error) = self.0.remove(&key_at(ip, ALL_ELSE)) {
            tracing::debug!(%ip, %error, "was not dedicated");
        }
    }
}
