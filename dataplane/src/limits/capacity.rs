//! Capacity of the process, shared by all workers and fairly between Services: descriptors, connections and memory.
//!
//! A Service may use a multiple of the free capacity, not a part of all capacity (Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", 1998). A single Service gets most of it, several greedy ones get equal shares, and
//! a part is always left for the next one. The rule takes one comparison, and needs no count of Services.

use std::sync::Arc;

use crate::counters::ShedReason;
use crate::sync::atomic::{AtomicI64, AtomicIsize, AtomicUsize, Ordering};
use crate::worker_port::{WorkerPort, WorkerPorts};

/// Multiple of the free capacity that a Service may use: a single Service gets four fifths of all.
const SHARE: usize = 4;

/// Divisor of the spared memory below which a Service counts as small.
const SMALL: usize = 8;

/// Number of sockets of a connection: one towards its client and one towards its endpoint.
const DESCRIPTORS_OF_A_CONNECTION: usize = 2;

/// Memory that is assumed for a connection, in bytes: two sockets take about 10 KiB while their buffers are empty.
const MEMORY_OF_A_CONNECTION: u64 = 32 << 10;

/// Bytes that a connection may hold: the minimum, when memory runs out, and the maximum.
const LEAST_HELD: usize = 2 << 10;
const MOST_HELD: usize = 64 << 10;

/// Limits of all traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityLimits {
    /// Maximum number of file descriptors, including listening sockets. The rest is left to the process itself.
    pub descriptors: usize,
    /// Maximum number of TCP connections.
    pub connections: usize,
}

/// Limits and use of all traffic.
#[derive(Debug)]
pub(crate) struct Capacity {
    most_descriptors: AtomicUsize,
    most_connections: AtomicUsize,
    descriptors: AtomicUsize,
    connections: AtomicUsize,
    /// Number of connections and flows for which there is memory, as of the last measurement and reduced since.
    memory: AtomicIsize,
    /// Additional number of them for small Services, since the largest ones may hold far more than was assumed.
    spared: AtomicIsize,
    /// Number of bytes to release.
    excess: AtomicI64,
}

/// Handle that sets how much memory workers may use.
#[derive(Clone, Debug)]
pub struct MemoryGauge {
    capacity: Arc<Capacity>,
    ports: Arc<WorkerPorts>,
}

impl MemoryGauge {
    /// Number of descriptors that traffic uses.
    pub fn descriptors(&self) -> usize {
        self.capacity.descriptors.load(Ordering::Relaxed)
    }

    /// Sets the available memory. Workers count down from there, so it must be set frequently.
    pub fn set(&self, left: MemoryLeft) {
        let connections = |bytes| isize::try_from(bytes / MEMORY_OF_A_CONNECTION).unwrap_or(isize::MAX / 2);
        let free = connections(left.free);
        let Self { capacity, ports } = self;
        capacity.memory.store(free, Ordering::Relaxed);
        capacity.spared.store(connections(left.by_small_ones).saturating_sub(free), Ordering::Relaxed);
        capacity.excess.store(i64::try_from(left.excess).unwrap_or(i64::MAX), Ordering::Relaxed);
        if left.excess > 0 {
            ports.iter().for_each(WorkerPort::ask_for_relief);
        }
    }
}

/// Available memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLeft {
    /// Memory that traffic may use.
    pub free: u64,
    /// Memory that small Services may use.
    pub by_small_ones: u64,
    /// Memory to release by resetting the connections that hold the most unread data.
    pub excess: u64,
}

impl Capacity {
    /// Creates an unused capacity without a limit of memory until a [`gauge`](Self::gauge) sets one.
    pub(crate) fn new(limits: CapacityLimits) -> Self {
        Self {
            most_descriptors: AtomicUsize::new(limits.descriptors),
            most_connections: AtomicUsize::new(limits.connections),
            descriptors: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            memory: AtomicIsize::new(isize::MAX / 2),
            spared: AtomicIsize::new(0),
            excess: AtomicI64::new(0),
        }
    }

