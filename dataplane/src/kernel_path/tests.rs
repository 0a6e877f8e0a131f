//! Tests of the kernel path with a kernel that takes, refuses and forgets as a test wants.

use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use sheave_kernel::ruleset::{Action, Chain, Changes, Element, Family};
use sheave_kernel::{Plan, TranslatedFlow};
use sheave_model::test_util::{endpoint_addr, frontend, frontend_addr, table};
use sheave_model::{Algorithm, Frontend, PathChoice, Protocol, SourceRanges};

use super::*;

/// What the kernel has, and how it behaves.
#[derive(Default)]
struct Kernel {
    elements: BTreeSet<Element>,
    chains: BTreeSet<(Family, Chain)>,
    /// Whether it refuses every change.
    refuses: bool,
    /// Whether it still translates something.
    translates: bool,
    forgotten: Vec<(FrontendAddr, SocketAddr)>,
    /// How often it leaves some flows that it is to forget.
    leaves_flows: usize,
    /// How often it leaves some connections that are to end.
    leaves_connections: usize,
    /// UDP flows in connection tracking.
    tracked: Vec<TranslatedFlow>,
    /// Frontends whose connections have ended.
    ended: BTreeSet<FrontendAddr>,
    removals: usize,
    /// Whether nothing of it can be read.
    unreadable: bool,
    /// How often it was told everything.
    established: usize,
    /// How often it was asked whether it has what it was told.
    checks: usize,
    /// `None`: nothing.
    left_over: Option<LeftOver>,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Kernel>>);

impl Fake {
    fn with<T>(&self, of: impl FnOnce(&mut Kernel) -> T) -> T {
        of(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self, changes: &Changes) -> Result<(), KernelPathError> {
        self.with(|kernel| {
            if kernel.refuses {
                return Err(KernelPathError::new("refused"));
            }
            kernel.elements.retain(|element| !changes.removed.contains(element));
            kernel.elements.extend(changes.added.iter().copied());
            kernel.chains.retain(|chain| !changes.old_chains.contains(chain));
            kernel.chains.extend(changes.new_chains.iter().copied());
            Ok(())
        })
    }

    fn read(&self) -> Result<(), KernelPathError> {
        if self.with(|kernel| kernel.unreadable) { Err(KernelPathError::new("interrupted")) } else { Ok(()) }
    }

    fn has(&self, element: &Element) -> bool {
        self.with(|kernel| kernel.elements.contains(element))
    }

    /// Whether the chain by which the frontend chooses leaves unknown connections to the proxy.
    fn is_guarded(&self, addr: FrontendAddr) -> Option<bool> {
        self.with(|kernel| {
            kernel.elements.iter().find_map(|element| match *element {
                Element::Service(of, Action::Choose(chooser)) if of == addr => Some(chooser.guarded),
                _ => None,
            })
        })
    }
}

impl super::RulesetSource for Fake {
    fn open(&self) -> Box<dyn Ruleset> {
        Box::new(self.clone())
    }

    fn left_over(&self) -> Result<LeftOver, KernelPathError> {
        Ok(self.with(|kernel| kernel.left_over).unwrap_or(LeftOver::Nothing))
    }
}

impl Ruleset for Fake {
    fn obstacles(&mut self) -> Result<KernelPathErrors, KernelPathError> {
        self.read().map(|()| KernelPathErrors::NONE)
    }

    fn establish(&mut self, plan: &mut Plan, keep: bool) -> Result<Changes, KernelPathError> {
        let (elements, chains) = self.with(|kernel| {
            kernel.established += 1;
            (kernel.elements.clone(), kernel.chains.clone())
        });
        if keep {
            plan.keep(&elements);
        }
        let changes = plan.difference((&elements, &chains));
        self.take(&changes).map(|()| changes)
    }

    fn apply(&mut self, _: &Plan, changes: &Changes) -> Result<(), KernelPathError> {
        self.take(changes)
    }

    fn is_whole(&mut self) -> Result<bool, KernelPathError> {
        self.with(|kernel| kernel.checks += 1);
        self.read().map(|()| true)
    }

    fn remove_unused(&mut self) -> Result<bool, KernelPathError> {
        Ok(self.with(|kernel| {
            kernel.removals += usize::from(!kernel.translates);
            !kernel.translates
        }))
    }

