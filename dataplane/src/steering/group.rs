//! The sockets that steered packets come to: for each protocol and family one per worker, among which the kernel chooses
//! as it does in any group of `SO_REUSEPORT`, and one that drops everything.
//!
//! It must not know frontends.

use std::io;
use std::sync::Arc;

use sheave_model::{FrontendAddr, Protocol};
use socket2::Socket;

use crate::admitted::Family;
use crate::listener::bind;

/// Kinds of sockets; behind them in the map is the sink of each.
pub(super) const SINKS: i32 = 4;

/// A protocol of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    protocol: Protocol,
    family: Family,
}

impl Kind {
    /// That of a frontend.
    pub(super) fn of(addr: FrontendAddr) -> Self {
        Self { protocol: addr.protocol, family: Family::of(addr.ip) }
    }

    /// Its place in the map of sockets: IPv4 before IPv6, TCP before UDP.
    pub(super) fn index(self) -> usize {
        usize::from(self.family == Family::V6) + 2 * usize::from(self.protocol == Protocol::Udp)
    }
}

/// The sockets of one kind.
#[derive(Debug)]
pub(super) struct Group {
    /// Where they are bound.
    pub(super) addr: FrontendAddr,
    /// One per worker.
    pub(super) sockets: Vec<Arc<Socket>>,
    /// Takes what is to vanish.
    pub(super) sink: Socket,
}

impl Group {
    /// Opens them.
    ///
    /// # Errors
    /// As socket(2), bind(2) and listen(2).
    pub(super) fn open(kind: Kind, workers: usize) -> io::Result<Self> {
        let Kind { protocol, family } = kind;
        let (addr, sockets) = bind::steered(protocol, family, workers)?;
        Ok(Self { addr, sockets, sink: bind::sink(protocol, family)? })
    }
}