    /// Capacity without limits.
    #[cfg(test)]
    pub(crate) fn unlimited() -> Arc<Self> {
        let all = usize::MAX / 8;
        Arc::new(Self::new(CapacityLimits { descriptors: all, connections: all }))
    }

    /// Changes the limits. What is in use stays in use.
    pub(crate) fn set_limits(&self, limits: CapacityLimits) {
        self.most_descriptors.store(limits.descriptors, Ordering::Relaxed);
        self.most_connections.store(limits.connections, Ordering::Relaxed);
    }

    /// The gauge that sets the available memory, and wakes the workers if some must be released.
    pub(crate) fn gauge(self: &Arc<Self>, ports: &Arc<WorkerPorts>) -> MemoryGauge {
        MemoryGauge { capacity: Arc::clone(self), ports: Arc::clone(ports) }
    }

    /// Takes room for one connection of a Service that has `own` open.
    pub(crate) fn take_connection(&self, own: u32) -> Result<(), ShedReason> {
        self.room(own, self.free_connections())?;
        // Several workers may pass the check at once and take one more each: the reserve of the process suffices for that.
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.memory.fetch_sub(1, Ordering::Relaxed);
        self.take(DESCRIPTORS_OF_A_CONNECTION);
        Ok(())
    }

    /// Returns the room that [`take_connection`](Self::take_connection) took.
    pub(crate) fn give_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.memory.fetch_add(1, Ordering::Relaxed);
        self.give(DESCRIPTORS_OF_A_CONNECTION);
    }

    /// Checks whether there is room for another flow of a Service that has `own` open.
    ///
    /// # Errors
    /// Returns the resource that is short.
    pub(crate) fn room_for_flow(&self, own: u32) -> Result<(), ShedReason> {
        self.room(own, self.free_descriptors())
    }

    fn room(&self, own: u32, free: usize) -> Result<(), ShedReason> {
        let within_share = |free: usize| (own as usize) < free.saturating_mul(SHARE);
        if !within_share(free) {
            return Err(ShedReason::Capacity);
        }
        let memory = self.memory.load(Ordering::Relaxed);
        let small = || {
            let spared = self.spared.load(Ordering::Relaxed).saturating_add(memory.min(0));
            (own as usize) < usize::try_from(spared).unwrap_or(0).div_ceil(SMALL)
        };
        let enough = within_share(usize::try_from(memory).unwrap_or(0)) || small();
        enough.then_some(()).ok_or(ShedReason::Memory)
    }

    /// Takes room for a flow, which has one socket.
    pub(crate) fn take_flow(&self) {
        self.memory.fetch_sub(1, Ordering::Relaxed);
        self.take(1);
    }

    /// Returns the room that [`take_flow`](Self::take_flow) took.
    pub(crate) fn give_flow(&self) {
        self.memory.fetch_add(1, Ordering::Relaxed);
        self.give(1);
    }

    /// Number of bytes that a connection may hold while the receiving side does not accept them: an equal share of the free memory,
    /// and always some, so that it makes progress.
    pub(crate) fn bytes_to_hold(&self) -> usize {
        let (free, connections) = (self.free_memory(), self.connections.load(Ordering::Relaxed));
        if free / 2 >= connections {
            return MOST_HELD;
        }
        (free * MEMORY_OF_A_CONNECTION as usize / connections).clamp(LEAST_HELD, MOST_HELD)
    }

    /// Whether memory must be released.
    pub(crate) fn wants_relief(&self) -> bool {
        self.excess.load(Ordering::Relaxed) > 0
    }

    /// Whether memory must still be released; if so, counts `bytes` as released.
    pub(crate) fn relieve_of(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.excess.load(Ordering::Relaxed) > 0 && self.excess.fetch_sub(bytes, Ordering::Relaxed) > 0
    }

    /// Takes descriptors if they are free.
    pub(crate) fn try_take(&self, descriptors: usize) -> bool {
        let enough = self.free_descriptors() >= descriptors;
        if enough {
            self.take(descriptors);
        }
        enough
    }

    /// Takes descriptors unconditionally.
    pub(crate) fn take(&self, descriptors: usize) {
        self.descriptors.fetch_add(descriptors, Ordering::Relaxed);
    }

    /// Returns descriptors.
    pub(crate) fn give(&self, descriptors: usize) {
        self.descriptors.fetch_sub(descriptors, Ordering::Relaxed);
    }

    /// Whether a Service with `own` connections has clearly more room again, after its clients were kept from connecting.
    pub(crate) fn has_room_again(&self, own: u32) -> bool {
        let free = self.free_connections().min(self.free_memory());
        free > 0 && (own as usize).saturating_mul(8) < free.saturating_mul(SHARE).saturating_mul(7)
    }

    /// Number of further connections that are possible, apart from memory.
    fn free_connections(&self) -> usize {
        let most = self.most_connections.load(Ordering::Relaxed);
        let connections = most.saturating_sub(self.connections.load(Ordering::Relaxed));
        connections.min(self.free_descriptors() / DESCRIPTORS_OF_A_CONNECTION)
    }

    fn free_descriptors(&self) -> usize {
        let most = self.most_descriptors.load(Ordering::Relaxed);
        most.saturating_sub(self.descriptors.load(Ordering::Relaxed))
    }

    /// Free memory, in connections.
    fn free_memory(&self) -> usize {
        usize::try_from(self.memory.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(connections: usize) -> Capacity {
        Capacity::new(CapacityLimits { descriptors: 2 * connections, connections: usize::MAX })
    }

    fn free(bytes: u64) -> MemoryLeft {
        MemoryLeft { free: bytes, by_small_ones: bytes, excess: 0 }
    }

    fn set(capacity: &Arc<Capacity>, left: MemoryLeft) {
        capacity.gauge(&WorkerPorts::new(0).unwrap()).set(left);
    }

    /// Takes connections until one is refused.
    fn fill(capacity: &Capacity, own: &mut u32) {
        while capacity.take_connection(*own).is_ok() {
            *own += 1;
        }
    }

    #[test]
    fn one_service_gets_most_and_leaves_a_part_to_others() {
        let capacity = capacity(1000);
        let (mut greedy, mut other) = (0, 0);
        fill(&capacity, &mut greedy);
        assert_eq!(greedy, 800);
        fill(&capacity, &mut other);
        assert!((100..=200).contains(&other), "{other}");
        assert_eq!(capacity.take_connection(greedy), Err(ShedReason::Capacity));
        assert_eq!(capacity.take_connection(0), Ok(()), "and some is left yet");
    }

    #[test]
    fn greedy_services_come_to_equal_shares_as_connections_end() {
        let capacity = capacity(1000);
        let mut own = [0; 5];
        fill(&capacity, &mut own[0]);
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let ends = (random >> 33) as usize % own.len();
            if own[ends] > 0 {
                own[ends] -= 1;
                capacity.give_connection();
            }
            for one in &mut own {
                fill(&capacity, one);
            }
        }
        let (least, most) = (own.iter().min().unwrap(), own.iter().max().unwrap());
        assert!(most - least <= 60 && *least > 150, "{own:?}");
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_counts_are_exact() {
        let capacity = capacity(10);
        let mut own = 0;
        fill(&capacity, &mut own);
        for _ in 0..own {
            capacity.give_connection();
        }
        assert_eq!(capacity.free_descriptors(), 20);
        let mut again = 0;
        fill(&capacity, &mut again);
        assert_eq!(again, own);
    }

    #[test]
    fn the_limit_of_connections_holds_where_descriptors_are_plenty() {
        let capacity = Capacity::new(CapacityLimits { descriptors: usize::MAX / 8, connections: 10 });
        let mut own = 0;
        fill(&capacity, &mut own);
        assert_eq!(own, 8);
    }

    #[test]
    fn below_a_lowered_limit_nothing_new_is_taken_until_there_is_less() {
        let limits = |connections| CapacityLimits { descriptors: usize::MAX / 8, connections };
        let capacity = Capacity::new(limits(10));
        let mut own = 0;
        fill(&capacity, &mut own);
        capacity.set_limits(limits(5));
        assert_eq!(capacity.take_connection(0), Err(ShedReason::Capacity));
        assert!(!capacity.has_room_again(0));
        (0..own).for_each(|_| capacity.give_connection());
        let mut fewer = 0;
        fill(&capacity, &mut fewer);
        assert_eq!((own, fewer), (8, 4));
        capacity.set_limits(limits(10));
        fill(&capacity, &mut fewer);
        assert_eq!(fewer, own);
    }

    #[test]
    fn memory_is_shared_like_the_rest_and_counted_down_between_looks() {
        let capacity = Arc::new(capacity(1000));
        set(&capacity, free(10 * MEMORY_OF_A_CONNECTION));
        let (mut greedy, mut other) = (0, 0);
        fill(&capacity, &mut greedy);
        assert_eq!((greedy, capacity.take_connection(greedy)), (8, Err(ShedReason::Memory)));
        fill(&capacity, &mut other);
        assert_eq!(other, 2);
        assert_eq!(capacity.room_for_flow(0), Err(ShedReason::Memory));
        set(&capacity, free(0));
        assert_eq!(capacity.take_connection(0), Err(ShedReason::Memory));
        capacity.give_connection();
        assert!(capacity.room_for_flow(0).is_ok() && !capacity.has_room_again(10));
    }

    #[test]
    fn who_has_next_to_nothing_is_served_though_others_have_taken_all_memory() {
        let capacity = Arc::new(capacity(1000));
        set(&capacity, MemoryLeft { by_small_ones: 80 * MEMORY_OF_A_CONNECTION, ..free(0) });
        assert_eq!(capacity.take_connection(10), Err(ShedReason::Memory));
        let mut own = 0;
        fill(&capacity, &mut own);
        assert_eq!(own, 9, "an eighth of what was left by then");
        assert!(capacity.room_for_flow(0).is_ok() && !capacity.has_room_again(0));
    }

    #[test]
    fn no_more_is_given_back_than_is_wanted() {
        let capacity = Arc::new(capacity(10));
        assert!(!capacity.relieve_of(1));
        set(&capacity, MemoryLeft { excess: 100, ..free(0) });
        assert_eq!([60, 60, 60].map(|bytes| capacity.relieve_of(bytes)), [true, true, false]);
    }

    #[test]
    fn what_connections_may_hold_is_what_memory_is_good_for() {
        let capacity = Arc::new(capacity(1000));
        assert_eq!(capacity.bytes_to_hold(), MOST_HELD);
        fill(&capacity, &mut 0);
        set(&capacity, free(800 * (16 << 10)));
        assert_eq!(capacity.bytes_to_hold(), 16 << 10, "of 800 connections each the same");
        set(&capacity, free(0));
        assert_eq!(capacity.bytes_to_hold(), LEAST_HELD);
        (0..800).for_each(|_| capacity.give_connection());
        assert_eq!(capacity.bytes_to_hold(), MOST_HELD);
    }

    #[test]
    fn more_than_there_is_may_be_taken_for_what_must_be() {
        let capacity = capacity(1);
        capacity.take(100);
        assert_eq!(capacity.take_connection(0), Err(ShedReason::Capacity));
        assert!(!capacity.try_take(1));
        capacity.give(100);
        assert_eq!(capacity.take_connection(0), Ok(()));
    }
}
