//! Steering: one program in the kernel gives what comes for any number of frontends to a few sockets, one per worker,
//! protocol and family. So frontends need no descriptors, and no socket of another process is in their way.
//!
//! The verdicts are those of sockets: a refused frontend is answered as a closed port, what is not admitted vanishes.
//! Only new connections and datagrams are steered: connected sockets come first (`__inet_lookup_skb` in
//! include/net/inet_hashtables.h, `__udp4_lib_lookup` in net/ipv4/udp.c).
//!
//! It must not know which frontends are to be steered, or what the workers do with what they get.

mod audiences;
mod entries;
mod group;
mod program;
mod register;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use sheave_model::{AddressSet, FrontendAddr, Protocol};
use socket2::Socket;

use crate::admitted::Admitted;
use crate::counters::FrontendCounters;
use crate::sys::Errno;
use crate::sys::ebpf::map::{self, Map};
use crate::sys::ebpf::socket_lookup::Attached;
use crate::worker::{Command, WorkerHandle};

use audiences::{Audience, Audiences};
pub(crate) use entries::Refusal;
use entries::{Entries, Verdict};
use group::{Group, Kind, SINKS};
pub(crate) use register::Register;

/// Which frontends are steered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SteeringMode {
    /// Those for whose sockets there is no room.
    #[default]
    Auto,
    /// All.
    Always,
    /// None.
    Never,
}

/// How clients reach the frontends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringReport<'a> {
    /// Which frontends are to be steered.
    pub mode: SteeringMode,
    /// Frontends that have sockets of their own.
    pub sockets: usize,
    /// Frontends that are steered.
    pub steered: usize,
    /// Why none can be, and what to do about it. `None` also if nothing had to be steered yet.
    pub obstacle: Option<&'a str>,
}

/// What keeps the kernel from steering.
#[derive(Debug)]
struct Obstacle {
    why: String,
    /// It will not go away by itself.
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

/// Whom a frontend admits, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Admission(#[expect(dead_code, reason = "kept for its drop")] Option<Arc<Audience>>);

/// All steered frontends. Dropping it ends the steering.
#[derive(Debug)]
pub(crate) struct Steering {
    mode: SteeringMode,
    register: Arc<Register>,
    kernel: Option<Kernel>,
    obstacle: Option<Obstacle>,
    /// Where this process listens for other ends.
    reserved: BTreeSet<SocketAddr>,
    /// The addresses of this machine itself, where other processes listen as of right.
    machine: BTreeSet<IpAddr>,
}

impl Steering {
    /// Steers nothing yet.
    pub(crate) fn new(mode: SteeringMode) -> Self {
        Self {
            mode,
            register: Arc::default(),
            kernel: None,
            obstacle: None,
            reserved: BTreeSet::new(),
            machine: BTreeSet::new(),
        }
    }

    /// What workers ask.
    pub(crate) fn register(&self) -> Arc<Register> {
        Arc::clone(&self.register)
    }

    /// Which frontends are to be steered.
    pub(crate) fn mode(&self) -> SteeringMode {
        self.mode
    }

    /// Why nothing can be steered.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_ref().map(|obstacle| obstacle.why.as_str())
    }

    /// Whether it is worth while to ask [`is_ready`](Self::is_ready).
    pub(crate) fn may_be_ready(&self) -> bool {
        self.mode != SteeringMode::Never && !self.obstacle.as_ref().is_some_and(|obstacle| obstacle.lasts)
    }

    /// Whether frontends can be steered. Puts the program in force if it is not yet; says once why it cannot.
    pub(crate) fn is_ready(&mut self) -> bool {
        if self.kernel.is_some() || !self.may_be_ready() {
            return self.kernel.is_some();
        }
        match Kernel::new() {
            Ok(kernel) => {
                tracing::info!("the program that steers frontends is in force");
                (self.kernel, self.obstacle) = (Some(kernel), None);
                true
            }
            Err(error) => {
                let obstacle = Obstacle::from(error);
                if self.obstacle.is_none() {
                    tracing::warn!(
                        "no frontend can be steered, so each needs sockets of its own, as far as the limit of open files \
                         allows: {}",
                        obstacle.why
                    );
                }
                self.obstacle = Some(obstacle);
                false
            }
        }
    }

