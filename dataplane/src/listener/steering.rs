//! Steering: one program in the kernel assigns packets of any number of frontends to a few sockets, one per worker, protocol and
//! family. Steered frontends need no descriptors, and sockets of other processes do not block them.
//!
//! The verdicts match those of sockets: a refused frontend answers like a closed port, and packets of sources that are not
//! allowed are dropped. Only new connections and datagrams are steered: connected sockets have precedence (`__inet_lookup_skb`
//! in include/net/inet_hashtables.h, `__udp4_lib_lookup` in net/ipv4/udp.c).

pub(crate) mod frontends;
mod sockets;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use socket2::Socket;

use super::sk_lookup::{SkLookup, SourceSetLease, Verdict, VerdictMap};
use crate::counters::{FrontendCounters, KernelDrops};
use crate::sys::Errno;
use crate::worker::{Command, WorkerHandle};
use frontends::SteeredFrontends;
use sheave_model::AddressSet;
use sheave_model::FrontendAddr;
use sockets::{SocketKind, SteeringSockets};

/// Selection of the frontends that are steered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SteeringMode {
    /// Frontends for whose sockets there is no room.
    #[default]
    Auto,
    /// All frontends.
    Always,
    /// No frontend.
    Never,
}

/// How clients reach the frontends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringReport<'a> {
    /// Selection of the frontends that are steered.
    pub mode: SteeringMode,
    /// Number of frontends with their own sockets.
    pub sockets: usize,
    /// Number of steered frontends.
    pub steered: usize,
    /// Number of frontends that the kernel carries, and for which the proxy has no listener.
    pub kernel: usize,
    /// Reason why frontends cannot be steered, with advice. `None` also if no frontend needed steering yet.
    pub obstacle: Option<&'a str>,
}

/// Reason why the kernel does not steer.
#[derive(Debug)]
struct Obstacle {
    why: String,
    /// Whether it is permanent.
    lasts: bool,
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPERM) => Self {
                why: format!(
                    "the kernel does not let this process load the program ({error}): give it CAP_NET_ADMIN and CAP_BPF, \
                     outside of user namespaces, and a seccomp profile that allows bpf(2); before Linux 5.11 \
                     RLIMIT_MEMLOCK=infinity, too"
                ),
                lasts: true,
            },
            Some(Errno::EACCES) => Self {
                why: format!(
                    "the kernel's verifier refuses the program ({error}): report it with the kernel's version"
                ),
                lasts: true,
            },
            Some(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => Self {
                why: format!("the kernel does not know such programs ({error}): Linux has them since 5.9"),
                lasts: true,
            },
            _ => Self { why: error.to_string(), lasts: false },
        }
    }
}

/// All steered frontends. Dropping it ends the steering.
#[derive(Debug)]
pub(crate) struct Steering {
    mode: SteeringMode,
    frontends: Arc<SteeredFrontends>,
    kernel: Option<Kernel>,
    obstacle: Option<Obstacle>,
    /// Whether a frontend could not be steered, and the obstacle was logged.
    in_vain: bool,
    /// Sockets of the previous process, by [`SocketKind::index`].
    former: [Vec<Socket>; SocketKind::COUNT],
    drops: Arc<KernelDrops>,
}

impl Steering {
    /// Creates the state without steered frontends.
    pub(crate) fn new(mode: SteeringMode) -> Self {
        let (frontends, former, drops) = (Arc::default(), Default::default(), Arc::default());
        Self { mode, frontends, kernel: None, obstacle: None, in_vain: false, former, drops }
    }

    /// The steered frontends, for workers to look up.
    pub(crate) fn frontends(&self) -> Arc<SteeredFrontends> {
        Arc::clone(&self.frontends)
    }

    /// Kernel drops at the sockets that steered frontends share, including the sinks.
    pub(crate) fn drops(&self) -> Arc<KernelDrops> {
        Arc::clone(&self.drops)
    }

    /// Selection of the frontends that are steered.
    pub(crate) fn mode(&self) -> SteeringMode {
        self.mode
    }