    fn counts(&mut self) -> Result<Vec<(FrontendAddr, SocketAddr, u64)>, KernelPathError> {
        Ok(Vec::new())
    }

    fn failed(&mut self) -> Result<Vec<(FrontendAddr, SocketAddr)>, KernelPathError> {
        Ok(Vec::new())
    }

    fn forget_flows(&mut self, flows: &[(FrontendAddr, SocketAddr)]) -> Result<bool, KernelPathError> {
        Ok(self.with(|kernel| {
            kernel.forgotten.extend(flows);
            is_last(&mut kernel.leaves_flows)
        }))
    }

    fn end_flows(&mut self, ends: &dyn Fn(&TranslatedFlow) -> bool) -> Result<bool, KernelPathError> {
        self.with(|kernel| kernel.tracked.retain(|flow| !ends(flow)));
        Ok(true)
    }

    fn forget_connections(&mut self, frontends: &HashSet<FrontendAddr>) -> Result<bool, KernelPathError> {
        Ok(self.with(|kernel| {
            kernel.ended.extend(frontends);
            is_last(&mut kernel.leaves_connections)
        }))
    }
}

/// Whether nothing is left after this time.
fn is_last(left: &mut usize) -> bool {
    let is_last = *left == 0;
    *left = left.saturating_sub(1);
    is_last
}

/// A process that is upgraded to one without Services of the kernel path may end long after its successor began to look.
#[test]
fn tables_that_another_process_owns_are_looked_for_until_it_leaves_them() {
    let (kernel, active) = (left_of(&[1]), ActiveTable::default());
    kernel.with(|it| it.left_over = Some(LeftOver::Owned));
    let mut path = telling(&kernel);
    path.complete();
    for _ in 0..3 {
        drop(path.retry(&active, |_| 0));
        assert!(path.writer.is_none() && !path.tidy);
    }
    kernel.with(|it| it.left_over = Some(LeftOver::Tables));
    until(&mut path, &active, |_| kernel.with(|it| it.elements.is_empty()));
    assert!(path.tidy);
}

/// A kernel path that tells this kernel.
fn telling(kernel: &Fake) -> KernelPath {
    KernelPath::new(Box::new(kernel.clone()), Arc::new(|_, _, _| ()), Duration::ZERO, false)
}

fn asking(number: u32, endpoints: &[(u32, u16)]) -> Frontend {
    Frontend { path: PathChoice::Kernel, ..frontend(number, Algorithm::Random, endpoints) }
}

fn udp(mut frontend: Frontend) -> Frontend {
    frontend.addr.protocol = Protocol::Udp;
    frontend.service.protocol = Protocol::Udp;
    frontend
}

/// Applies the table to a kernel path whose former table is `active`.
fn apply(path: &mut KernelPath, active: &mut ActiveTable, frontends: impl IntoIterator<Item = Frontend>) {
    let table = Arc::new(table(frontends));
    let changes = sheave_model::diff(active.table(), &table);
    *active = ActiveTable::compile(table, active);
    path.apply(active, &changes);
    path.tell();
}

/// Waits until the thread has come so far, which is told again and again to try again.
#[track_caller]
fn until(path: &mut KernelPath, active: &ActiveTable, holds: impl Fn(&KernelPath) -> bool) {
    wait(path, active, |path| drop(path.retry(active, |_| 1)), holds);
}

/// Waits until the thread has come so far by itself.
#[track_caller]
fn until_alone(path: &mut KernelPath, active: &ActiveTable, holds: impl Fn() -> bool) {
    wait(path, active, |_| (), |_| holds());
}

#[track_caller]
fn wait(
    path: &mut KernelPath,
    active: &ActiveTable,
    urge: impl Fn(&mut KernelPath),
    holds: impl Fn(&KernelPath) -> bool,
) {
    let begin = Instant::now();
    loop {
        drop(path.refresh(active));
        urge(path);
        path.tell();
        if holds(path) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?} {:?}", path.stages, path.failure);
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn carried(addr: FrontendAddr) -> impl Fn(&KernelPath) -> bool {
    move |path| path.carries(addr)
}

/// Lets the time pass after which the proxy's listener closes.
fn let_the_proxy_close(path: &mut KernelPath) {
    for stage in path.stages.values_mut() {
        if let Stage::Carried(since) = stage {
            *since = since.checked_sub(2 * LAST_ACCEPTS).unwrap();
        }
    }
}

/// A kernel with what an earlier process left of frontends with these numbers.
fn left_of(numbers: &[u32]) -> Fake {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let mut path = telling(&kernel);
    path.complete();
    apply(&mut path, &mut active, numbers.iter().map(|&number| asking(number, &[(number, 1)])));
    until(&mut path, &active, carried(frontend_addr(numbers[0])));
    path.leave();
    kernel
}

#[test]
fn what_an_earlier_process_left_stays_until_the_table_has_every_frontend() {
    let (kernel, mut active) = (left_of(&[1, 2]), ActiveTable::default());
    let mut path = telling(&kernel);
    apply(&mut path, &mut active, [asking(1, &[(7, 1)])]);
    until(&mut path, &active, carried(frontend_addr(1)));
    let endpoint = |frontend: u32, endpoint: u32| {
        Element::Endpoint(frontend_addr(frontend), endpoint_addr(endpoint).socket_addr())
    };
    assert!(kernel.has(&endpoint(1, 7)) && !kernel.has(&endpoint(1, 1)) && kernel.has(&endpoint(2, 2)));
    path.complete();
    path.tell();
    let done = path.writer.as_ref().map(|writer| writer.number);
    until(&mut path, &active, |path| path.writer.as_ref().map(|writer| writer.progress().done) == done);
    assert!(kernel.has(&endpoint(1, 7)) && !kernel.has(&endpoint(2, 2)));
}

#[test]
fn ports_at_addresses_of_the_machine_stay_with_its_programs() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let mut path = telling(&kernel);
    let [own, other] = [1, 2].map(frontend_addr);
    assert!(path.set_machine([own.ip].into(), &active).is_empty());
    apply(&mut path, &mut active, [1, 2].map(|number| asking(number, &[(number, 1)])));
    until(&mut path, &active, carried(other));
    let is_taken = |addr: FrontendAddr| {
        kernel.with(|it| {
            it.elements.iter().any(|it| matches!(it, Element::Service(of, Action::Choose(_)) if *of == addr))
        })
    };
    assert!(!path.carries(own) && !is_taken(own) && is_taken(other));
    assert_eq!((path.proxying(own), path.errors().of(own.ip).is_some()), (Proxying::Listens, true));
    // The machine gets and loses addresses.
    let both = path.set_machine([other.ip].into(), &active);
    assert_eq!(both, [own, other]);
    assert_eq!((path.proxying(other), path.carries(other)), (Proxying::Listens, false));
    path.tell();
    until(&mut path, &active, |path| path.carries(own) && path.awaited().is_none());
    assert!(is_taken(own) && !is_taken(other));
}

#[test]
fn flows_to_endpoints_that_left_while_nobody_told_the_kernel_end() {
    let kernel = Fake::default();
    let old = udp(asking(1, &[(1, 1), (2, 1)]));
    let addr = old.addr;
    for frontend in [old, udp(asking(1, &[(2, 1)]))] {
        let mut active = ActiveTable::default();
        let mut path = telling(&kernel);
        path.complete();
        apply(&mut path, &mut active, [frontend]);
        until(&mut path, &active, carried(addr));
        path.leave();
    }
    assert_eq!(kernel.with(|it| it.forgotten.clone()), [(addr, endpoint_addr(1).socket_addr())]);
}

/// The process that began them said nothing: it was killed, or its tables were emptied, or are of another format.
#[test]
fn flows_that_nobody_told_of_end_unless_the_table_allows_them() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let all = udp(asking(1, &[(1, 1), (2, 1)]));
    let route = sheave_model::test_util::route([(0, 1)]);
    let drained = Frontend { external: route.clone(), internal: route, ..all.clone() };
    let proxied = udp(frontend(2, Algorithm::Random, &[(1, 1)]));
    let known = [drained.addr, proxied.addr];
    let gone = FrontendAddr { port: 99, ..known[0] };
    let (machine, unknown) = (udp(asking(3, &[])).addr, udp(asking(4, &[])).addr);
    let flow = |frontend: FrontendAddr, endpoint: u32| TranslatedFlow {
        client: "192.0.2.9:1000".parse().unwrap(),
        frontend,
        endpoint: endpoint_addr(endpoint).socket_addr(),
    };
    let stay =
        vec![flow(known[0], 1), flow(known[0], 2), flow(known[1], 1), flow(machine, 7), flow(unknown, 7)];
    let end = [flow(known[0], 3), flow(known[1], 2), flow(gone, 1)];
    kernel.with(|it| it.tracked = stay.iter().chain(&end).copied().collect());
    let mut path = telling(&kernel);
    drop(path.set_machine([machine.ip].into(), &active));
    apply(&mut path, &mut active, [drained, proxied]);
    until(&mut path, &active, |path| path.carries(known[0]) && path.awaited().is_none());
    // Another frontend may have it that the process does not know yet.
    assert_eq!(kernel.with(|it| it.tracked.clone()), [&stay[..], &end[2..]].concat());
    path.complete();
    path.tell();
    until(&mut path, &active, |path| path.awaited().is_none());
    assert_eq!(kernel.with(|it| it.tracked.clone()), stay);
}

