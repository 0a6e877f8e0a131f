//! Overload: frontends that refuse new connections or flows, the reason, and whether their SYNs are dropped.
//!
//! A worker refuses with a reset, which costs an accept and a close. If thousands a second are refused for lack of room, the
//! listening sockets drop SYNs before the handshake instead, and the clients' kernels retry, until there is room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters::{FrontendUse, ShedReason};
use crate::limits::capacity::Capacity;
use crate::limits::refusals::Refusals;
use crate::select::ActiveTable;
use sheave_model::{FrontendAddr, Protocol};

/// Interval at which overloaded frontends are checked.
const EVERY: Duration = Duration::from_millis(100);
/// How long a frontend counts as overloaded after its last refusal.
const LASTS: Duration = Duration::from_secs(10);
/// Number of refusals per second, measured between checks, from which SYNs are dropped.
const FLOOD: u64 = 2000;

/// A frontend that refuses new connections or flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overloaded {
    /// The frontend.
    pub frontend: FrontendAddr,
    /// The most frequent reason.
    pub reason: ShedReason,
}

/// Handling of SYNs by listening sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum SynPolicy {
    Accept,
    Drop,
}

#[derive(Debug)]
struct Watched {
    usage: Arc<FrontendUse>,
    counted: [u64; ShedReason::ALL.len()],
    reason: ShedReason,
    last: Instant,
    syn_policy: SynPolicy,
    /// Number of packets dropped at its sockets at the last check, while SYNs are dropped.
    dropped: u64,
}

/// Frontends as the overload control sees them.
pub(crate) trait Frontends {
    /// Use of a frontend, if it exists.
    fn usage(&self, frontend: FrontendAddr) -> Option<Arc<FrontendUse>>;

    /// Number of packets dropped so far at the frontend's sockets; 0 if it has none.
    fn drops(&self, frontend: FrontendAddr) -> u64;
}

/// All frontends that refuse connections or flows.
#[derive(Debug)]
pub(crate) struct Overload {
    refusals: Arc<Refusals>,
    capacity: Arc<Capacity>,
    watched: BTreeMap<FrontendAddr, Watched>,
    /// Time of the last check.
    looked: Instant,
    revision: u64,
}

impl Overload {
    /// Creates the state without overloaded frontends.
    pub(crate) fn new(refusals: Arc<Refusals>, capacity: Arc<Capacity>) -> Self {
        Self { refusals, capacity, watched: BTreeMap::new(), looked: Instant::now(), revision: 0 }
    }

    /// Waits until the next [check](Self::look) is due. Cancel safe.
    pub(crate) async fn due(&self) {
        if self.watched.is_empty() {
            self.refusals.changed().await;
        } else {
            tokio::time::sleep_until((self.looked + EVERY).into()).await;
        }
    }

