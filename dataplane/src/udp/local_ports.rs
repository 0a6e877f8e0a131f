//! Local ports of flows. If the kernel chose them, each flow would occupy a port of the whole machine: after 28,232 flows no program
//! there could open a UDP socket. A connected socket is identified by both ends, so one port can serve one flow to each endpoint. The
//! ports of this pool are shared that way, and a part of the machine's range is never used.
//!
//! Ports are random, like the kernel's (RFC 6056), so that an attacker who does not see a flow cannot guess where its answers go. A
//! returned port rests for a moment, so that a late answer does not reach the next client.
//!
//! While another process may share ports, the kernel chooses one for each flow, and the number of flows is limited to the number of
//! ports in the pool: the rest of the machine's range stays free then, too.

pub(crate) mod claim;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use super::flow_table::FlowOwner;
use crate::sys::port_range::{port_range, reserved_ports};
use crate::worker::context::WorkerContext;
use sheave_model::EndpointAddr;

/// Number of random ports tried before the next free one is taken.
const GUESSES: usize = 16;

/// How long a returned port rests. Answers that take longer are rare, and a resolver's clients repeat their query by then.
const REST: Duration = Duration::from_secs(1);

/// How long a returned port rests if there is no other.
const LEAST_REST: Duration = Duration::from_millis(100);

/// How long the local address towards an endpoint is cached. Routes change rarely.
const ADDRESS_KNOWN: Duration = Duration::from_secs(1);

/// Divisor of the number of ports towards an endpoint that are kept free, so that new flows find ports that have rested.
const SPARED: usize = 16;

/// Minimum number of endpoints before unused ones are removed.
const CROWD: usize = 64;

/// Port pool of one worker.
pub(super) struct LocalPorts {
    /// For the time of the current turn.
    worker: Rc<WorkerContext>,
    ports: Box<[u16]>,
    /// The range from which the kernel assigns ports, including the ports of all workers.
    range: RangeInclusive<u16>,
    reserved: HashSet<u16>,
    /// Owners of the flows whose port the kernel chose.
    unshared: RefCell<Holders>,
    /// Randomness of the ports: the hash of the standard library has random keys, so earlier ports do not reveal the next one.
    keys: RandomState,
    drawn: Cell<u64>,
    endpoints: RefCell<HashMap<EndpointAddr, Towards, foldhash::fast::RandomState>>,
    /// Number of endpoints at which unused ones are removed.
    crowd: Cell<usize>,
}

/// Ports towards one endpoint.
struct Towards {
    /// One bit for each port that is used or rests.
    taken: Box<[u64]>,
    /// Resting ports, oldest first, each with the time at which it was returned.
    resting: VecDeque<(Instant, usize)>,
    /// Owners of the flows that use the ports.
    holders: Holders,
    /// This machine's address towards the endpoint, and when it was looked up.
    local: Option<(IpAddr, Instant)>,
}

/// Owners of flows, with the ports that each uses.
#[derive(Default)]
struct Holders {
    used: usize,
    each: Vec<Holder>,
}

struct Holder {
    owner: Weak<dyn FlowOwner>,
    used: usize,
}

impl Holders {
    fn take(&mut self, owner: &Weak<dyn FlowOwner>) {
        self.used += 1;
        match self.each.iter_mut().find(|holder| holder.owner.ptr_eq(owner)) {
            Some(holder) => holder.used += 1,
            None => self.each.push(Holder { owner: Weak::clone(owner), used: 1 }),
        }
    }

    fn give_back(&mut self, owner: &Weak<dyn FlowOwner>) {
        self.used -= 1;
        if let Some(index) = self.each.iter().position(|holder| holder.owner.ptr_eq(owner)) {
            let holder = &mut self.each[index];
            holder.used -= 1;
            if holder.used == 0 {
                self.each.swap_remove(index);
            }
        }
    }

    /// The owner that uses the most ports.
    fn largest(&self) -> Option<Weak<dyn FlowOwner>> {
        self.each.iter().max_by_key(|holder| holder.used).map(|holder| Weak::clone(&holder.owner))
    }
}

