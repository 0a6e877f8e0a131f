//! Source filters of listening and UDP sockets: a program in the kernel drops packets of sources that are not allowed, before the
//! handshake. The sender gets no reply, as with a firewall's DROP.

mod classic;
mod ebpf;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use socket2::{SockFilter, Socket};

use crate::listener::allowed_sources::{AllowedSources, Family};
use crate::listener::overload::SynPolicy;
use crate::sys::Errno;
use crate::sys::bpf::SocketFilter;
use crate::sys::bpf::classic::LONGEST;
use crate::weak_map::WeakMap;
use sheave_model::AddressSet;

/// Number of intervals up to which a set is a classic program; larger sets are looked up in a map if the kernel permits it.
/// Attaching a classic program of this size takes 25 us (IPv4) or 70 us (IPv6) for each socket; loading the map takes 0.5 ms, and
/// attaching its program 0.3 us. So lists of single Services need no privilege, and a large set of in-cluster clients is cheap for
/// thousands of frontends. The cost per packet is the same for both, and 0.1 us more for ten thousand intervals.
const MOST_CLASSIC: usize = 64;
/// Minimum length to which classic programs are cut.
const SHORTEST: usize = LONGEST / 64;

/// Filter that admits some sources to a socket.
///
/// Required capability:
/// - a classic program: none on UDP sockets; CAP_NET_ADMIN on TCP sockets of kernels since 2026 (`sk_attach_filter` in
///   net/core/filter.c), none on older ones;
/// - a shared program: CAP_BPF to load it, none to attach it;
/// - to detach either: none.
#[derive(Debug)]
pub(super) enum SourceFilter {
    /// No program: only the pick checks sources.
    Everyone,
    /// A classic program.
    Classic(Vec<SockFilter>),
    /// A program shared with other sockets.
    Shared(Arc<SocketFilter>),
}

impl SourceFilter {
    /// Admits no new connections, but the handshakes that have begun.
    pub(super) fn begun() -> Self {
        Self::Classic(classic::begun())
    }

    /// Replaces the socket's filter atomically; the packets and connections in its queues stay.
    ///
    /// # Errors
    /// Returns an error if setsockopt(2) fails: `ENOMEM` if the socket's option memory does not suffice.
    pub(super) fn attach(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::Everyone => match socket.detach_filter() {
                // There was no filter.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                outcome => outcome,
            },
            Self::Classic(program) => socket.attach_filter(program),
            Self::Shared(program) => program.attach(socket),
        }
    }
}

/// Keeps a shared program for a listener. Others find and share the program while it is kept.
#[derive(Debug, Default)]
pub(super) struct FilterLease {
    _program: Option<Arc<SocketFilter>>,
}

impl From<SourceFilter> for FilterLease {
    fn from(filter: SourceFilter) -> Self {
        let SourceFilter::Shared(program) = filter else { return Self::default() };
        Self { _program: Some(program) }
    }
}

/// Source of filters, which are shared where possible.
#[derive(Debug, Default)]
pub(super) struct SourceFilters {
    /// Programs by sources, kept alive by the listeners that use them.
    shared: WeakMap<AllowedSources, SocketFilter>,
    /// Whether it was logged that programs cannot be loaded.
    told: bool,
    /// Whether it was logged that no filter can be attached.
    told_of_none: bool,
    /// Whether loading was refused for good.
    refused: bool,
}