    /// Checks the refusals since the last call. Returns the frontends whose SYN policy has changed.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        table: &ActiveTable,
        frontends: &impl Frontends,
    ) -> Vec<FrontendAddr> {
        let passed = now.saturating_duration_since(self.looked).max(EVERY);
        self.looked = now;
        for addr in self.refusals.take() {
            if let Some(usage) = frontends.usage(addr) {
                self.watch(addr, usage, now);
            }
        }
        let mut doors = Vec::new();
        let Self { capacity, watched, revision, .. } = self;
        watched.retain(|addr, watched| {
            let before = (watched.reason, watched.syn_policy);
            if watched.syn_policy == SynPolicy::Drop {
                watched.count_dropped(frontends.drops(*addr));
            }
            let refused = watched.count(now);
            let has_room = || has_room(capacity, table, *addr, watched.usage.open(), watched.reason);
            let flood = u128::from(refused) * 1000 >= u128::from(FLOOD) * passed.as_millis();
            let closes = addr.protocol == Protocol::Tcp && is_for_want_of_room(watched.reason);
            match watched.syn_policy {
                SynPolicy::Accept if flood && closes && !has_room() => {
                    watched.syn_policy = SynPolicy::Drop;
                    watched.dropped = frontends.drops(*addr);
                }
                SynPolicy::Drop if has_room() => watched.syn_policy = SynPolicy::Accept,
                SynPolicy::Accept | SynPolicy::Drop => {}
            }
            if watched.syn_policy != before.1 {
                doors.push(*addr);
            }
            let lasts =
                watched.syn_policy == SynPolicy::Drop || now.saturating_duration_since(watched.last) < LASTS;
            let keep = lasts && table.get(*addr).is_some();
            *revision += u64::from(!keep || watched.reason != before.0);
            keep
        });
        doors
    }

    fn watch(&mut self, addr: FrontendAddr, usage: Arc<FrontendUse>, now: Instant) {
        // Before counting, so that later refusals are reported again.
        self.refusals.watch(&usage);
        let known = self.watched.get(&addr).is_some_and(|watched| Arc::ptr_eq(&watched.usage, &usage));
        if !known {
            self.revision += 1;
            let (counted, reason) = (Default::default(), ShedReason::Capacity);
            self.watched.insert(
                addr,
                Watched { usage, counted, reason, last: now, syn_policy: SynPolicy::Accept, dropped: 0 },
            );
        }
    }

    /// Forgets a frontend that was closed.
    pub(crate) fn forget(&mut self, addr: FrontendAddr) {
        self.revision += u64::from(self.watched.remove(&addr).is_some());
    }

    /// SYN policy of a frontend.
    pub(crate) fn syn_policy(&self, addr: FrontendAddr) -> SynPolicy {
        self.watched.get(&addr).map_or(SynPolicy::Accept, |watched| watched.syn_policy)
    }

    /// Every overloaded frontend, by address.
    pub(crate) fn all(&self) -> impl Iterator<Item = Overloaded> {
        self.watched.iter().map(|(addr, watched)| Overloaded { frontend: *addr, reason: watched.reason })
    }

    /// Grows whenever [`all`](Self::all) changes.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }
}

impl Watched {
    /// Counts packets that the kernel dropped, which reports no reason, as refusals for the current reason.
    fn count_dropped(&mut self, dropped: u64) {
        self.usage
            .add_shed(self.reason, dropped.saturating_sub(std::mem::replace(&mut self.dropped, dropped)));
    }

    /// Number of refusals since the last call; updates the reason to that of most of them.
    fn count(&mut self, now: Instant) -> u64 {
        let mut most = 0;
        let mut total = 0;
        for (reason, counted) in ShedReason::ALL.into_iter().zip(&mut self.counted) {
            let count = self.usage.shed(reason);
            let new = count - std::mem::replace(counted, count);
            if new > most {
                (most, self.reason) = (new, reason);
            }
            total += new;
        }
        if total > 0 {
            self.last = now;
        }
        total
    }
}

/// Whether clients should retry later: clients over a rate limit may be admitted at any moment instead.
fn is_for_want_of_room(reason: ShedReason) -> bool {
    matches!(reason, ShedReason::Capacity | ShedReason::Memory | ShedReason::Connections)
}

