//! Kernel program for steering and for dedicated addresses. For each packet of a new connection, and each datagram without a connected
//! socket, it looks up a verdict and assigns a socket to steered traffic (Documentation/bpf/prog_sk_lookup.rst in the kernel).

mod program;
mod source_sets;
mod verdicts;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::listener::allowed_sources::AllowedSources;
use crate::sys::bpf::map::{self, Map};
use crate::sys::bpf::sk_lookup::Attached;
use sheave_model::AddressSet;
use sheave_model::FrontendAddr;
use source_sets::{SourceSet, SourceSets};
pub(super) use verdicts::{Verdict, VerdictMap};

/// Number of socket kinds, one for each protocol and address family. In the map of sockets the sinks of all kinds follow the sockets.
pub(super) const SOCKET_KINDS: i32 = 4;

/// Keeps the source set of a frontend in the kernel until dropped.
#[derive(Debug)]
pub(super) struct SourceSetLease(#[expect(dead_code, reason = "kept for its drop")] Option<Arc<SourceSet>>);

/// The attached program with its maps.
#[derive(Debug)]
pub(super) struct SkLookup {
    /// Dropped first: without the maps the program would refuse everything.
    _attached: Attached,
    /// Verdicts on packets of each frontend, and on other packets to its address.
    pub(super) verdicts: VerdictMap,
    source_sets: SourceSets,
    sockets: Map<4, 4>,
}

impl SkLookup {
    /// Loads and attaches the program, without any verdict.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `EPERM` without the privilege.
    pub(super) fn new() -> io::Result<Self> {
        let (verdicts, source_sets) = (VerdictMap::new()?, SourceSets::new()?);
        let sockets = Map::new(map::MapKind::Sockets, 2 * SOCKET_KINDS as usize)?;
        let program = program::program(verdicts.map(), source_sets.map(), &sockets);
        let attached = Attached::new(&program, program::NAME)?;
        Ok(Self { _attached: attached, verdicts, source_sets, sockets })
    }

    /// Directs packets of one kind to this socket, or to this sink if they are to be dropped.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails.
    pub(super) fn set_sockets(&self, kind: usize, socket: impl AsFd, sink: impl AsFd) -> io::Result<()> {
        let set = |index: usize, fd: i32| self.sockets.put(&(index as u32).to_ne_bytes(), &fd.to_ne_bytes());
        set(kind, socket.as_fd().as_raw_fd())?;
        set(kind + SOCKET_KINDS as usize, sink.as_fd().as_raw_fd())
    }

    /// The verdict on packets to `addr` that allows these sources, and a lease on the set in which they are looked up.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `ENOSPC` if there are too many prefixes.
    pub(super) fn verdict(
        &mut self,
        addr: FrontendAddr,
        sources: &AddressSet,
    ) -> io::Result<(Verdict, SourceSetLease)> {
        if sources.has_family(addr.ip) {
            return Ok((Verdict::Forward, SourceSetLease(None)));
        }
        if sources.of_family(addr.ip).intervals() == 0 {
            return Ok((Verdict::Ignore, SourceSetLease(None)));
        }
        let allowed = AllowedSources::new(sources, addr.ip);
        let itself = allowed.itself;
        let source_set = self.source_sets.get(allowed)?;
        Ok((Verdict::Listed { source_set: source_set.number(), itself }, SourceSetLease(Some(source_set))))
    }
}