/// An owner that is to give up a port, since ports are scarce.
pub(super) struct Crowding {
    /// The owner that uses the most of them.
    pub(super) holder: Weak<dyn FlowOwner>,
    /// The endpoint towards which they are scarce; `None` if they are towards all.
    pub(super) towards: Option<EndpointAddr>,
}

/// A port, returned to the pool when dropped.
pub(super) struct PortLease {
    pool: Rc<LocalPorts>,
    kind: LeaseKind,
}

enum LeaseKind {
    /// A port of the pool, towards one endpoint.
    Shared { endpoint: EndpointAddr, index: usize, owner: Weak<dyn FlowOwner> },
    /// A port that the kernel chooses.
    Unshared { owner: Weak<dyn FlowOwner> },
}

impl LocalPorts {
    /// The pool of one worker. The pools of workers are disjoint, since the kernel would give the answers to two sockets with the same port
    /// and endpoint to either of them.
    pub(super) fn of_worker(worker: &Rc<WorkerContext>) -> Rc<Self> {
        let (range, reserved) = (port_range(), reserved_ports());
        let ports = pool_of(worker.index, worker.shared.ports.count(), range.clone(), &reserved);
        Self::new(worker, ports, range, reserved)
    }

    fn new(
        worker: &Rc<WorkerContext>,
        ports: Box<[u16]>,
        range: RangeInclusive<u16>,
        reserved: HashSet<u16>,
    ) -> Rc<Self> {
        Rc::new(Self {
            worker: Rc::clone(worker),
            ports,
            range,
            reserved,
            unshared: RefCell::default(),
            keys: RandomState::new(),
            drawn: Cell::new(0),
            endpoints: RefCell::default(),
            crowd: Cell::new(CROWD),
        })
    }

    /// Whether the kernel may assign this port to any program, so that no server can rely on it.
    pub(super) fn gives(&self, port: u16) -> bool {
        self.range.contains(&port) && !self.reserved.contains(&port)
    }

    fn random(&self) -> usize {
        self.drawn.set(self.drawn.get().wrapping_add(1));
        self.keys.hash_one(self.drawn.get()) as usize % self.ports.len()
    }

    /// Leases a port towards this endpoint that is unused and has rested; `None` if there is none.
    pub(super) fn lease(
        self: &Rc<Self>,
        endpoint: EndpointAddr,
        owner: &Weak<dyn FlowOwner>,
    ) -> Option<PortLease> {
        self.lease_at(endpoint, owner, self.worker.now())
    }

    /// Leases a port that the kernel chooses and no other flow has; `None` at the limit of such leases.
    pub(super) fn lease_unshared(self: &Rc<Self>, owner: &Weak<dyn FlowOwner>) -> Option<PortLease> {
        let mut unshared = self.unshared.borrow_mut();
        (unshared.used < self.ports.len()).then(|| {
            unshared.take(owner);
            PortLease { pool: Rc::clone(self), kind: LeaseKind::Unshared { owner: Weak::clone(owner) } }
        })
    }

    fn lease_at(
        self: &Rc<Self>,
        endpoint: EndpointAddr,
        owner: &Weak<dyn FlowOwner>,
        now: Instant,
    ) -> Option<PortLease> {
        let mut endpoints = self.endpoints.borrow_mut();
        if endpoints.len() >= self.crowd.get() {
            endpoints.retain(|_, towards| towards.matters(now));
            self.crowd.set(CROWD.max(2 * endpoints.len()));
        }
        let towards = endpoints.entry(endpoint).or_insert_with(|| Towards::new(self.ports.len()));
        towards.wake(now);
        let index = if towards.holders.used + towards.resting.len() < self.ports.len() {
            let guessed = (0..GUESSES).map(|_| self.random()).find(|index| !towards.is_taken(*index));
            guessed.or_else(|| towards.next_free(self.random(), self.ports.len()))
        } else {
            towards.resting.pop_front_if(|(since, _)| *since + LEAST_REST <= now).map(|(_, index)| index)
        }?;
        towards.take(index, owner);
        Some(PortLease {
            pool: Rc::clone(self),
            kind: LeaseKind::Shared { endpoint, index, owner: Weak::clone(owner) },
        })
    }

