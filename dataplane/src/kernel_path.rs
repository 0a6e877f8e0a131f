//! Kernel path: which frontends the kernel carries, and the order of a change of paths.
//!
//! The kernel has a frontend's elements before the proxy closes its listener, and the proxy's listener is open before the elements go. So
//! there is no moment in which nobody accepts, and what is open stays where it is. Nothing is installed until a frontend asks for it.

mod errors;
mod forwarding;
mod nftables;
mod pinned;
mod ruleset;
mod traffic;
mod udp_flows;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_kernel::LeftOver;
use sheave_model::{AddressSet, EndpointAddr, FrontendAddr, FrontendChange, Protocol};

pub use self::errors::{KernelPathError, KernelPathErrors};
pub use self::nftables::KernelPathOptions;
pub use self::pinned::{Pinned, hashed_by_kernel, pinned_by_kernel};
use self::ruleset::Ruleset;
use self::traffic::TrafficSink;
pub(crate) use self::traffic::take_in;
use self::udp_flows::CarriedUdpFrontend;
use self::writer::{Change, Writer};
use crate::select::ActiveTable;

/// How long the frontends of the first table wait for the kernel before the proxy opens them: there may be thousands. Another program's
/// transaction of nftables may take seconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the proxy keeps accepting after the kernel has begun: handshakes that the proxy's socket has answered are accepted.
const LAST_ACCEPTS: Duration = Duration::from_secs(1);

/// Where a frontend is on its way to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The kernel was asked with the change of this number.
    Asked(u64),
    /// The kernel carries it since then.
    Carried(Instant),
    /// The kernel carries it, and the proxy's listener is closed.
    Alone,
    /// The same, and no connection of the proxy is open.
    Sole,
}

/// Duty of the proxy for a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Proxying {
    /// Listens.
    Listens,
    /// Neither opens nor closes its listener until the kernel has answered, and flows of its own have ended.
    Waits,
    /// Listens no more.
    Closed,
}

/// The kernel of this network namespace, or of a test.
pub(crate) trait RulesetSource: Send + Sync {
    /// The ruleset, of which nothing is changed yet.
    fn open(&self) -> Box<dyn Ruleset>;
    /// Whether an earlier process has left tables.
    fn left_over(&self) -> Result<LeftOver, KernelPathError>;
}

/// The frontends that the kernel is to carry, and the thread that tells it.
pub(crate) struct KernelPath {
    kernel: Box<dyn RulesetSource>,
    seen: Arc<TrafficSink>,
    /// How long connections of a frontend that has left go on.
    drain: Duration,
    /// Whether another process still tells the kernel.
    held: bool,
    /// Since when the frontends of the first table wait for the kernel; `None` once it has answered, or has not for too long. Those that come
    /// later are the proxy's until the kernel has them.
    starting: Option<Instant>,
    /// Whether the table has every frontend. Until then, what an earlier process left in the kernel stays.
    complete: bool,
    /// Whether no tables that an earlier process left are to be looked for any more.
    tidy: bool,
    /// `None` until a frontend asks for the kernel, or there are tables that an earlier process left.
    writer: Option<Writer>,
    stages: HashMap<FrontendAddr, Stage>,
    internal: Arc<AddressSet>,
    machine: BTreeSet<IpAddr>,
    /// Forwardings that the kernel gets once listeners that it needs are open.
    unsent: Change,
    /// Why the kernel has nothing of what it was told.
    failure: Option<KernelPathError>,
    errors: KernelPathErrors,
}

impl KernelPath {
    /// Installs nothing until a frontend asks for it. `seen` receives what the kernel sees of the traffic.
    pub(crate) fn new(
        kernel: Box<dyn RulesetSource>,
        seen: Arc<TrafficSink>,
        drain: Duration,
        held: bool,
    ) -> Self {
        Self {
            kernel,
            seen,
            drain,
            held,
            starting: Some(Instant::now()),
            complete: false,
            tidy: false,
            writer: None,
            stages: HashMap::new(),
            internal: Arc::default(),
            machine: BTreeSet::new(),
            unsent: Change::default(),
            failure: None,
            errors: KernelPathErrors::NONE,
        }
    }