#[test]
fn flows_end_of_clients_that_may_not_use_a_frontend_any_more() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let ranged = |number: u32, ranges: &[&str]| {
        let ranges = SourceRanges::new(ranges.iter().map(|range| range.parse().unwrap()).collect());
        Frontend { source_ranges: Arc::new(ranges), ..udp(asking(number, &[(1, 1)])) }
    };
    let [addr, other] = [1, 2].map(|number| ranged(number, &[]).addr);
    let flow = |frontend: FrontendAddr, client: &str| TranslatedFlow {
        client: client.parse().unwrap(),
        frontend,
        endpoint: endpoint_addr(1).socket_addr(),
    };
    let mut path = telling(&kernel);
    path.complete();
    let [near, far] = ["10.0.0.1:1000", "192.0.2.1:1000"];
    let all = [flow(addr, near), flow(addr, far), flow(other, far)];
    let few = [flow(addr, near), flow(other, far)];
    for (ranges, left) in [
        (&["0.0.0.0/0"][..], &all[..]),
        (&["10.0.0.0/8"], &few),
        // Wider again: what has ended does not come back by itself.
        (&["10.0.0.0/7", "192.0.2.0/24"], &few),
    ] {
        apply(&mut path, &mut active, [ranged(1, ranges), ranged(2, &[])]);
        until(&mut path, &active, |path| path.carries(addr) && path.awaited().is_none());
        if kernel.with(|it| it.tracked.is_empty()) {
            kernel.with(|it| it.tracked = all.to_vec());
        }
        assert_eq!(kernel.with(|it| it.tracked.clone()), left, "{ranges:?}");
    }
    // The proxy has it now, and the kernel its flows.
    let narrow = Frontend { path: PathChoice::Proxy, ..ranged(1, &["11.0.0.0/8"]) };
    apply(&mut path, &mut active, [narrow, ranged(2, &[])]);
    until(&mut path, &active, |path| path.awaited().is_none());
    assert_eq!(kernel.with(|it| it.tracked.clone()), [flow(other, far)]);
}