    /// Leases the port that a flow of another process already uses; `None` if it is not in this pool or is in use.
    pub(super) fn take_over(
        self: &Rc<Self>,
        endpoint: EndpointAddr,
        port: u16,
        owner: &Weak<dyn FlowOwner>,
    ) -> Option<PortLease> {
        let index = self.ports.binary_search(&port).ok()?;
        let mut endpoints = self.endpoints.borrow_mut();
        let towards = endpoints.entry(endpoint).or_insert_with(|| Towards::new(self.ports.len()));
        if towards.is_taken(index) {
            return None;
        }
        towards.take(index, owner);
        Some(PortLease {
            pool: Rc::clone(self),
            kind: LeaseKind::Shared { endpoint, index, owner: Weak::clone(owner) },
        })
    }

    /// This machine's address for flows to an endpoint. `ask` is called only if the cached address is too old.
    pub(super) fn local_ip(
        &self,
        endpoint: EndpointAddr,
        ask: impl FnOnce() -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        let (mut endpoints, now) = (self.endpoints.borrow_mut(), self.worker.now());
        let towards = endpoints.get_mut(&endpoint)?;
        if towards.local.is_none_or(|(_, since)| since + ADDRESS_KNOWN <= now) {
            towards.local = ask().map(|ip| (ip, now));
        }
        towards.local.map(|(ip, _)| ip)
    }

    /// Number of ports to be kept free.
    fn spared(&self) -> usize {
        (self.ports.len() / SPARED).max(1)
    }

    /// The owner with the most flows to an endpoint, if ports towards it are scarce: the unused ones, including resting ones, are
    /// fewer than those to be kept free. If a port was `lacking`, other programs have some of the ports, so few resting ones suffice.
    /// `None` if there are enough.
    pub(super) fn crowding(&self, endpoint: EndpointAddr, lacking: bool) -> Option<Crowding> {
        let endpoints = self.endpoints.borrow();
        let towards = endpoints.get(&endpoint)?;
        let few_rest = towards.resting.len() <= self.spared();
        let scarce = towards.holders.used + self.spared() > self.ports.len() || (lacking && few_rest);
        let holder = towards.holders.largest().filter(|_| scarce)?;
        Some(Crowding { holder, towards: Some(endpoint) })
    }

    /// Like [`crowding`](Self::crowding), for ports that the kernel chooses. None of them rests.
    pub(super) fn crowding_unshared(&self, lacking: bool) -> Option<Crowding> {
        let unshared = self.unshared.borrow();
        let scarce = unshared.used + self.spared() > self.ports.len() || lacking;
        let holder = unshared.largest().filter(|_| scarce)?;
        Some(Crowding { holder, towards: None })
    }
}

impl Towards {
    fn new(ports: usize) -> Self {
        let taken = vec![0; ports.div_ceil(64)].into_boxed_slice();
        Self { taken, resting: VecDeque::new(), holders: Holders::default(), local: None }
    }

    fn is_taken(&self, index: usize) -> bool {
        self.taken[index / 64] & (1 << (index % 64)) != 0
    }

    /// The first free port in the words from that of `start` on, wrapping around.
    fn next_free(&self, start: usize, ports: usize) -> Option<usize> {
        let words = self.taken.len();
        (0..=words).map(|step| (start / 64 + step) % words).find_map(|word| {
            let index = word * 64 + (!self.taken[word]).trailing_zeros() as usize;
            (self.taken[word] != u64::MAX && index < ports).then_some(index)
        })
    }

    fn take(&mut self, index: usize, owner: &Weak<dyn FlowOwner>) {
        self.taken[index / 64] |= 1 << (index % 64);
        self.holders.take(owner);
    }

    fn give_back(&mut self, index: usize, owner: &Weak<dyn FlowOwner>, now: Instant) {
        self.resting.push_back((now, index));
        self.holders.give_back(owner);
    }