    /// Notes the changes of a table. [`Self::tell`] passes them on, once listeners that frontends need again are open.
    pub(crate) fn apply(&mut self, active: &ActiveTable, changes: &[FrontendChange]) {
        let asks = |change: &FrontendChange| change.1.as_ref().is_some_and(|it| it.kernel_path().is_ok());
        if self.writer.is_none() {
            if !changes.iter().any(asks) || !self.start(active) {
                self.starting = None;
            }
            return;
        }
        self.note(active, changes.iter().map(|(addr, _)| *addr).collect());
        self.note_internal(active);
    }

    fn note_internal(&mut self, active: &ActiveTable) {
        let internal = active.table().internal_clients();
        if *self.internal != **internal {
            self.internal = Arc::clone(internal);
            self.unsent.internal = Some(Arc::clone(internal));
        }
    }

    /// Notes other shares of the frontends that the kernel carries, where the health of endpoints has changed them.
    pub(crate) fn follow_health(&mut self, previous: &ActiveTable, active: &ActiveTable) {
        let same = |addr: FrontendAddr| match (previous.get(addr), active.get(addr)) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        let changed: Vec<_> = self.stages.keys().copied().filter(|addr| !same(*addr)).collect();
        self.note(active, changed);
    }

    /// Sets how long connections of frontends that leave go on.
    pub(crate) fn set_drain(&mut self, drain: Duration) {
        self.drain = drain;
    }

    /// Notes that the table has every frontend.
    pub(crate) fn complete(&mut self) {
        self.unsent.complete |= !std::mem::replace(&mut self.complete, true);
    }

    /// Sets the addresses where ports belong to other programs of the machine, unless the proxy has got them. Returns the frontends
    /// whose listeners have to follow: the kernel carries none there, since it would take the port of a program that listens.
    pub(crate) fn set_machine(
        &mut self,
        addresses: BTreeSet<IpAddr>,
        active: &ActiveTable,
    ) -> Vec<FrontendAddr> {
        if self.machine == addresses {
            return Vec::new();
        }
        let moved: BTreeSet<IpAddr> = self.machine.symmetric_difference(&addresses).copied().collect();
        self.machine = addresses;
        self.unsent.machine = Some(self.machine.clone());
        self.set_errors(self.errors.clone());
        if self.writer.is_none() {
            return Vec::new();
        }
        let frontends = active.table().frontends().iter().filter(|it| moved.contains(&it.addr.ip));
        let there: Vec<_> = frontends.filter(|it| it.kernel_path().is_ok()).map(|it| it.addr).collect();
        self.note(active, there.clone());
        there
    }

    fn set_errors(&mut self, errors: KernelPathErrors) {
        self.errors = errors.with_machine(self.machine.clone());
    }

    /// Starts the thread, and notes every frontend: the kernel refuses what it does not know of an address that it serves.
    fn start(&mut self, active: &ActiveTable) -> bool {
        match Writer::start(self.kernel.open(), Arc::clone(&self.seen)) {
            Ok(writer) => {
                self.set_errors(writer.progress().obstacles);
                self.writer = Some(writer);
                self.unsent.machine = Some(self.machine.clone());
                self.unsent.complete = self.complete;
                self.note(active, active.table().frontends().iter().map(|frontend| frontend.addr).collect());
                self.note_internal(active);
                true
            }
            Err(error) => {
                let error = KernelPathError::new(format_args!("no thread can be started: {error}"));
                self.set_errors(KernelPathErrors::new(Some(error.clone()), Some(error)));
                false
            }
        }
    }

    /// Notes every frontend that asks for the kernel anew, and returns them.
    fn note_all(&mut self, active: &ActiveTable) -> Vec<FrontendAddr> {
        let frontends = active.table().frontends().iter();
        let asking: Vec<_> = frontends.filter(|it| it.kernel_path().is_ok()).map(|it| it.addr).collect();
        self.note(active, asking.clone());
        asking
    }