    /// Gives the workers what clients from `sources` send to `addr`; what others send vanishes. Only once it is
    /// [ready](Self::is_ready). If it was steered before, that changes in one step.
    ///
    /// # Errors
    /// `AddrInUse` where this process listens for other ends; as bpf(2) if there are too many frontends or prefixes, or as
    /// socket(2).
    pub(crate) fn steer(
        &mut self,
        addr: FrontendAddr,
        sources: &AddressSet,
        counters: &[FrontendCounters],
        workers: &[WorkerHandle],
    ) -> io::Result<Admission> {
        if self.is_reserved(addr) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "this gateway listens there for other ends",
            ));
        }
        let kernel = self.kernel.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        kernel.open(Kind::of(addr), workers)?;
        let (verdict, audience) = kernel.judge(addr, sources)?;
        self.register.insert(addr, counters);
        kernel.entries.put(addr, verdict)?;
        Ok(Admission(audience))
    }

    /// Has the kernel refuse what comes for `addr`, whomever it admitted before. For datagrams that waits until the answer is
    /// dropped, so that the flows there can be given sockets of their own first.
    ///
    /// # Errors
    /// As [`steer`](Self::steer).
    pub(crate) fn refuse(
        &mut self,
        addr: FrontendAddr,
        admission: Option<Admission>,
    ) -> io::Result<Option<Arc<Refusal>>> {
        let known = self.register.remove(addr);
        let Some(kernel) = self.kernel.as_ref().filter(|_| !self.is_reserved(addr)) else { return Ok(None) };
        if known && addr.protocol == Protocol::Udp {
            return Ok(Some(Arc::new(kernel.entries.refuse_later(addr, admission))));
        }
        kernel.entries.put(addr, Verdict::Refuse).map(|()| None)
    }

    /// From now on what comes for `addr` is none of ours.
    pub(crate) fn forget(&mut self, addr: FrontendAddr) {
        self.register.remove(addr);
        if let Some(kernel) = &self.kernel {
            kernel.entries.remove(addr);
        }
    }

    /// Names the places where this process listens for other ends, which no frontend may take over. True if that changed.
    pub(crate) fn reserve(&mut self, servers: BTreeSet<SocketAddr>) -> bool {
        let changed = self.reserved != servers;
        self.reserved = servers;
        changed
    }

    /// Whether a frontend there would take over a server of this process.
    pub(crate) fn is_reserved(&self, addr: FrontendAddr) -> bool {
        addr.protocol == Protocol::Tcp && self.reserved.iter().any(|server| addr.is_reached_at(*server))
    }

    /// Names the addresses of this machine itself.
    pub(crate) fn set_machine(&mut self, addresses: BTreeSet<IpAddr>) {
        self.machine = addresses;
    }

    /// Whether any address of this machine itself is known.
    pub(crate) fn has_machine(&self) -> bool {
        !self.machine.is_empty()
    }

    /// Whether it is an address of this machine itself: its sshd or kubelet must be reached there.
    pub(crate) fn is_machines(&self, ip: IpAddr) -> bool {
        self.machine.contains(&ip)
    }

    /// Opens the sockets anew of which this is one; false if it is none of them.
    pub(crate) fn discard(&mut self, socket: &Arc<Socket>) -> bool {
        let mut groups = self.kernel.iter_mut().flat_map(|kernel| &mut kernel.groups);
        let has_it = |slot: &&mut Slot| {
            slot.group.iter().flat_map(|group| &group.sockets).any(|own| Arc::ptr_eq(own, socket))
        };
        let Some(slot) = groups.find(has_it) else { return false };
        slot.group = None;
        true
    }

    /// Gives a worker that was started again the sockets that it had.
    pub(crate) fn serve_again(&self, index: usize, worker: &WorkerHandle) {
        for group in
            self.kernel.iter().flat_map(|kernel| &kernel.groups).filter_map(|slot| slot.group.as_ref())
        {
            if let Some(socket) = group.sockets.get(index) {
                worker.send(Command::Steer { addr: group.addr, socket: Arc::clone(socket) });
            }
        }
    }

    /// Opens the sockets again that were discarded.
    pub(crate) fn restore(&mut self, workers: &[WorkerHandle]) {
        let Some(kernel) = &mut self.kernel else { return };
        let lost: Vec<Kind> =
            kernel.groups.iter().filter(|slot| slot.group.is_none()).filter_map(|slot| slot.kind).collect();
        for kind in lost {
            if let Err(error) = kernel.open(kind, workers) {
                tracing::warn!(%error, "the sockets of steered frontends cannot be opened again");
            }
        }
    }

    /// Lets go of the sockets, so that the workers hold them alone. The program stays in force for them.
    pub(crate) fn release(&mut self) {
        for slot in self.kernel.iter_mut().flat_map(|kernel| &mut kernel.groups) {
            if let Some(group) = &mut slot.group {
                group.sockets.clear();
            }
        }
    }
}