#[test]
fn connections_of_a_frontend_end_after_it_has_left_whoever_carried_it_last() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let mut path = telling(&kernel);
    let proxied = |number| frontend(number, Algorithm::Random, &[(number, 1)]);
    let table = |path: &mut KernelPath, active: &mut ActiveTable, frontends: Vec<Frontend>| {
        apply(path, active, frontends);
        until(path, active, |path| path.awaited().is_none());
    };
    table(&mut path, &mut active, vec![asking(1, &[(1, 1)]), asking(2, &[(1, 1)]), proxied(3)]);
    table(&mut path, &mut active, vec![proxied(1), asking(2, &[(2, 1)]), proxied(3)]);
    let ended = || kernel.with(|it| it.ended.clone());
    assert!(ended().is_empty());
    // The last one has none that the kernel carried.
    table(&mut path, &mut active, vec![proxied(1)]);
    until(&mut path, &active, |_| ended() == [frontend_addr(2)].into());
    // It leaves and comes back before its connections have ended, and leaves again.
    path.set_drain(Duration::from_secs(3600));
    table(&mut path, &mut active, vec![]);
    table(&mut path, &mut active, vec![proxied(1)]);
    path.set_drain(Duration::ZERO);
    table(&mut path, &mut active, vec![]);
    until(&mut path, &active, |_| ended() == [1, 2].map(frontend_addr).into());
}