    fn note(&mut self, active: &ActiveTable, changed: Vec<FrontendAddr>) {
        for addr in changed {
            let allowed = !self.errors.is_machine(addr.ip);
            let reachable = allowed && (self.failure.is_some() || self.errors.of(addr.ip).is_none());
            let frontend = active.get(addr);
            let forwarding = frontend.map(|frontend| {
                if reachable && frontend.spec().kernel_path().is_ok() {
                    let stage = self.stages.entry(addr).or_insert(Stage::Asked(0));
                    forwarding::carried(frontend, *stage != Stage::Sole)
                } else {
                    self.stages.remove(&addr);
                    forwarding::proxied(addr)
                }
            });
            if forwarding.is_none() {
                self.stages.remove(&addr);
            }
            if addr.protocol == Protocol::Udp {
                let udp = frontend.map(|frontend| CarriedUdpFrontend {
                    serving: frontend.serving().map(EndpointAddr::socket_addr).collect(),
                    sources: Arc::clone(&frontend.spec().source_ranges),
                });
                self.unsent.udp.push((addr, udp));
            }
            self.unsent.frontends.push((addr, forwarding));
        }
    }

    /// Tells the kernel what was noted.
    pub(crate) fn tell(&mut self) {
        let ready = !self.held && !self.unsent.is_empty();
        let Some(writer) = self.writer.as_mut().filter(|_| ready) else { return };
        let change = Change { drain: self.drain, ..std::mem::take(&mut self.unsent) };
        let asked: Vec<FrontendAddr> = change.frontends.iter().map(|(addr, _)| *addr).collect();
        let number = writer.send(change);
        for addr in asked {
            if let Some(Stage::Asked(waits_for)) = self.stages.get_mut(&addr) {
                *waits_for = number;
            }
        }
    }

    /// Duty of the proxy for a frontend.
    pub(crate) fn proxying(&self, addr: FrontendAddr) -> Proxying {
        match self.stages.get(&addr) {
            _ if self.failure.is_some() => Proxying::Listens,
            None => Proxying::Listens,
            Some(Stage::Asked(_)) if self.starting.is_none() => Proxying::Listens,
            Some(Stage::Asked(..) | Stage::Carried(_)) => Proxying::Waits,
            Some(Stage::Alone | Stage::Sole) => Proxying::Closed,
        }
    }

    /// Whether frontends of the first table wait for the kernel without a listener.
    pub(crate) fn is_settling(&self) -> bool {
        self.starting.is_some() && !self.held && !self.stages.is_empty()
    }

    /// Numbers of the last change that the kernel was sent and of the last that it has; `None` while nobody waits for it.
    pub(crate) fn awaited(&self) -> Option<(u64, u64)> {
        let writer = self.writer.as_ref().filter(|_| !self.held && self.failure.is_none())?;
        let progress = writer.progress();
        let done = if progress.error.is_none() { progress.done } else { 0 };
        (done < writer.number).then_some((writer.number, done))
    }

    /// Number of frontends that the kernel carries and the proxy does not listen for.
    pub(crate) fn alone(&self) -> usize {
        if self.failure.is_some() {
            return 0;
        }
        self.stages.values().filter(|stage| matches!(stage, Stage::Alone | Stage::Sole)).count()
    }

    /// Whether the kernel carries the frontend now.
    pub(crate) fn carries(&self, addr: FrontendAddr) -> bool {
        self.failure.is_none()
            && matches!(self.stages.get(&addr), Some(Stage::Carried(_) | Stage::Alone | Stage::Sole))
    }

    /// Waits until [`Self::refresh`] may have something to do. Cancel safe.
    pub(crate) async fn changed(&self) {
        let patience = async {
            match self.starting.filter(|_| self.is_settling()) {
                Some(since) => tokio::time::sleep_until((since + PATIENCE).into()).await,
                None => std::future::pending().await,
            }
        };
        match &self.writer {
            Some(writer) => tokio::select! {
                () = writer.changed() => {}
                () = patience => {}
            },
            None => std::future::pending().await,
        }
    }

