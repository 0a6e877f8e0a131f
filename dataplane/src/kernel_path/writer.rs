//! Thread that tells the kernel. nftables commits one transaction of a network namespace at a time, and another program's may take seconds:
//! neither the control loop nor a worker waits for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sheave_kernel::ruleset::{Changes, Element};
use sheave_kernel::{Forwarding, Plan};
use sheave_model::{AddressSet, FrontendAddr, Protocol};
use tokio::sync::Notify;

use super::errors::{KernelPathError, KernelPathErrors};
use super::ruleset::Ruleset;
use super::traffic::{Seen, TrafficSink};
use super::udp_flows::{CarriedUdpFrontend, UdpFlows};
use crate::log_throttle::LogThrottle;

/// Changes to tell the kernel.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// New values of frontends; `None` = it has left the table.
    pub(super) frontends: Vec<(FrontendAddr, Option<Forwarding>)>,
    /// Frontends of UDP, whether the kernel carries them or not; `None` = it has left the table.
    pub(super) udp: Vec<(FrontendAddr, Option<CarriedUdpFrontend>)>,
    pub(super) internal: Option<Arc<AddressSet>>,
    pub(super) machine: Option<BTreeSet<IpAddr>>,
    /// Frontends whose listener has closed: flows that the proxy had choose anew.
    pub(super) closed: Vec<FrontendAddr>,
    /// Whether there are no other frontends than those told until now.
    pub(super) complete: bool,
    /// How long connections of frontends that leave go on.
    pub(super) drain: Duration,
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        let Self { frontends, udp, internal, machine, closed, complete, drain: _ } = self;
        frontends.is_empty()
            && udp.is_empty()
            && internal.is_none()
            && machine.is_none()
            && closed.is_empty()
            && !complete
    }
}

enum Request {
    Change(u64, Change),
    /// Opens again what has failed, and checks what has not.
    Retry,
    /// Takes every frontend away.
    Release(SyncSender<()>),
}

/// How far the thread has come.
#[derive(Clone, Debug, Default)]
pub(super) struct WriterProgress {
    /// Number of the last change that the kernel has.
    pub(super) done: u64,
    /// Why the kernel has none of it.
    pub(super) error: Option<KernelPathError>,
    pub(super) obstacles: KernelPathErrors,
    ended: bool,
}

#[derive(Default)]
struct WriterShared {
    progress: Mutex<WriterProgress>,
    changed: Notify,
    /// Set with `WriterProgress::ended`.
    ended: Condvar,
}

impl WriterShared {
    fn lock(&self) -> MutexGuard<'_, WriterProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the thread, which ends with it.
pub(super) struct Writer {
    requests: std::sync::mpsc::Sender<Request>,
    shared: Arc<WriterShared>,
    /// Number of the last change.
    pub(super) number: u64,
}

/// Time that the end of the process leaves to the thread.
const LAST_TRANSACTION: Duration = Duration::from_secs(2);

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Errors of pthread_create(3).
    pub(super) fn start(mut ruleset: Box<dyn Ruleset>, seen: Arc<TrafficSink>) -> std::io::Result<Self> {
        let shared = Arc::new(WriterShared::default());
        // Before anything is sent into nowhere: nobody knows yet whether packets are forwarded.
        shared.lock().obstacles = ruleset.obstacles().unwrap_or_else(|error| {
            tracing::warn!(%error, "the kernel path could not be checked, so it is not used yet");
            KernelPathErrors::new(Some(error.clone()), Some(error))
        });
        let (requests, received) = channel();
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("kernel-path".to_owned()).spawn(move || {
            Thread {
                ruleset,
                tables: TableState::Unknown,
                complete: false,
                next_removal: Instant::now(),
                unchecked: LogThrottle::new(UNCHECKED),
                seen,
                shared: Arc::clone(&of_thread),
                plan: Plan::default(),
                flows: UdpFlows::new(),
                had: HashSet::new(),
                leaving: BTreeMap::new(),
                counts: HashMap::new(),
                next_look: Instant::now() + LOOKS,
                next_count: Instant::now(),
                turn: 0,
                more: false,
            }
            .run(&received);
            of_thread.lock().ended = true;
            of_thread.ended.notify_one();
        })?;
        Ok(Self { requests, shared, number: 0 })
    }