    /// Releases the ports that have rested.
    fn wake(&mut self, now: Instant) {
        while let Some((_, index)) = self.resting.pop_front_if(|(since, _)| *since + REST <= now) {
            self.taken[index / 64] &= !(1 << (index % 64));
        }
    }

    /// Whether any port is used or rests.
    fn matters(&self, now: Instant) -> bool {
        self.holders.used > 0 || self.resting.back().is_some_and(|(since, _)| *since + REST > now)
    }
}

impl PortLease {
    /// The port number; `None` if the kernel chooses the port.
    pub(super) fn port(&self) -> Option<u16> {
        match self.kind {
            LeaseKind::Shared { index, .. } => Some(self.pool.ports[index]),
            LeaseKind::Unshared { .. } => None,
        }
    }
}

impl Drop for PortLease {
    fn drop(&mut self) {
        match &self.kind {
            LeaseKind::Shared { endpoint, index, owner } => {
                if let Some(towards) = self.pool.endpoints.borrow_mut().get_mut(endpoint) {
                    towards.give_back(*index, owner, self.pool.worker.now());
                }
            }
            LeaseKind::Unshared { owner } => self.pool.unshared.borrow_mut().give_back(owner),
        }
    }
}

impl fmt::Debug for LocalPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPorts").field("ports", &self.ports.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for PortLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PortLease").field(&self.port()).finish()
    }
}

/// The ports of one of `workers` workers, in order. Three of every four ports are shared, so that every other program of the machine still
/// finds one.
fn pool_of(worker: usize, workers: usize, range: RangeInclusive<u16>, reserved: &HashSet<u16>) -> Box<[u16]> {
    let shared = range.filter(|port| port % 4 != 0 && !reserved.contains(port));
    shared.filter(|port| worker_of(*port, workers) == worker).collect()
}

/// Place of the first port of Linux's default range among all shared ports. Ports are dealt out from there on, as version 0.1.0 did in
/// that range, so that a process that takes over from it keeps its flows.
const FIRST: usize = place_of(32_769);

/// Place of a shared port among all shared ports.
const fn place_of(port: u16) -> usize {
    (port - port / 4) as usize
}