    /// Takes in what the kernel has done, and what it cannot do. Returns the frontends whose listeners have to follow.
    pub(crate) fn refresh(&mut self, active: &ActiveTable) -> Vec<FrontendAddr> {
        let Some(writer) = &self.writer else { return Vec::new() };
        let progress = writer.progress();
        let failed = progress.error.is_some();
        let is_over = |since: &mut Instant| progress.done > 0 || !self.held && since.elapsed() >= PATIENCE;
        let began = self.starting.take_if(is_over).is_some();
        let turned = failed != self.failure.is_some();
        self.failure = progress.error;
        let errors = match &self.failure {
            Some(error) => KernelPathErrors::new(Some(error.clone()), Some(error.clone())),
            None => progress.obstacles,
        };
        let errors = errors.with_machine(self.machine.clone());
        if self.errors != errors && !failed {
            self.errors = errors;
            return self.note_all(active);
        }
        self.errors = errors;
        let mut follow = Vec::new();
        for (addr, stage) in &mut self.stages {
            if failed {
                // What was sent since then has not failed yet.
                if !matches!(stage, Stage::Asked(number) if *number > progress.done) {
                    *stage = Stage::Asked(progress.done);
                }
            } else if matches!(stage, Stage::Asked(number) if *number > 0 && *number <= progress.done) {
                *stage = Stage::Carried(Instant::now());
            }
            follow.extend((began || turned).then_some(*addr));
        }
        follow
    }

    /// Tries again what has failed. Returns the frontends whose listeners have to follow: the kernel has carried them for a while. `open` is
    /// how many connections or flows of a frontend the proxy has.
    pub(crate) fn retry(
        &mut self,
        active: &ActiveTable,
        open: impl Fn(FrontendAddr) -> u32,
    ) -> Vec<FrontendAddr> {
        if self.held {
            return Vec::new();
        }
        self.look_for_left_over(active);
        let Some(writer) = &self.writer else { return Vec::new() };
        writer.retry();
        if self.failure.is_some() {
            return Vec::new();
        }
        let (mut follow, mut unguarded) = (Vec::new(), Vec::new());
        for (addr, stage) in &mut self.stages {
            match stage {
                // A closed listener would end the proxy's flows.
                Stage::Carried(since)
                    if since.elapsed() > LAST_ACCEPTS
                        && (addr.protocol == Protocol::Tcp || open(*addr) == 0) =>
                {
                    *stage = Stage::Alone;
                    self.unsent.closed.push(*addr);
                    follow.push(*addr);
                }
                Stage::Alone if open(*addr) == 0 => {
                    *stage = Stage::Sole;
                    unguarded.push(*addr);
                }
                Stage::Asked(..) | Stage::Carried(_) | Stage::Alone | Stage::Sole => {}
            }
        }
        // For the kernel nothing changes in the others.
        unguarded.retain(|addr| active.get(*addr).is_some_and(|it| forwarding::is_hashed(it)));
        self.note(active, unguarded);
        follow
    }

    /// Takes over the tables of an earlier process although no frontend asks for the kernel, to empty them and to remove them later.
    fn look_for_left_over(&mut self, active: &ActiveTable) {
        if self.tidy || !self.complete {
            return;
        }
        // The writer replaces whatever is there.
        if self.writer.is_some() {
            self.tidy = true;
            return;
        }
        match self.kernel.left_over() {
            Ok(LeftOver::Nothing) => self.tidy = true,
            Ok(LeftOver::Tables) => {
                self.tidy = self.start(active);
                self.tell();
            }
            // An upgraded process may be about to leave them.
            Ok(LeftOver::Owned) => {}
            Err(error) => tracing::debug!(%error, "an earlier process may have left tables of nftables"),
        }
    }

    /// Why the kernel carries nothing although frontends ask for it.
    pub(crate) fn errors(&self) -> &KernelPathErrors {
        &self.errors
    }

    /// Begins to tell the kernel, since the other process has left.
    pub(crate) fn serve(&mut self) {
        self.held = false;
        self.starting = self.starting.map(|_| Instant::now());
        self.stages.values_mut().for_each(|stage| *stage = Stage::Asked(0));
        self.tell();
    }

    /// Ends the thread, and leaves everything in the kernel to the process that takes over.
    pub(crate) fn leave(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.leave();
        }
    }

    /// Takes every frontend away from the kernel, and ends the thread. What is open goes on: the tables stay, without elements, since the
    /// kernel translates addresses only while there are chains for it (`nf_nat_unregister_fn` in net/netfilter/nf_nat_core.c).
    pub(crate) fn release(&mut self) {
        if self.held {
            return self.leave();
        }
        if let Some(writer) = self.writer.take() {
            writer.release();
        }
    }
}

impl std::fmt::Debug for KernelPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelPath")
            .field("stages", &self.stages)
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
