use std::sync::Arc;
use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::forwarding::{Decision, Masquerade, Method};
use crate::meaning::{Fate, Meaning};
use crate::ruleset::Chooser;

const FRONTEND_ADDRESSES: [&str; 4] = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
const CLIENTS: [&str; 8] = [
    "10.0.0.0",
    "10.0.0.1",
    "10.0.0.2",
    "203.0.113.9",
    "2001:db8:1::",
    "2001:db8:1::1",
    "2001:db8:1::2",
    "fd00::9",
];
/// A port that no frontend has.
const UNSERVED: u16 = 99;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(ip: IpAddr, port: u16) -> FrontendAddr {
    FrontendAddr { ip, port, protocol: Protocol::Tcp }
}

fn endpoint_of(ip: IpAddr, number: u16) -> SocketAddr {
    let host = match ip {
        IpAddr::V4(_) => IpAddr::from([10, 1, (number >> 8) as u8, number as u8]),
        IpAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number]),
    };
    SocketAddr::new(host, 8080)
}

fn forward(addr: FrontendAddr, endpoints: &[(u16, u32)]) -> Forwarding {
    let decision = Decision::Forward(
        endpoints.iter().map(|&(number, share)| (endpoint_of(addr.ip, number), share)).collect(),
    );
    Forwarding {
        addr,
        external: decision.clone(),
        internal: decision,
        method: Method::Random,
        guarded: false,
        affinity: None,
        masquerade: Masquerade::Nobody,
        admitted: Arc::new(AddressSet::all()),
    }
}

fn proxied(addr: FrontendAddr) -> Forwarding {
    Forwarding { external: Decision::Proxy, internal: Decision::Proxy, ..forward(addr, &[]) }
}

fn plan_of(forwardings: impl IntoIterator<Item = Forwarding>) -> Plan {
    let mut plan = Plan::default();
    plan.apply(forwardings.into_iter().map(|it| (it.addr, Some(it))));
    plan
}

fn any_frontend() -> impl Strategy<Value = FrontendAddr> {
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
    (select(&FRONTEND_ADDRESSES[..]), 80..82_u16, protocol)
        .prop_map(|(address, port, protocol)| FrontendAddr { ip: ip(address), port, protocol })
}

fn any_clients() -> impl Strategy<Value = AddressSet> {
    let some = || subsequence(&CLIENTS[..], 0..=CLIENTS.len());
    let of = |clients: Vec<&str>| {
        clients.into_iter().fold(AddressSet::default(), |set, client| set.with(ip(client)))
    };
    prop_oneof![some().prop_map(of), some().prop_map(move |clients| of(clients).complement())]
}

fn any_decision(ip: IpAddr) -> impl Strategy<Value = Decision> {
    let share = select(vec![1, 2, 3, 100, 1_000_000]);
    let endpoints = btree_set(0..5_u16, 1..4).prop_flat_map(move |numbers| {
        vec(share.clone(), numbers.len()).prop_map(move |shares| {
            let endpoints = numbers.iter().map(|&number| endpoint_of(ip, number)).zip(shares);
            Decision::Forward(endpoints.collect())
        })
    });
    prop_oneof![3 => endpoints, 1 => Just(Decision::Refuse), 1 => Just(Decision::Discard), 2 => Just(Decision::Proxy)]
}

fn any_masquerade() -> impl Strategy<Value = Masquerade> {
    select(vec![Masquerade::Nobody, Masquerade::Internal, Masquerade::Everyone])
}