/// The worker that has a shared port. Ports are dealt out in turn, so that any range gives all workers the same number. It depends on the
/// port alone: the kernel's lists may change, and a process that takes over, or a worker that starts again, reads them later than others. If
/// they decided, two workers could have one port.
fn worker_of(port: u16, workers: usize) -> usize {
    let workers = workers.max(1);
    (place_of(port) + workers - FIRST % workers) % workers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix64::SplitMix64;
    use crate::worker::context::{Shared, Timeouts};

    fn endpoint(number: u8) -> EndpointAddr {
        EndpointAddr::new([10, 0, 0, number].into(), 53)
    }

    struct Nobody;

    impl FlowOwner for Nobody {
        fn flows(&self) -> usize {
            0
        }

        fn evict(&self, _: Instant, _: Option<EndpointAddr>) -> bool {
            false
        }
    }

    fn pool(ports: std::ops::Range<u16>) -> Rc<LocalPorts> {
        let timeouts = Timeouts::all(Duration::from_secs(1));
        let worker = WorkerContext::new(Shared::for_tests(timeouts), 0, 1).unwrap();
        LocalPorts::new(&worker, ports.clone().collect(), 1000..=2000, HashSet::from([1500]))
    }

    fn owner() -> Weak<dyn FlowOwner> {
        Rc::downgrade(&(Rc::new(Nobody) as Rc<dyn FlowOwner>))
    }

    /// Leases as many ports as possible.
    fn all(pool: &Rc<LocalPorts>, endpoint: EndpointAddr, now: Instant) -> Vec<PortLease> {
        let owner = owner();
        std::iter::from_fn(|| pool.lease_at(endpoint, &owner, now)).collect()
    }

    #[test]
    fn each_endpoint_has_all_ports_and_no_port_twice() {
        let pool = pool(1000..1100);
        for number in [1, 2] {
            let leases = all(&pool, endpoint(number), pool.worker.now());
            let ports: HashSet<u16> = leases.iter().filter_map(PortLease::port).collect();
            assert_eq!((leases.len(), ports.len()), (100, 100));
        }
        for number in 3..3 + CROWD as u8 {
            drop(pool.lease_at(endpoint(number), &owner(), pool.worker.now() + REST));
        }
        assert!(pool.endpoints.borrow().len() < CROWD, "endpoints to which nothing goes are forgotten");
    }

    #[test]
    fn a_port_that_was_given_back_rests_before_it_is_used_again() {
        let pool = pool(1000..1070);
        let began = pool.worker.now();
        let mut leases = all(&pool, endpoint(1), began);
        let freed = leases.pop().and_then(|lease| lease.port());
        let again = |at| pool.lease_at(endpoint(1), &owner(), at).and_then(|lease| lease.port());
        assert_eq!(again(began), None);
        assert_eq!(again(pool.worker.now() + LEAST_REST), freed, "there is no other");
        let others: HashSet<u16> = leases.drain(..2).filter_map(|lease| lease.port()).collect();
        let found =
            all(&pool, endpoint(1), pool.worker.now() + REST).iter().filter_map(PortLease::port).collect();
        assert_eq!(others.union(&freed.into_iter().collect()).copied().collect::<HashSet<u16>>(), found);
    }

    #[test]
    fn who_has_the_most_flows_to_a_crowded_endpoint_is_known() {
        let pool = pool(1000..1032);
        let (few, many, now) = (owner(), owner(), pool.worker.now());
        let lease = |owner: &Weak<dyn FlowOwner>| pool.lease_at(endpoint(1), owner, now).unwrap();
        let _few: Vec<PortLease> = (0..10).map(|_| lease(&few)).collect();
        let mut of_many: Vec<PortLease> = (0..20).map(|_| lease(&many)).collect();
        assert!(pool.crowding(endpoint(1), false).is_none(), "the spared two are free");
        of_many.push(lease(&many));
        assert!(pool.crowding(endpoint(1), false).is_some_and(|it| it.holder.ptr_eq(&many)));
        assert!(pool.crowding(endpoint(2), false).is_none());
        of_many.truncate(5);
        assert!(pool.crowding(endpoint(1), false).is_none(), "though nearly all rest");
        assert!(pool.crowding(endpoint(1), true).is_none(), "they are ready soon");
        let _of_many: Vec<PortLease> =
            (0..2).map(|_| pool.lease_at(endpoint(3), &many, now).unwrap()).collect();
        assert!(pool.crowding(endpoint(3), true).is_some(), "others have the rest");
    }

    #[test]
    fn ports_that_the_kernel_chooses_are_no_more_than_would_be_shared() {
        let pool = pool(1000..1003);
        let owner = owner();
        let mut leases: Vec<PortLease> = std::iter::from_fn(|| pool.lease_unshared(&owner)).collect();
        assert_eq!((leases.len(), leases[0].port()), (3, None));
        leases.pop();
        assert!(pool.lease_unshared(&owner).is_some());
    }

    #[test]
    fn who_has_the_most_ports_that_the_kernel_chose_is_known() {
        let pool = pool(1000..1032);
        let (few, many) = (owner(), owner());
        let lease = |owner: &Weak<dyn FlowOwner>| pool.lease_unshared(owner).unwrap();
        let _few: Vec<PortLease> = (0..10).map(|_| lease(&few)).collect();
        let mut of_many: Vec<PortLease> = (0..20).map(|_| lease(&many)).collect();
        assert!(pool.crowding_unshared(false).is_none(), "the spared two are free");
        of_many.push(lease(&many));
        assert!(pool.crowding_unshared(false).is_some_and(|it| it.holder.ptr_eq(&many)));
        of_many.truncate(5);
        assert!(pool.crowding_unshared(false).is_none());
        assert!(
            pool.crowding_unshared(true).is_some_and(|it| it.holder.ptr_eq(&few)),
            "others have the rest"
        );
    }

    #[test]
    fn the_kernel_is_not_asked_for_each_flow_which_address_it_sends_from() {
        let pool = pool(1000..1010);
        let asked = Cell::new(0);
        let ask = |ip: [u8; 4]| {
            asked.update(|asked| asked + 1);
            Some(IpAddr::from(ip))
        };
        assert_eq!(pool.local_ip(endpoint(1), || ask([192, 0, 2, 1])), None, "no flow");
        let _lease = pool.lease_at(endpoint(1), &owner(), pool.worker.now());
        for _ in 0..3 {
            assert_eq!(pool.local_ip(endpoint(1), || ask([192, 0, 2, 1])), Some([192, 0, 2, 1].into()));
        }
        pool.worker.begin_turn(pool.worker.now() + ADDRESS_KNOWN);
        assert_eq!(pool.local_ip(endpoint(1), || ask([192, 0, 2, 2])), Some([192, 0, 2, 2].into()));
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn workers_have_other_ports_and_a_quarter_is_left_to_others() {
        let all = |index| HashSet::from_iter(pool_of(index, 2, 100..=199, &HashSet::from([101])));
        let (first, second): (HashSet<u16>, HashSet<u16>) = (all(0), all(1));
        assert!(first.is_disjoint(&second));
        assert_eq!((first.len() + second.len(), first.len().abs_diff(second.len())), (74, 0));
    }

    /// The range and the reserved ports that a worker reads when it starts, at random.
    fn read(random: &SplitMix64) -> (RangeInclusive<u16>, HashSet<u16>) {
        let below = |end: u16| (random.next() % u64::from(end)) as u16;
        let range = 1024 + below(40_000)..=50_000 + below(15_535);
        let reserved = (0..below(20)).flat_map(|_| {
            let first = 1024 + below(60_000);
            first..=first + below(500)
        });
        let reserved = reserved.collect();
        (range, reserved)
    }

    #[test]
    fn no_port_has_two_workers_whatever_each_read_and_none_changes_its_worker() {
        let random = SplitMix64::new(7);
        for _ in 0..20 {
            let workers = 1 + (random.next() % 17) as usize;
            let mut owners = HashMap::new();
            for worker in (0..workers).chain(0..workers) {
                let (range, reserved) = read(&random);
                let pool = pool_of(worker, workers, range.clone(), &reserved);
                assert!(pool.is_sorted());
                for port in pool {
                    assert!(port % 4 != 0 && range.contains(&port) && !reserved.contains(&port));
                    assert_eq!(*owners.entry(port).or_insert(worker), worker, "{port} of {workers}");
                }
            }
            // All of them together leave out none, and none has more than its share.
            let (range, reserved) = (read(&random).0, HashSet::new());
            let sizes = (0..workers).map(|worker| pool_of(worker, workers, range.clone(), &reserved).len());
            let sizes: Vec<usize> = sizes.collect();
            assert_eq!(sizes.iter().sum::<usize>(), range.filter(|port| port % 4 != 0).count());
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }

    #[test]
    fn in_the_default_range_workers_have_the_ports_that_they_had_in_the_first_version() {
        for workers in [1, 2, 3, 4, 7, 16] {
            let shared = || (32_768..=60_999_u16).filter(|port| port % 4 != 0);
            for worker in 0..workers {
                let pool = pool_of(worker, workers, 32_768..=60_999, &HashSet::new());
                assert!(
                    pool.iter().copied().eq(shared().skip(worker).step_by(workers)),
                    "{worker}/{workers}"
                );
            }
        }
    }

    #[test]
    fn a_port_of_another_process_is_taken_over_where_it_is_of_the_pool_and_free() {
        let pool = pool(1000..1010);
        let take_over = |port| pool.take_over(endpoint(1), port, &owner());
        let lease = take_over(1003);
        assert_eq!(lease.as_ref().and_then(PortLease::port), Some(1003));
        assert!(take_over(1003).is_none() && take_over(1010).is_none());
    }

    #[test]
    fn a_port_that_the_kernel_gives_to_nobody_is_not_taken_for_a_client() {
        let pool = pool(1000..1003);
        let given = [999, 1000, 1500, 1501, 2000, 2001].map(|port| pool.gives(port));
        assert_eq!(given, [false, true, false, true, true, false]);
    }
}