    /// Reason why steering is not possible, if a frontend needed it.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        self.program_obstacle().filter(|_| self.in_vain)
    }

    /// Reason why the program cannot be attached.
    pub(super) fn program_obstacle(&self) -> Option<&str> {
        self.obstacle.as_ref().map(|obstacle| obstacle.why.as_str())
    }

    /// Whether [`is_ready`](Self::is_ready) may return true.
    pub(crate) fn may_be_ready(&self) -> bool {
        self.mode != SteeringMode::Never && !self.obstacle.as_ref().is_some_and(|obstacle| obstacle.lasts)
    }

    /// Whether frontends can be steered. Attaches the program if it is not attached yet, and logs once why that fails.
    pub(crate) fn is_ready(&mut self) -> bool {
        let asked = self.mode != SteeringMode::Never;
        let ready = asked && self.attach();
        if let Some(obstacle) = self.obstacle.as_ref().filter(|_| asked && !self.in_vain) {
            tracing::warn!(
                "no frontend can be steered, so each needs sockets of its own, as far as the limit of open files allows: {}",
                obstacle.why
            );
        }
        self.in_vain = asked && !ready;
        ready
    }

    /// Attaches the program if it is not attached yet, in any mode. Returns whether it is attached.
    pub(super) fn attach(&mut self) -> bool {
        if self.kernel.is_some() || self.obstacle.as_ref().is_some_and(|obstacle| obstacle.lasts) {
            return self.kernel.is_some();
        }
        match Kernel::new(self.drops()) {
            Ok(kernel) => {
                tracing::info!(
                    "the program that steers frontends and guards dedicated addresses is in force"
                );
                (self.kernel, self.obstacle) = (Some(kernel), None);
            }
            Err(error) => self.obstacle = Some(error.into()),
        }
        self.kernel.is_some()
    }

    /// Delivers traffic from `sources` to `addr` to the workers, and drops other traffic to `addr`. Requires that steering is
    /// [ready](Self::is_ready). For a frontend that is already steered this is atomic.
    ///
    /// # Errors
    /// Returns an error if socket(2) or bind(2) for the shared sockets fails, or bpf(2), for example because there are too many
    /// frontends or prefixes.
    pub(super) fn steer(
        &mut self,
        addr: FrontendAddr,
        sources: &AddressSet,
        counters: &Arc<[FrontendCounters]>,
        workers: &[WorkerHandle],
    ) -> io::Result<SourceSetLease> {
        let kernel = self.kernel.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        let kind = SocketKind::of(addr);
        kernel.open(kind, std::mem::take(&mut self.former[kind.index()]), workers)?;
        let (verdict, lease) = kernel.program.verdict(addr, sources)?;
        self.frontends.insert(addr, counters);
        kernel.program.verdicts.put(addr, verdict)?;
        Ok(lease)
    }

    /// Makes the kernel refuse traffic to `addr`. The frontend's source set may be dropped afterwards.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails.
    pub(super) fn refuse(&mut self, addr: FrontendAddr) -> io::Result<()> {
        self.frontends.remove(addr);
        self.kernel.as_ref().map_or(Ok(()), |kernel| kernel.program.verdicts.put(addr, Verdict::Refuse))
    }

    /// Counts with these counters at a steered frontend from now on.
    pub(super) fn count_with(&self, addr: FrontendAddr, counters: &Arc<[FrontendCounters]>) {
        self.frontends.insert(addr, counters);
    }

    /// Removes the verdict on traffic to `addr`.
    pub(super) fn forget(&mut self, addr: FrontendAddr) {
        self.frontends.remove(addr);
        if let Some(kernel) = &self.kernel {
            kernel.program.verdicts.remove(addr);
        }
    }

    /// Makes the kernel look for a socket for traffic to `addr`, even at a dedicated address. Requires that the program is
    /// [attached](Self::attach).
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails because there are too many entries.
    pub(super) fn pass(&self, addr: FrontendAddr) -> io::Result<()> {
        self.verdicts()?.put(addr, Verdict::Pass)
    }

    /// Makes the kernel refuse traffic to this address that has no verdict of its own.
    ///
    /// # Errors
    /// Returns the errors of [`pass`](Self::pass).
    pub(super) fn refuse_all_else(&self, ip: IpAddr) -> io::Result<()> {
        self.verdicts()?.refuse_all_else(ip)
    }

    /// Undoes [`refuse_all_else`](Self::refuse_all_else).
    pub(super) fn pass_all_else(&self, ip: IpAddr) {
        if let Ok(verdicts) = self.verdicts() {
            verdicts.pass_all_else(ip);
        }
    }

    fn verdicts(&self) -> io::Result<&VerdictMap> {
        let kernel = self.kernel.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        Ok(&kernel.program.verdicts)
    }

    /// Discards the group of sockets that this one belongs to, to be [restored](Self::restore). Returns false if it belongs to
    /// none.
    pub(crate) fn discard(&mut self, socket: &Arc<Socket>) -> bool {
        let has_it = |slot: &&mut OpenSockets| {
            slot.open.iter().flat_map(|open| &open.sockets).any(|own| Arc::ptr_eq(own, socket))
        };
        let Some(slot) = self.kernel.iter_mut().flat_map(|kernel| &mut kernel.sockets).find(has_it) else {
            return false;
        };
        // Read while the sink still exists.
        self.drops.packets();
        slot.open = None;
        true
    }

    /// Gives a restarted worker the sockets that it had.
    pub(crate) fn serve_again(&self, index: usize, worker: &WorkerHandle) {
        for open in
            self.kernel.iter().flat_map(|kernel| &kernel.sockets).filter_map(|slot| slot.open.as_ref())
        {
            if let Some(socket) = open.sockets.get(index) {
                worker.send(Command::Steer { addr: open.addr, socket: Arc::clone(socket) });
            }
        }
    }

    /// Reopens the sockets that were discarded.
    pub(crate) fn restore(&mut self, workers: &[WorkerHandle]) {
        let Some(kernel) = &mut self.kernel else { return };
        let discarded = kernel.sockets.iter().filter(|slot| slot.open.is_none());
        for kind in discarded.filter_map(|slot| slot.kind).collect::<Vec<_>>() {
            if let Err(error) = kernel.open(kind, Vec::new(), workers) {
                tracing::warn!(%error, "cannot open the sockets of steered frontends again");
            }
        }
    }

    /// The sockets that receive packets of steered frontends, each with its own address and the index of its worker.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (FrontendAddr, usize, &Arc<Socket>)> {
        let open =
            self.kernel.iter().flat_map(|kernel| &kernel.sockets).filter_map(|slot| slot.open.as_ref());
        open.flat_map(|open| {
            open.sockets.iter().enumerate().map(|(worker, socket)| (open.addr, worker, socket))
        })
    }

    /// Stores sockets of the previous process: those of one address, one per worker.
    pub(super) fn take_over(&mut self, addr: FrontendAddr, sockets: Vec<Socket>) {
        self.former[SocketKind::of(addr).index()] = sockets;
    }

    /// Closes the former sockets that no frontend needs.
    pub(super) fn forget_former(&mut self) {
        self.former = Default::default();
    }

    /// Ends the steering of this process, since another one steers.
    pub(super) fn leave(&mut self) {
        self.drops.count_at([]);
        self.kernel = None;
    }

    /// Releases the sockets, so that only the workers hold them. The program stays attached for the workers.
    pub(crate) fn release(&mut self) {
        self.drops.count_at([]);
        for slot in self.kernel.iter_mut().flat_map(|kernel| &mut kernel.sockets) {
            if let Some(open) = &mut slot.open {
                open.sockets.clear();
            }
        }
    }
}