fn any_forwarding(addr: FrontendAddr) -> impl Strategy<Value = Forwarding> {
    let decisions = (any_decision(addr.ip), any_decision(addr.ip), any::<bool>())
        .prop_map(|(external, internal, same)| (external.clone(), if same { external } else { internal }));
    let method = prop_oneof![4 => Just((Method::Random, false)), 1 => (Just(Method::Hash), any::<bool>())];
    let affinity = select(vec![None, None, Some(Duration::from_secs(1)), Some(Duration::from_secs(10_800))]);
    let admitted = prop_oneof![2 => Just(AddressSet::all()), 1 => any_clients()].prop_map(Arc::new);
    (decisions, method, affinity, any_masquerade(), admitted).prop_map(
        move |((external, internal), (method, guarded), affinity, masquerade, admitted)| Forwarding {
            addr,
            external,
            internal,
            method,
            guarded,
            affinity,
            masquerade,
            admitted,
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<(FrontendAddr, Option<Forwarding>)>),
    InternalClients(AddressSet),
    Machine(Vec<&'static str>),
}

fn any_step() -> impl Strategy<Value = Step> {
    let change = any_frontend().prop_flat_map(|addr| {
        let forwarding = prop_oneof![
            3 => any_forwarding(addr).prop_map(Some),
            1 => Just(Some(proxied(addr))),
            2 => Just(None),
        ];
        (Just(addr), forwarding)
    });
    prop_oneof![
        6 => vec(change, 1..6).prop_map(Step::Apply),
        1 => any_clients().prop_map(Step::InternalClients),
        1 => subsequence(&FRONTEND_ADDRESSES[..], 0..=4).prop_map(Step::Machine),
    ]
}

impl Step {
    fn take(self, plan: &mut Plan) -> Changes {
        match self {
            Self::Apply(changes) => plan.apply(changes),
            Self::InternalClients(clients) => plan.set_internal_clients(&clients),
            Self::Machine(addresses) => plan.set_machine(addresses.into_iter().map(ip)),
        }
    }
}

/// The kernel's sets and chains, which refuse what the kernel refuses.
#[derive(Default)]
struct Kernel {
    elements: BTreeSet<Element>,
    chains: BTreeSet<(Family, Chain)>,
}

impl Kernel {
    fn take(&mut self, changes: Changes) {
        for chain in changes.new_chains {
            assert!(self.chains.insert(chain), "{chain:?} is already there");
        }
        for element in changes.removed {
            assert!(self.elements.remove(&element), "{element:?} is not there");
        }
        let mut keys: BTreeSet<Element> = self.elements.iter().map(key).collect();
        for element in changes.added {
            assert!(keys.insert(key(&element)), "the key of {element:?} is already there");
            self.elements.insert(element);
        }
        for chain in changes.old_chains {
            assert!(self.chains.remove(&chain), "{chain:?} is not there");
        }
        let named = self.elements.iter().flat_map(needs).filter_map(|shared| match shared {
            Shared::Chain(family, chain) => Some((family, chain)),
            _ => None,
        });
        assert_eq!(named.collect::<BTreeSet<_>>(), self.chains, "chains that the elements name");
    }

    fn assert_is(&self, plan: &Plan) {
        assert_eq!(self.elements, plan.elements());
        assert_eq!(self.chains, plan.chains());
    }
}

/// The element with a fixed value in place of its own.
fn key(element: &Element) -> Element {
    match *element {
        Element::Service(frontend, _) => Element::Service(frontend, Action::Accept),
        Element::ServiceInternal(frontend, _) => Element::ServiceInternal(frontend, Action::Accept),
        Element::Slot(frontend, slot, _) => Element::Slot(frontend, slot, endpoint_of(frontend.ip, 0)),
        Element::Learn(frontend, _) => Element::Learn(frontend, 0),
        other => other,
    }
}

fn plan_after(steps: Vec<Step>) -> Plan {
    let mut plan = Plan::default();
    for step in steps {
        step.take(&mut plan);
    }
    plan
}

fn told(plan: &Plan) -> BTreeMap<FrontendAddr, Forwarding> {
    let told = |(addr, entry): (&FrontendAddr, &Known)| match entry {
        Known::Told(forwarding) => (*addr, forwarding.clone()),
        Known::Kept(elements) => panic!("{elements:?} were told by nobody"),
    };
    plan.entries.iter().map(told).collect()
}

/// What the forwardings say about a connection: its fate, or its candidates with their shares.
fn asked(plan: &Plan, client: IpAddr, addr: FrontendAddr) -> Result<Vec<(SocketAddr, u32)>, Fate> {
    let needs_kernel = |it: &Forwarding| it.addr.ip == addr.ip && !it.is_proxied();
    let forwardings = told(plan);
    if !forwardings.values().any(needs_kernel) {
        return Err(Fate::Untouched);
    }
    let Some(forwarding) = forwardings.get(&addr) else {
        return Err(if plan.machine.contains(&addr.ip) { Fate::ToSocket } else { Fate::Refuse });
    };
    if !forwarding.is_proxied() && !forwarding.admitted.contains(client) {
        return Err(Fate::Discard);
    }
    match if plan.internal_clients.contains(client) { &forwarding.internal } else { &forwarding.external } {
        Decision::Forward(endpoints) => Ok(endpoints.clone()),
        Decision::Refuse => Err(Fate::Refuse),
        Decision::Discard => Err(Fate::Discard),
        Decision::Proxy => Err(Fate::ToSocket),
    }
}

/// The plan's ruleset does with a connection what its forwardings say.
fn assert_means(plan: &Plan, meaning: &Meaning, client: IpAddr, addr: FrontendAddr) {
    const DRAWS: u32 = 256;
    let candidates = match asked(plan, client, addr) {
        Err(fate) => return assert_eq!(meaning.fate(client, addr, None, 0), fate),
        Ok(candidates) => candidates,
    };
    let forwarding = &told(plan)[&addr];
    let sticky = forwarding.affinity.is_some();
    let fate = |endpoint| Fate::Forward {
        endpoint,
        masquerade: match forwarding.masquerade {
            Masquerade::Nobody => false,
            Masquerade::Internal => plan.internal_clients.contains(client),
            Masquerade::Everyone => true,
        },
        learnt: forwarding.affinity.map(|it| it.as_secs() as u32),
    };
    let mut chosen: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    for draw in 0..DRAWS {
        let found = meaning.fate(client, addr, None, draw * (u32::MAX / DRAWS));
        let Fate::Forward { endpoint, .. } = found else { panic!("{found:?} in place of an endpoint") };
        assert_eq!(found, fate(endpoint));
        *chosen.entry(endpoint).or_default() += 1;
    }
    let sum: f64 = candidates.iter().map(|&(_, share)| f64::from(share)).sum();
    for &(endpoint, share) in &candidates {
        let count = f64::from(chosen.remove(&endpoint).unwrap_or_default());
        // One draw more or less on each side of its slots, and the rounding of slots.
        let off = (count / f64::from(DRAWS) - f64::from(share) / sum).abs();
        let rounding = candidates.len() as f64 / 1_024.0;
        assert!(
            forwarding.method == Method::Hash || off <= 2.0 / f64::from(DRAWS) + rounding,
            "{endpoint}: {count} draws"
        );
        if sticky {
            assert_eq!(meaning.fate(client, addr, Some(endpoint), 0), fate(endpoint), "by the record");
        }
    }
    assert!(chosen.is_empty(), "{chosen:?} are no candidates");
    let is_candidate = |it: &SocketAddr| candidates.iter().any(|(candidate, _)| candidate == it);
    // Those of the other route are among the numbers below 5.
    let others = (0..5).chain([77]).map(|number| endpoint_of(addr.ip, number)).filter(|it| !is_candidate(it));
    for other in others.filter(|_| sticky) {
        let found = meaning.fate(client, addr, Some(other), 0);
        assert_eq!(found, Fate::Discard, "by a record of {other}, which the client does not get");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn changes_one_after_the_other_make_the_ruleset_from_nothing(steps in vec(any_step(), 1..12)) {
        let (mut plan, mut kernel) = (Plan::default(), Kernel::default());
        for step in steps {
            let repeated = step.clone();
            kernel.take(step.take(&mut plan));
            kernel.assert_is(&plan);
            prop_assert!(repeated.take(&mut plan).is_empty(), "nothing changes twice");
        }
        let mut fresh = Plan::default();
        fresh.set_machine(plan.machine.iter().copied());
        fresh.set_internal_clients(&plan.internal_clients);
        fresh.apply(told(&plan).into_iter().map(|(addr, it)| (addr, Some(it))));
        kernel.assert_is(&fresh);
        let all: Vec<_> = told(&plan).into_keys().map(|addr| (addr, None)).collect();
        kernel.take(plan.apply(all));
        prop_assert!(kernel.elements.is_empty() && kernel.chains.is_empty(), "nothing is left: {:?}", kernel.elements);
    }

    #[test]
    fn the_ruleset_means_what_the_forwardings_say(steps in vec(any_step(), 1..6)) {
        let plan = plan_after(steps);
        let all: Meaning = plan.elements().into_iter().collect();
        let ports = [(80, Protocol::Tcp), (80, Protocol::Udp), (81, Protocol::Tcp), (UNSERVED, Protocol::Udp)];
        for address in FRONTEND_ADDRESSES.map(ip) {
            for addr in ports.map(|(port, protocol)| FrontendAddr { ip: address, port, protocol }) {
                let alone: Meaning = plan.elements_of(addr).into_iter().collect();
                for client in CLIENTS.map(ip).into_iter().filter(|client| client.is_ipv4() == address.is_ipv4()) {
                    assert_means(&plan, &all, client, addr);
                    prop_assert_eq!(alone.fate(client, addr, None, 0), all.fate(client, addr, None, 0));
                }
            }
        }
    }

    #[test]
    fn what_an_earlier_process_left_stays_until_every_frontend_is_told(
        steps in vec(any_step(), 1..12),
        known in vec(any::<bool>(), 16),
    ) {
        let old = plan_after(steps);
        let mut kernel = Kernel { elements: old.elements(), chains: old.chains() };
        let known = told(&old).into_iter().zip(known).filter(|(_, known)| *known);
        let known: Vec<_> = known.map(|((addr, it), _)| (addr, Some(it))).collect();
        let begin = || {
            let mut plan = Plan::default();
            plan.set_machine(old.machine.iter().copied());
            plan.set_internal_clients(&old.internal_clients);
            plan.apply(known.clone());
            plan
        };
        let mut plan = begin();
        plan.keep(&kernel.elements);
        prop_assert!(plan.difference((&kernel.elements, &kernel.chains)).is_empty());
        kernel.take(plan.forget_kept());
        kernel.assert_is(&begin());
    }

    #[test]
    fn the_difference_from_any_ruleset_makes_the_plans(steps in vec(any_step(), 1..6), others in vec(any_step(), 0..6)) {
        let (plan, other) = (plan_after(steps), plan_after(others));
        let mut kernel = Kernel { elements: other.elements(), chains: other.chains() };
        kernel.take(plan.difference((&kernel.elements, &kernel.chains)));
        kernel.assert_is(&plan);
        prop_assert!(plan.difference((&kernel.elements, &kernel.chains)).is_empty());
    }
}

#[test]
fn replacing_an_endpoint_changes_its_elements_and_nothing_else() {
    let addr = at(ip("192.0.2.1"), 80);
    let mut plan = plan_of([
        forward(addr, &[(1, 1), (2, 1)]),
        proxied(at(addr.ip, 81)),
        forward(at(addr.ip, 82), &[(1, 1)]),
    ]);
    let changes = plan.apply([(addr, Some(forward(addr, &[(1, 1), (3, 1)])))]);
    let (old, new) = (endpoint_of(addr.ip, 2), endpoint_of(addr.ip, 3));
    let elements = |endpoint| {
        vec![
            Element::Slot(addr, 1, endpoint),
            Element::Endpoint(addr, endpoint),
            Element::EndpointPort(Protocol::Tcp, endpoint),
        ]
    };
    let expected = Changes { removed: elements(old), added: elements(new), ..Changes::default() };
    assert_eq!(changes, expected);
}

#[test]
fn proxied_frontends_are_there_as_long_as_their_address_has_one_of_the_kernel() {
    let (addr, proxy) = (at(ip("192.0.2.1"), 80), at(ip("192.0.2.1"), 81));
    let mut plan = plan_of([proxied(proxy), proxied(addr)]);
    assert!(plan.elements().is_empty());
    plan.set_machine([addr.ip, ip("192.0.2.2")]);
    let changes = plan.apply([(addr, Some(Forwarding { internal: Decision::Refuse, ..proxied(addr) }))]);
    let expected = [
        Element::Service(addr, Action::Accept),
        Element::ServiceInternal(addr, Action::Refuse),
        Element::Service(proxy, Action::Accept),
        Element::Address(addr.ip),
        Element::Machine(addr.ip),
    ];
    assert_eq!((changes.added.as_slice(), changes.removed.len()), (&expected[..], 0));
    let changes = plan.apply([(addr, Some(proxied(addr)))]);
    assert_eq!((changes.removed.as_slice(), changes.added.len()), (&expected[..], 0));
}

#[test]
fn internal_clients_have_slots_of_their_own_only_where_they_are_treated_differently() {
    let addr = at(ip("192.0.2.1"), 80);
    let mut plan = Plan::default();
    plan.set_internal_clients(&AddressSet::default().with(ip("10.0.0.1")).with(ip("fd00::1")));
    let Decision::Forward(reordered) = forward(addr, &[(2, 50), (1, 50)]).external else { unreachable!() };
    let same = Forwarding { internal: Decision::Forward(reordered), ..forward(addr, &[(1, 1), (2, 1)]) };
    plan.apply([(addr, Some(same.clone()))]);
    assert!(
        !plan.elements().iter().any(|it| matches!(it, Element::ServiceInternal(..) | Element::Internal(..)))
    );
    let internal = forward(addr, &[(3, 1)]).internal;
    let changes = plan.apply([(addr, Some(Forwarding { internal, ..same }))]);
    let chooser = Chooser { method: Method::Random, slots: 1, offset: 2, sticky: false, guarded: false };
    let endpoint = endpoint_of(addr.ip, 3);
    let expected = Changes {
        new_chains: vec![(Family::Ipv4, Chain::Choose(chooser))],
        added: vec![
            Element::ServiceInternal(addr, Action::Choose(chooser)),
            Element::Slot(addr, 2, endpoint),
            Element::Endpoint(addr, endpoint),
            Element::EndpointPort(Protocol::Tcp, endpoint),
            Element::Internal(ip("10.0.0.1"), ip("10.0.0.1")),
        ],
        ..Changes::default()
    };
    assert_eq!(changes, expected);
}

#[test]
fn an_empty_set_of_clients_admits_nobody() {
    let addr = at(ip("2001:db8::1"), 80);
    let of = |admitted: AddressSet| {
        let plan = plan_of([Forwarding { admitted: Arc::new(admitted), ..forward(addr, &[(1, 1)]) }]);
        let meaning: Meaning = plan.elements().into_iter().collect();
        (plan, meaning.fate(ip("fd00::9"), addr, None, 0))
    };
    let (plan, fate) = of(AddressSet::default().with(ip("10.0.0.1")));
    assert!(plan.elements().contains(&Element::Ranged(addr)));
    assert_eq!(fate, Fate::Discard);
    // Clients of the other family do not matter.
    let (plan, fate) = of(AddressSet::all().of_family(addr.ip));
    assert!(!plan.elements().contains(&Element::Ranged(addr)));
    assert!(matches!(fate, Fate::Forward { .. }));
}

#[test]
fn a_thousand_endpoints_with_weights_of_a_million_are_changed_one_by_one() {
    let addr = at(ip("192.0.2.1"), 80);
    let mut endpoints: Vec<(u16, u32)> = (0..1_000).map(|number| (number, 1_000_000)).collect();
    let mut plan = plan_of([forward(addr, &endpoints)]);
    // Slot, Endpoint and EndpointPort of each; Service and Address.
    assert_eq!(plan.elements().len(), 3_002);
    endpoints[999] = (1_000, 1_000_000);
    let changes = plan.apply([(addr, Some(forward(addr, &endpoints)))]);
    assert_eq!((changes.removed.len(), changes.added.len()), (3, 3));
    // The shares have no common divisor any more: the limit of four slots for each endpoint.
    endpoints[999].1 = 999_999;
    plan.apply([(addr, Some(forward(addr, &endpoints)))]);
    assert_eq!(plan.elements().len(), 4_000 + 2_002);
}

#[test]
fn every_port_of_an_address_and_every_address_of_a_network_leave_nothing_behind() {
    let ports = (1..=u16::MAX).map(|port| at(ip("192.0.2.1"), port));
    let network = (0..=255).map(|host| at(IpAddr::from([198, 51, 100, host]), 80));
    for addrs in [ports.collect::<Vec<_>>(), network.collect()] {
        let mut plan = plan_of(addrs.iter().map(|&addr| forward(addr, &[(1, 1)])));
        let addresses: BTreeSet<IpAddr> = addrs.iter().map(|addr| addr.ip).collect();
        // Service, Slot and Endpoint of each; the endpoint's port is shared.
        assert_eq!(plan.elements().len(), addrs.len() * 3 + addresses.len() + 1);
        assert_eq!(plan.chains().len(), 1);
        let changes = plan.apply(addrs.iter().map(|&addr| (addr, None)));
        assert_eq!(changes.removed.len(), addrs.len() * 3 + addresses.len() + 1);
        assert_eq!(changes.old_chains.len(), 1);
        assert!(plan.elements().is_empty() && plan.uses.0.is_empty());
    }
}