    /// Tells the kernel, soon; returns the number of the change.
    pub(super) fn send(&mut self, change: Change) -> u64 {
        self.number += 1;
        self.requests.send(Request::Change(self.number, change)).ok();
        self.number
    }

    /// Tries again what has failed, and repairs what other programs have removed.
    pub(super) fn retry(&self) {
        self.requests.send(Request::Retry).ok();
    }

    /// How far the thread has come.
    pub(super) fn progress(&self) -> WriterProgress {
        self.shared.lock().clone()
    }

    /// Waits until there may be progress. Cancel safe.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Ends the thread, and what it has told stays. Waits for that, but no longer than 2 s.
    pub(super) fn leave(self) {
        let Self { requests, shared, .. } = self;
        drop(requests);
        let alive = |progress: &mut WriterProgress| !progress.ended;
        drop(shared.ended.wait_timeout_while(shared.lock(), LAST_TRANSACTION, alive));
    }

    /// Takes every frontend away from the kernel. Waits for that, but no longer than 2 s.
    pub(super) fn release(&self) {
        let (released, done) = sync_channel(1);
        if self.requests.send(Request::Release(released)).is_ok() {
            done.recv_timeout(LAST_TRANSACTION).ok();
        }
    }
}

/// How often the traffic is looked at.
const LOOKS: Duration = Duration::from_secs(1);
/// How many failures are passed on at a time: workers report theirs in the same queue.
const MOST_FAILED: usize = 256;
/// Share of the time that counting may take, one part of these: reading 100,000 counters takes 0.3 s.
const COUNTING: u32 = 50;

/// How often tables without frontends are looked at: connection tracking may have a million entries.
const NEXT_REMOVAL: Duration = Duration::from_secs(5);

/// How often the log says that something cannot be checked.
const UNCHECKED: Duration = Duration::from_mins(1);

/// What the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableState {
    /// What an earlier process left, or what others made of it.
    Unknown,
    /// The plan.
    Established,
    /// No tables, since no frontend needs them.
    Removed,
}

/// State of the thread.
struct Thread {
    ruleset: Box<dyn Ruleset>,
    tables: TableState,
    /// Whether every frontend has been told once.
    complete: bool,
    next_removal: Instant,
    unchecked: LogThrottle,
    seen: Arc<TrafficSink>,
    shared: Arc<WriterShared>,
    plan: Plan,
    flows: UdpFlows,
    /// Frontends of TCP of which the kernel may have connections, also those that went back to the proxy.
    had: HashSet<FrontendAddr>,
    /// Frontends that left `had`, and when their connections end.
    leaving: BTreeMap<FrontendAddr, Instant>,
    counts: HashMap<(FrontendAddr, SocketAddr), u64>,
    next_look: Instant,
    next_count: Instant,
    /// Which failures are passed on next, where there are many.
    turn: usize,
    /// Whether more connections and flows are to end than do so at a time.
    more: bool,
}