/// The program with the sockets of each kind.
#[derive(Debug)]
struct Kernel {
    program: SkLookup,
    /// By [`SocketKind::index`].
    sockets: [OpenSockets; SocketKind::COUNT],
    drops: Arc<KernelDrops>,
}

/// Sockets of one kind, if a frontend needs them.
#[derive(Debug, Default)]
struct OpenSockets {
    /// Set once there is a frontend of this kind.
    kind: Option<SocketKind>,
    open: Option<SteeringSockets>,
}

impl Kernel {
    fn new(drops: Arc<KernelDrops>) -> io::Result<Self> {
        Ok(Self { program: SkLookup::new()?, sockets: Default::default(), drops })
    }

    /// Ensures that sockets of this kind are open and served by the workers; uses the former ones if there are any.
    fn open(&mut self, kind: SocketKind, former: Vec<Socket>, workers: &[WorkerHandle]) -> io::Result<()> {
        let slot = &mut self.sockets[kind.index()];
        slot.kind = Some(kind);
        if slot.open.is_some() {
            return Ok(());
        }
        let opened = if former.len() == workers.len() {
            SteeringSockets::with(kind, former)?
        } else {
            SteeringSockets::open(kind, workers.len())?
        };
        // One is enough: the kernel selects among all sockets that share its address.
        if let Some(socket) = opened.sockets.first() {
            self.program.set_sockets(kind.index(), socket, &opened.sink)?;
        }
        for (worker, socket) in workers.iter().zip(&opened.sockets) {
            worker.send(Command::Steer { addr: opened.addr, socket: Arc::clone(socket) });
        }
        slot.open = Some(opened);
        self.count_drops();
        Ok(())
    }

    fn count_drops(&self) {
        let open = self.sockets.iter().filter_map(|slot| slot.open.as_ref());
        self.drops.count_at(open.flat_map(|open| open.sockets.iter().chain([&open.sink])));
    }
}

#[cfg(test)]
pub(super) mod tests;