fn has_room(
    capacity: &Capacity,
    table: &ActiveTable,
    addr: FrontendAddr,
    open: u32,
    reason: ShedReason,
) -> bool {
    let limiter = table.get(addr).and_then(|active| active.limiter());
    match reason {
        ShedReason::Connections => limiter.is_none_or(|limiter| limiter.has_room_again()),
        _ => capacity.has_room_again(open),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::capacity::CapacityLimits;
    use sheave_model::Algorithm;
    use sheave_model::test_util::{frontend, frontend_addr, table};

    struct Sockets {
        usage: Arc<FrontendUse>,
        drops: u64,
    }

    impl Frontends for Sockets {
        fn usage(&self, _: FrontendAddr) -> Option<Arc<FrontendUse>> {
            Some(Arc::clone(&self.usage))
        }

        fn drops(&self, _: FrontendAddr) -> u64 {
            self.drops
        }
    }

    struct Rig {
        overload: Overload,
        refusals: Arc<Refusals>,
        capacity: Arc<Capacity>,
        usage: Arc<FrontendUse>,
        drops: u64,
        active: ActiveTable,
        now: Instant,
    }

    const ADDR: u32 = 1;

    impl Rig {
        /// A rig with room for eighty connections of one frontend.
        fn new() -> Self {
            let refusals = Arc::<Refusals>::default();
            let capacity = Arc::new(Capacity::new(CapacityLimits { descriptors: 200, connections: 100 }));
            let frontend = frontend(ADDR, Algorithm::Random, &[(1, 100)]);
            Self {
                overload: Overload::new(Arc::clone(&refusals), Arc::clone(&capacity)),
                refusals,
                capacity,
                usage: Arc::default(),
                drops: 3,
                active: ActiveTable::compile(table([frontend]), &ActiveTable::default()),
                now: Instant::now(),
            }
        }

        fn fill(&self) {
            while self.capacity.take_connection(self.usage.open()).is_ok() {
                self.usage.add_open();
            }
        }

        fn end(&self, connections: usize) {
            for _ in 0..connections {
                self.capacity.give_connection();
                self.usage.subtract_open();
            }
        }

        fn refuse(&self, count: u64, reason: ShedReason) {
            (0..count).for_each(|_| self.refusals.count(frontend_addr(ADDR), &self.usage, reason));
        }

        fn look(&mut self, after: Duration) -> Vec<SynPolicy> {
            self.now += after;
            let sockets = Sockets { usage: Arc::clone(&self.usage), drops: self.drops };
            let doors = self.overload.look(self.now, &self.active, &sockets);
            doors.into_iter().map(|addr| self.overload.syn_policy(addr)).collect()
        }

        fn reasons(&self) -> Vec<ShedReason> {
            self.overload.all().map(|overloaded| overloaded.reason).collect()
        }
    }

    #[test]
    fn a_few_refusals_are_told_while_they_last_and_close_nothing() {
        let mut rig = Rig::new();
        rig.fill();
        rig.refuse(3, ShedReason::Capacity);
        assert_eq!((rig.look(EVERY), rig.reasons()), (vec![], vec![ShedReason::Capacity]));
        let revision = rig.overload.revision();
        rig.refuse(3, ShedReason::Capacity);
        assert_eq!((rig.look(LASTS / 2), rig.overload.revision()), (vec![], revision));
        assert_eq!((rig.look(LASTS / 2), rig.reasons().len()), (vec![], 1));
        assert_eq!((rig.look(LASTS), rig.reasons()), (vec![], vec![]));
        assert!(rig.overload.revision() > revision);
    }

    #[test]
    fn a_flood_closes_the_door_until_there_is_room() {
        let mut rig = Rig::new();
        rig.fill();
        rig.refuse(1000, ShedReason::Capacity);
        assert_eq!(rig.look(EVERY), [SynPolicy::Drop]);
        assert_eq!(
            rig.look(10 * LASTS),
            [],
            "nobody can be refused behind a closed syn_policy, and it lasts"
        );
        assert_eq!(rig.reasons(), [ShedReason::Capacity]);
        rig.drops += 5;
        assert_eq!(rig.look(EVERY), []);
        assert_eq!(rig.usage.shed(ShedReason::Capacity), 1005, "those that find it closed are counted, too");
        rig.end(1);
        assert_eq!(rig.look(EVERY), [], "not for one place");
        rig.end(4);
        assert_eq!(rig.look(EVERY), [SynPolicy::Accept]);
    }

    #[test]
    fn rates_close_no_door() {
        let mut rig = Rig::new();
        rig.refuse(100_000, ShedReason::ConnectionRate);
        assert_eq!((rig.look(EVERY), rig.reasons()), (vec![], vec![ShedReason::ConnectionRate]));
    }

    #[test]
    fn refusals_after_a_look_are_told_again() {
        let mut rig = Rig::new();
        rig.refuse(1, ShedReason::Memory);
        assert_eq!(rig.look(EVERY), []);
        rig.refuse(1, ShedReason::Memory);
        assert_eq!(rig.refusals.take().len(), 1);
    }
}