impl Thread {
    fn run(mut self, requests: &Receiver<Request>) {
        loop {
            // Changes do not wait for flows that are to end.
            let pause = if self.more { Duration::ZERO } else { self.until_look() };
            match requests.recv_timeout(pause) {
                Ok(Request::Change(number, change)) => self.change(number, change),
                Ok(Request::Retry) => self.retry(),
                Ok(Request::Release(released)) => {
                    self.empty();
                    released.send(()).ok();
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.end_more();
                    if self.until_look().is_zero() {
                        self.observe();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn until_look(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// Brings the plan, and the kernel where it has the plan, to the new state.
    fn change(&mut self, number: u64, change: Change) {
        let Change { frontends, udp, internal, machine, closed, complete, drain } = change;
        let mut steps = Vec::new();
        steps.extend(internal.map(|clients| self.plan.set_internal_clients(&clients)));
        steps.extend(machine.map(|addresses| self.plan.set_machine(addresses)));
        self.follow_presence(&frontends, Instant::now() + drain);
        if !frontends.is_empty() {
            steps.push(self.plan.apply(frontends));
        }
        if complete {
            self.complete = true;
            steps.push(self.plan.forget_kept());
            self.flows.compare_all();
        }
        self.flows.follow(udp);
        self.flows.end(steps.iter().flat_map(ended_flows));
        self.flows.end(closed.into_iter().map(|frontend| (frontend, frontend.socket_addr())));
        let outcome = self.tell(&steps);
        self.end_flows();
        self.publish(|progress| {
            progress.error = outcome.err();
            progress.done = number;
        });
    }

    /// Notes when the connections of frontends of TCP that leave are to end. Those of one that comes back stay.
    fn follow_presence(&mut self, frontends: &[(FrontendAddr, Option<Forwarding>)], at: Instant) {
        // The last value of a frontend counts.
        for (addr, now) in frontends.iter().filter(|(addr, _)| addr.protocol == Protocol::Tcp) {
            match now {
                Some(forwarding) => {
                    if self.leaving.remove(addr).is_some() || !forwarding.is_proxied() {
                        self.had.insert(*addr);
                    }
                }
                None => {
                    if self.had.remove(addr) {
                        self.leaving.insert(*addr, at);
                    }
                }
            }
        }
    }

    /// Ends the connections of frontends that left long enough ago.
    fn end_leaving(&mut self) {
        let now = Instant::now();
        let due = self.leaving.iter().filter(|(_, at)| **at <= now);
        let frontends: HashSet<_> = due.map(|(addr, _)| *addr).collect();
        if frontends.is_empty() {
            return;
        }
        match self.ruleset.forget_connections(&frontends) {
            Ok(true) => self.leaving.retain(|_, at| *at > now),
            Ok(false) => self.more = true,
            Err(error) => {
                tracing::warn!(%error, "connections of removed frontends go on for now; trying again");
            }
        }
    }

    /// Makes these changes, which the plan has, or tells everything.
    fn tell(&mut self, steps: &[Changes]) -> Result<(), KernelPathError> {
        match self.tables {
            TableState::Established => {
                let mut changes = steps.iter().filter(|changes| !changes.is_empty());
                if let Err(error) = changes.try_for_each(|changes| self.ruleset.apply(&self.plan, changes)) {
                    tracing::warn!(%error, "nftables refused a change; telling it everything");
                    self.establish()?;
                }
                Ok(())
            }
            TableState::Removed if self.plan.is_empty() => Ok(()),
            TableState::Removed | TableState::Unknown => self.establish(),
        }
    }

    fn retry(&mut self) {
        self.end_leaving();
        match self.ruleset.obstacles() {
            Ok(obstacles) => {
                if self.shared.lock().obstacles != obstacles {
                    self.publish(|progress| progress.obstacles = obstacles);
                }
            }
            Err(error) => self.note_unchecked(&error),
        }
        if self.tables == TableState::Established {
            let whole = self.ruleset.is_whole();
            if let Err(error) = &whole {
                self.note_unchecked(error);
            }
            if whole.unwrap_or(true) {
                self.end_flows();
                self.remove_unused();
                return;
            }
            tracing::warn!("another program has changed the tables `sheave` of nftables; restoring them");
            self.tables = TableState::Unknown;
        }
        let outcome = self.tell(&[]);
        self.end_flows();
        self.publish(|progress| progress.error = outcome.err());
    }

    /// A check that failed has found nothing: all stays as it is until the next one.
    fn note_unchecked(&self, error: &KernelPathError) {
        if self.unchecked.admits(Instant::now()) {
            tracing::warn!(%error, "the kernel path could not be checked; it stays as it is");
        }
    }

    /// Tells the kernel the whole plan.
    fn establish(&mut self) -> Result<(), KernelPathError> {
        self.tables = TableState::Unknown;
        let changes = self.ruleset.establish(&mut self.plan, !self.complete)?;
        self.tables = TableState::Established;
        self.flows.end(ended_flows(&changes));
        Ok(())
    }

    /// Takes every frontend away.
    fn empty(&mut self) {
        if self.tables == TableState::Removed {
            return;
        }
        match self.ruleset.establish(&mut Plan::default(), false) {
            Ok(_) => {}
            Err(error) if self.tables == TableState::Established => {
                tracing::warn!(%error, "the kernel may go on with what it was told");
            }
            Err(error) => tracing::debug!(%error, "the kernel was told nothing"),
        }
    }

    /// Removes the tables once no frontend needs them and nothing that is open does.
    fn remove_unused(&mut self) {
        if !self.complete || !self.plan.is_empty() || Instant::now() < self.next_removal {
            return;
        }
        self.next_removal = Instant::now() + NEXT_REMOVAL;
        match self.ruleset.remove_unused() {
            Ok(true) => {
                tracing::info!(
                    "removed the tables `sheave` of nftables: no Service asks for the kernel path"
                );
                self.tables = TableState::Removed;
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "the tables of nftables stay without frontends"),
        }
    }

    /// Ends the UDP flows that are to end, once the kernel gives them other endpoints.
    fn end_flows(&mut self) {
        if self.tables == TableState::Established {
            self.more |= self.flows.tell(&mut *self.ruleset, &self.plan, self.complete);
        }
    }

    /// Ends those that were too many at a time.
    fn end_more(&mut self) {
        if std::mem::take(&mut self.more) {
            self.end_leaving();
            self.end_flows();
        }
    }

    fn publish(&self, set: impl FnOnce(&mut WriterProgress)) {
        set(&mut self.shared.lock());
        self.shared.changed.notify_one();
    }

    /// Reads what the kernel has seen of the traffic: failures each time, since they are noted for a moment, and counts as often as is cheap.
    fn observe(&mut self) {
        let started = Instant::now();
        self.next_look = started + LOOKS;
        if self.tables != TableState::Established {
            return;
        }
        let mut failed = self.ruleset.failed().unwrap_or_default();
        // Whoever has many that fail is not to be in the way of others for good.
        let turn = self.turn % failed.len().max(1);
        failed.rotate_left(turn);
        self.turn = self.turn.wrapping_add(MOST_FAILED);
        for (frontend, endpoint) in failed.into_iter().take(MOST_FAILED) {
            (self.seen)(frontend, endpoint, Seen::Failed);
        }
        if started >= self.next_count {
            self.count();
            self.next_count = Instant::now() + started.elapsed() * COUNTING;
        }
    }

    fn count(&mut self) {
        if let Ok(counts) = self.ruleset.counts() {
            let mut before = std::mem::take(&mut self.counts);
            for (frontend, endpoint, count) in counts {
                let former = before.remove(&(frontend, endpoint)).unwrap_or_default();
                // An element that was made anew begins at 0.
                let more = count.checked_sub(former).unwrap_or(count);
                if more > 0 {
                    (self.seen)(frontend, endpoint, Seen::Forwarded(more));
                }
                self.counts.insert((frontend, endpoint), count);
            }
        }
    }
}

/// The pairs of frontend and endpoint that leave with these changes.
fn ended_flows(changes: &Changes) -> impl Iterator<Item = (FrontendAddr, SocketAddr)> {
    let added: BTreeSet<&Element> = changes.added.iter().collect();
    changes.removed.iter().filter(move |element| !added.contains(element)).filter_map(|element| match element
    {
        Element::Endpoint(frontend, endpoint) => Some((*frontend, *endpoint)),
        _ => None,
    })
}