#[test]
fn flows_stay_while_their_endpoint_serves_although_it_gets_no_new_ones() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let mut path = telling(&kernel);
    let all = udp(asking(1, &[(1, 1), (2, 1)]));
    let addr = all.addr;
    let route = sheave_model::test_util::route([(0, 1)]);
    let drained = Frontend { external: route.clone(), internal: route, ..all.clone() };
    let mut ended = Vec::new();
    for (frontend, left) in
        [(all, None), (drained, None), (udp(asking(1, &[(2, 1)])), Some(endpoint_addr(1)))]
    {
        apply(&mut path, &mut active, [frontend]);
        until(&mut path, &active, |path| path.carries(addr) && path.awaited().is_none());
        ended.extend(left.map(|endpoint| (addr, endpoint.socket_addr())));
        assert_eq!(kernel.with(|it| it.forgotten.clone()), ended);
    }
}

#[test]
fn tables_without_frontends_go_with_the_last_connection() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    kernel.with(|it| it.translates = true);
    let mut path = telling(&kernel);
    apply(&mut path, &mut active, [asking(1, &[(1, 1)])]);
    until(&mut path, &active, carried(frontend_addr(1)));
    apply(&mut path, &mut active, []);
    path.complete();
    path.tell();
    let retried = |path: &mut KernelPath, active: &ActiveTable| {
        drop(path.retry(active, |_| 0));
        // The thread takes its requests in order.
        path.unsent.closed.push(frontend_addr(9));
        path.tell();
        let number = path.writer.as_ref().map(|writer| writer.number);
        until(path, active, |path| path.writer.as_ref().map(|it| it.progress().done) == number);
    };
    retried(&mut path, &active);
    assert_eq!(kernel.with(|it| (it.elements.len(), it.removals)), (0, 0));
    kernel.with(|it| it.translates = false);
    until(&mut path, &active, |_| kernel.with(|it| it.removals) == 1);
    apply(&mut path, &mut active, [asking(2, &[(1, 1)])]);
    until(&mut path, &active, carried(frontend_addr(2)));
}

#[test]
fn a_hash_guards_connections_of_the_proxy_as_long_as_there_are_any() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let mut path = telling(&kernel);
    let addr = frontend_addr(1);
    let hashed = Frontend { algorithm: Algorithm::Maglev, algorithm_named: true, ..asking(1, &[(1, 1)]) };
    apply(&mut path, &mut active, [hashed]);
    until(&mut path, &active, carried(addr));
    let_the_proxy_close(&mut path);
    assert_eq!(path.retry(&active, |_| 1), [addr]);
    assert_eq!((path.proxying(addr), path.retry(&active, |_| 1)), (Proxying::Closed, vec![]));
    until(&mut path, &active, |_| kernel.is_guarded(addr) == Some(true));
    assert_eq!(path.retry(&active, |_| 0), []);
    path.tell();
    until(&mut path, &active, |_| kernel.is_guarded(addr) == Some(false));
    assert_eq!(path.proxying(addr), Proxying::Closed);
}

#[test]
fn flows_of_the_proxy_keep_their_listener() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let mut path = telling(&kernel);
    let frontend = udp(asking(1, &[(1, 1)]));
    let addr = frontend.addr;
    apply(&mut path, &mut active, [frontend]);
    until(&mut path, &active, carried(addr));
    let_the_proxy_close(&mut path);
    assert_eq!((path.retry(&active, |_| 1), path.proxying(addr)), (vec![], Proxying::Waits));
    assert_eq!((path.retry(&active, |_| 0), path.proxying(addr)), (vec![addr], Proxying::Closed));
}