impl SourceFilters {
    /// Calls `attempt` with the filter that admits the set's addresses to sockets on `own`, and with weaker ones while the kernel
    /// refuses it. The pick checks addresses again, so with a weaker filter some clients are refused visibly, but none is
    /// admitted.
    ///
    /// With [`SynPolicy::Drop`] no client can begin a connection, but established ones continue, and so do handshakes whose SYN
    /// was answered, since the client regards those as connected.
    ///
    /// # Errors
    /// Returns the error of the last attempt.
    pub(super) fn with<T>(
        &mut self,
        set: &AddressSet,
        own: IpAddr,
        syn_policy: SynPolicy,
        mut attempt: impl FnMut(&SourceFilter) -> io::Result<T>,
    ) -> io::Result<(FilterLease, T)> {
        let mut filter = match syn_policy {
            SynPolicy::Accept => self.admitting(set, own),
            SynPolicy::Drop => SourceFilter::begun(),
        };
        let mut longest = LONGEST;
        loop {
            let error = match attempt(&filter) {
                Ok(done) => return Ok((filter.into(), done)),
                Err(error) => error,
            };
            filter = match (filter, error.raw_os_error().map(Errno::from_raw)) {
                // Socket options are charged to net.core.optmem_max, 20 KiB before Linux 6.8; a classic program takes
                // several times its length, and the one that it replaces still counts.
                (SourceFilter::Classic(_) | SourceFilter::Shared(_), Some(Errno::ENOMEM))
                    if longest > SHORTEST =>
                {
                    longest /= 2;
                    SourceFilter::Classic(classic::admitting(set, Family::of(own), longest))
                }
                // Since 2026, in stable kernels too, TCP sockets take classic programs from CAP_NET_ADMIN only.
                (SourceFilter::Classic(_), Some(Errno::EPERM)) => self.without_classic(set, own, &error),
                _ => return Err(error),
            };
        }
    }

    /// The filter to use if classic programs may not be attached.
    fn without_classic(&mut self, set: &AddressSet, own: IpAddr, error: &io::Error) -> SourceFilter {
        if let Some(program) = self.shared(AllowedSources::new(set, own)) {
            return SourceFilter::Shared(program);
        }
        if !self.told_of_none {
            tracing::info!(
                %error,
                "no filter can be attached to TCP sockets: clients that a frontend does not admit see a reset in place \
                 of silence. Give the gateway CAP_NET_ADMIN or CAP_BPF"
            );
        }
        self.told_of_none = true;
        SourceFilter::Everyone
    }

    fn admitting(&mut self, set: &AddressSet, own: IpAddr) -> SourceFilter {
        if set.has_family(own) {
            return SourceFilter::Everyone;
        }
        let large = set.of_family(own).intervals() > MOST_CLASSIC;
        let shared = if large { self.shared(AllowedSources::new(set, own)) } else { None };
        shared.map_or_else(
            || SourceFilter::Classic(classic::admitting(set, Family::of(own), LONGEST)),
            SourceFilter::Shared,
        )
    }

    fn shared(&mut self, admitted: AllowedSources) -> Option<Arc<SocketFilter>> {
        if self.refused {
            return None;
        }
        if let Some(known) = self.shared.get(&admitted) {
            return Some(known);
        }
        match admitted.load() {
            Ok(program) => {
                let program = Arc::new(program);
                self.shared.insert(admitted, &program);
                Some(program)
            }
            Err(error) => {
                self.complain(&error);
                None
            }
        }
    }

    /// Logs once what is missing. A lack of permission or support is permanent; a shortage may pass.
    fn complain(&mut self, error: &io::Error) {
        self.refused = matches!(
            error.raw_os_error().map(Errno::from_raw),
            Some(Errno::EPERM | Errno::EACCES | Errno::EINVAL | Errno::ENOSYS)
        );
        if !self.told {
            tracing::info!(
                %error,
                "no eBPF program can be loaded: source lists and client sets go by classic filters. Lists that do not \
                 fit one (about 2,000 IPv4 ranges, 350 IPv6 ranges) still hold, but some refused TCP clients see a \
                 reset in place of silence. Give the gateway CAP_BPF (CAP_SYS_ADMIN before Linux 5.8; before 5.11 \
                 RLIMIT_MEMLOCK=infinity, too) and a seccomp profile that allows bpf(2)"
            );
        }
        self.told = true;
    }
}

#[cfg(test)]
mod tests;