/// What the kernel goes by.
#[derive(Debug)]
struct Kernel {
    /// Dropped first: without the maps the program would refuse everything.
    _attached: Attached,
    entries: Arc<Entries>,
    audiences: Audiences,
    sockets: Map<4, 4>,
    /// By [`Kind::index`].
    groups: [Slot; SINKS as usize],
}

/// The place of one kind of sockets.
#[derive(Debug, Default)]
struct Slot {
    /// Set once a frontend is of this kind.
    kind: Option<Kind>,
    group: Option<Group>,
}

impl Kernel {
    fn new() -> io::Result<Self> {
        let (entries, audiences) = (Entries::new()?, Audiences::new()?);
        let sockets = Map::new(map::Kind::Sockets, 2 * SINKS as usize)?;
        let program = program::program(entries.map(), audiences.map(), &sockets);
        let attached = Attached::new(&program, program::NAME)?;
        let groups = Default::default();
        Ok(Self { _attached: attached, entries: Arc::new(entries), audiences, sockets, groups })
    }

    /// Makes sure that there are sockets of this kind, and that workers serve them.
    fn open(&mut self, kind: Kind, workers: &[WorkerHandle]) -> io::Result<()> {
        let index = kind.index();
        let slot = &mut self.groups[index];
        slot.kind = Some(kind);
        if slot.group.is_some() {
            return Ok(());
        }
        let group = Group::open(kind, workers.len())?;
        // One is enough: the kernel chooses among all that share its address.
        if let Some(socket) = group.sockets.first() {
            place(&self.sockets, index, socket.as_fd())?;
        }
        place(&self.sockets, index + SINKS as usize, group.sink.as_fd())?;
        for (worker, socket) in workers.iter().zip(&group.sockets) {
            worker.send(Command::Steer { addr: group.addr, socket: Arc::clone(socket) });
        }
        slot.group = Some(group);
        Ok(())
    }

    /// What becomes of packets to `addr` if these clients are admitted, and the set that they are looked up in, unless that
    /// is everybody or nobody.
    fn judge(
        &mut self,
        addr: FrontendAddr,
        sources: &AddressSet,
    ) -> io::Result<(Verdict, Option<Arc<Audience>>)> {
        if sources.has_family(addr.ip) {
            return Ok((Verdict::Forward, None));
        }
        if sources.of_family(addr.ip).intervals() == 0 {
            return Ok((Verdict::Ignore, None));
        }
        let admitted = Admitted::new(sources, addr.ip);
        let itself = admitted.itself;
        let audience = self.audiences.get(admitted)?;
        Ok((Verdict::Listed { audience: audience.number(), itself }, Some(audience)))
    }
}

fn place(sockets: &Map<4, 4>, index: usize, socket: impl AsFd) -> io::Result<()> {
    let number = socket.as_fd().as_raw_fd();
    sockets.put(&(index as u32).to_ne_bytes(), &number.to_ne_bytes())
}