#[test]
fn the_proxy_listens_while_the_kernel_refuses_and_closes_once_it_has_taken_everything() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    kernel.with(|it| it.refuses = true);
    let mut path = telling(&kernel);
    apply(&mut path, &mut active, [asking(1, &[(1, 1)])]);
    until(&mut path, &active, |path| path.failure.is_some());
    apply(&mut path, &mut active, [asking(1, &[(1, 1)]), asking(2, &[(1, 1)])]);
    for number in [1, 2] {
        assert_eq!(path.proxying(frontend_addr(number)), Proxying::Listens);
        assert!(path.errors().of(frontend_addr(number).ip).is_some());
    }
    kernel.with(|it| it.refuses = false);
    drop(path.retry(&active, |_| 0));
    until(&mut path, &active, |path| path.carries(frontend_addr(1)) && path.carries(frontend_addr(2)));
    assert!(path.errors().of(frontend_addr(1).ip).is_none());
}

#[test]
fn what_is_the_proxys_is_known_to_the_kernel_whoever_has_started_telling_it() {
    let (kernel, mut active) = (left_of(&[1]), ActiveTable::default());
    let mut path = telling(&kernel);
    let mut proxied = frontend(1, Algorithm::Random, &[(1, 1)]);
    proxied.addr.port = 443;
    apply(&mut path, &mut active, [proxied.clone()]);
    path.complete();
    // As if tables had been found.
    path.tidy = true;
    assert!(path.start(&active));
    path.tell();
    let addr = proxied.addr;
    apply(&mut path, &mut active, [proxied, asking(1, &[(1, 1)])]);
    until(&mut path, &active, carried(frontend_addr(1)));
    assert!(kernel.has(&Element::Service(addr, Action::Accept)));
}

/// A dump that was interrupted, or no descriptor for a moment.
#[test]
fn a_check_that_failed_moves_nothing() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let mut path = telling(&kernel);
    apply(&mut path, &mut active, [asking(1, &[(1, 100)])]);
    until(&mut path, &active, carried(frontend_addr(1)));
    let (established, checks) = kernel.with(|it| {
        it.unreadable = true;
        (it.established, it.checks)
    });
    until(&mut path, &active, |path| {
        assert!(path.carries(frontend_addr(1)), "{:?}", path.errors());
        assert_eq!(path.errors(), &KernelPathErrors::NONE);
        kernel.with(|it| it.established != established || it.checks > checks + 3)
    });
    assert_eq!(kernel.with(|it| it.established), established, "it is told nothing again");
}

/// A million flows would go on for minutes if each ten thousand waited for a retry.
#[test]
fn what_is_too_much_to_end_together_ends_without_a_retry() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    let mut path = telling(&kernel);
    let (both, tcp) = (udp(asking(1, &[(1, 1), (2, 1)])), asking(2, &[(1, 1)]));
    let (gone, left) = ((both.addr, endpoint_addr(1).socket_addr()), tcp.addr);
    apply(&mut path, &mut active, [both, tcp]);
    until(&mut path, &active, |path| path.carries(gone.0) && path.carries(left));
    kernel.with(|it| (it.leaves_flows, it.leaves_connections) = (3, 3));
    apply(&mut path, &mut active, [udp(asking(1, &[(2, 1)]))]);
    until_alone(&mut path, &active, || kernel.with(|it| it.forgotten == [gone; 4]));
    // Those whose time to drain is over end with a retry.
    drop(path.retry(&active, |_| 1));
    until_alone(&mut path, &active, || {
        kernel.with(|it| it.ended.contains(&left) && it.leaves_connections == 0)
    });
}

/// Nothing may be sent into nowhere only because nobody could see whether packets are forwarded.
#[test]
fn what_could_not_be_checked_at_the_start_is_the_proxys_until_it_is() {
    let (kernel, mut active) = (Fake::default(), ActiveTable::default());
    kernel.with(|it| it.unreadable = true);
    let mut path = telling(&kernel);
    let addr = frontend_addr(1);
    apply(&mut path, &mut active, [asking(1, &[(1, 100)])]);
    let checked = kernel.with(|it| it.checks);
    until(&mut path, &active, |path| {
        assert!(!path.carries(addr));
        kernel.with(|it| it.checks > checked + 3)
    });
    assert!(path.errors().of(addr.ip).is_some());
    kernel.with(|it| it.unreadable = false);
    until(&mut path, &active, carried(addr));
}
