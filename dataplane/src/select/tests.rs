//! Tests of the pick as a whole: routes, loads and turns across tables, session affinity by the rules of kube-proxy.

mod affinity;
mod clusters;
mod health;
mod server_names;
mod split;
mod tables;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::balance::hash::mix;
use crate::select::affinity::AffinityTable;
use sheave_model::test_util::{backend, endpoint_addr, frontend, frontend_addr, route, table};
use sheave_model::{AddressSet, Affinity, AffinityScope, Algorithm, Frontend, Route, SourceRanges};

const TIMEOUT: Duration = Duration::from_secs(10);
const STICKY: Affinity = Affinity::ClientIp { timeout: TIMEOUT, scope: AffinityScope::Port };
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::LeastConnections, Algorithm::Maglev, Algorithm::RoundRobin, Algorithm::Random];

fn client(number: u32, port: u16) -> ClientAddr {
    ClientAddr(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0xc000_0200 + number)), port))
}

fn external(number: u32) -> PickRequest<'static> {
    PickRequest {
        client: client(number, 1000),
        origin: Origin::External,
        random: mix(u64::from(number) + 1),
        now: Instant::now(),
        tried: &[],
        part: None,
    }
}

fn compile(frontends: impl IntoIterator<Item = Frontend>, previous: &ActiveTable) -> ActiveTable {
    ActiveTable::compile(table(frontends), previous)
}

/// The only frontend, compiled after a table without it.
fn active(frontend: Frontend) -> Arc<ActiveFrontend> {
    let addr = frontend.addr;
    Arc::clone(compile([frontend], &ActiveTable::default()).get(addr).unwrap())
}

/// Compiles a changed frontend, with its state before the change in the previous table.
fn changed(frontend: Frontend, before: &Arc<ActiveFrontend>) -> Arc<ActiveFrontend> {
    let addr = frontend.addr;
    let specs = RoutingTable::new(1, vec![Arc::clone(before.spec())], Arc::default());
    let mut previous = ActiveTable { table: Arc::new(specs), ..ActiveTable::default() };
    Arc::make_mut(&mut previous.shards[shard_of(addr)]).insert(ByAddr(Arc::clone(before)));
    Arc::clone(compile([frontend], &previous).get(addr).unwrap())
}

fn forward(pick: Pick) -> Picked {
    match pick {
        Pick::Forward(picked) => picked,
        other => panic!("not forwarded: {other:?}"),
    }
}

/// The endpoint of a connection that ends at once.
fn goes(frontend: &ActiveFrontend, request: &PickRequest<'_>, affinity: &AffinityTable) -> EndpointAddr {
    forward(frontend.pick(request, affinity)).addr()
}

fn loads(frontend: &ActiveFrontend) -> Vec<u32> {
    frontend.loads().map(|(_, load)| load.active()).collect()
}

#[test]
fn each_origin_gets_its_own_route() {
    let mut spec = frontend(1, Algorithm::RoundRobin, &[(1, 100), (2, 100)]);
    spec.external = Route::Drop;
    spec.internal = route([(0, 1)]);
    let (frontend, affinity) = (active(spec.clone()), AffinityTable::default());
    assert!(matches!(frontend.pick(&external(1), &affinity), Pick::Drop));
    let internal = PickRequest { origin: Origin::Internal, ..external(1) };
    assert_eq!(goes(&frontend, &internal, &affinity), endpoint_addr(2));
    spec.internal = Route::Reject;
    assert!(matches!(active(spec).pick(&internal, &affinity), Pick::Reject));
}

#[test]
fn addresses_of_pods_and_services_are_identities() {
    let internal = Arc::new(AddressSet::from_cidrs(&["10.0.0.0/8".parse().unwrap()]));
    let served = RoutingTable::new(1, vec![Arc::new(frontend(1, Algorithm::Random, &[]))], internal);
    let table = ActiveTable::compile(served, &ActiveTable::default());
    let is_identity = |ip: &str| table.is_identity(ip.parse().unwrap());
    assert!(is_identity("10.1.2.3") && table.is_identity(frontend_addr(1).ip));
    assert!(!is_identity("11.1.2.3") && !table.is_identity(frontend_addr(2).ip));
}

#[test]
fn clients_count_as_internal_by_address_also_when_mapped_or_the_frontends_own() {
    let internal = AddressSet::from_cidrs(&["10.0.0.0/8".parse().unwrap()]);
    let table =
        ActiveTable::compile(RoutingTable::new(1, vec![], Arc::new(internal)), &ActiveTable::default());
    let origin = |text: &str| table.origin(frontend_addr(1), ClientAddr(text.parse().unwrap()));
    assert_eq!(origin("10.1.2.3:1"), Origin::Internal);
    assert_eq!(origin("[::ffff:10.1.2.3]:1"), Origin::Internal);
    assert_eq!(origin("11.1.2.3:1"), Origin::External);
    let own = std::net::SocketAddr::new(frontend_addr(1).ip, 1);
    assert_eq!(table.origin(frontend_addr(1), ClientAddr(own)), Origin::Internal);
    assert_eq!(table.origin(frontend_addr(2), ClientAddr(own)), Origin::External);
}

#[test]
fn an_endpoint_that_lingers_keeps_its_flows_and_is_never_chosen() {
    let mut spec = frontend(1, Algorithm::RoundRobin, &[(1, 1)]);
    let backend = sheave_model::Backend { lingering: vec![endpoint_addr(9)], ..spec.backends[0].clone() };
    spec.backends = Arc::new([backend]);
    let frontend = active(spec);
    assert!(frontend.serves(endpoint_addr(9)) && !frontend.serves(endpoint_addr(8)));
    let affinity = AffinityTable::default();
    for number in 0..4 {
        assert_eq!(goes(&frontend, &external(number), &affinity), endpoint_addr(1));
    }
}

#[test]
fn clients_outside_the_source_ranges_are_dropped_whatever_the_route() {
    let mut spec = frontend(1, Algorithm::Random, &[(1, 1)]);
    spec.source_ranges = Arc::new(SourceRanges::new(vec!["192.0.2.0/24".parse().unwrap()]));
    let frontend = active(spec);
    for origin in [Origin::External, Origin::Internal] {
        let request = |ip: &str| PickRequest {
            client: ClientAddr((ip.parse::<IpAddr>().unwrap(), 9).into()),
            origin,
            ..external(1)
        };
        let affinity = AffinityTable::default();
        assert!(matches!(frontend.pick(&request("192.0.2.7"), &affinity), Pick::Forward(_)));
        assert!(matches!(frontend.pick(&request("192.0.3.7"), &affinity), Pick::Drop));
        assert_eq!(frontend.preview(&request("192.0.3.7"), &affinity), Preview::Drop);
    }
}

#[test]
fn a_candidate_that_names_no_endpoint_is_left_out() {
    let mut spec = frontend(1, Algorithm::Random, &[(1, 100)]);
    spec.external = route([(0, 0), (0, 7), (9, 0)]);
    let frontend = active(spec.clone());
    assert_eq!(goes(&frontend, &external(1), &AffinityTable::default()), endpoint_addr(1));
    spec.external = route([(9, 0)]);
    assert!(matches!(active(spec).pick(&external(1), &AffinityTable::default()), Pick::Reject));
}

#[test]
fn the_choices_of_an_origin_are_its_candidates_with_a_share() {
    let mut spec = frontend(1, Algorithm::RoundRobin, &[(1, 100), (2, 0), (3, 100)]);
    spec.internal = route([(0, 0), (0, 1)]);
    let choices = |frontend: &ActiveFrontend, origin| frontend.choices(origin).collect::<Vec<EndpointAddr>>();
    let frontend = active(spec.clone());
    assert_eq!(choices(&frontend, Origin::External), [endpoint_addr(1), endpoint_addr(3)]);
    assert_eq!(choices(&frontend, Origin::Internal), [endpoint_addr(1)]);
    assert_eq!(frontend.algorithm(), Algorithm::RoundRobin);
    spec.external = Route::Drop;
    spec.affinity = STICKY;
    let sticky = active(spec);
    assert_eq!(choices(&sticky, Origin::External), []);
    assert_eq!(sticky.algorithm(), Algorithm::Maglev, "affinity's first pick is a hash");
}

#[test]
fn shares_follow_backend_weights_then_endpoint_weights() {
    let mut spec = frontend(1, Algorithm::RoundRobin, &[]);
    spec.backends = Arc::new([backend("a", 1, &[(1, 100), (2, 300)]), backend("b", 3, &[(3, 7)])]);
    spec.external = route([(0, 0), (0, 1), (1, 0)]);
    let (frontend, affinity) = (active(spec), AffinityTable::default());
    let mut counts = [0; 4];
    for number in 0..160 {
        let EndpointAddr { ip: IpAddr::V4(ip), .. } = goes(&frontend, &external(number), &affinity) else {
            panic!()
        };
        counts[ip.octets()[3] as usize] += 1;
    }
    assert_eq!(counts, [0, 10, 30, 120]);
}

#[test]
fn one_address_in_two_backends_is_one_endpoint() {
    let mut spec = frontend(1, Algorithm::LeastConnections, &[]);
    spec.backends = Arc::new([backend("a", 1, &[(1, 100)]), backend("b", 1, &[(1, 100)])]);
    spec.external = route([(0, 0), (1, 0)]);
    let frontend = active(spec);
    let held = frontend.pick(&external(1), &AffinityTable::default());
    assert_eq!(loads(&frontend), [1]);
    drop(held);
    assert_eq!(loads(&frontend), [0]);
}

#[test]
fn open_connections_spread_evenly_and_their_ends_are_counted() {
    let frontend = active(frontend(1, Algorithm::LeastConnections, &[(1, 100), (2, 100), (3, 100)]));
    let affinity = AffinityTable::default();
    let held: Vec<Picked> =
        (0..300).map(|number| forward(frontend.pick(&external(number), &affinity))).collect();
    assert_eq!(loads(&frontend).iter().sum::<u32>(), 300);
    assert!(loads(&frontend).iter().all(|load| load.abs_diff(100) <= 5), "{:?}", loads(&frontend));
    drop(held);
    assert_eq!(loads(&frontend), [0, 0, 0]);
}

#[test]
fn clients_ports_hash_apart_without_affinity_and_alike_with_it() {
    let mut spec = frontend(1, Algorithm::Maglev, &[(1, 100), (2, 100), (3, 100)]);
    let affinity = AffinityTable::default();
    let reached = |frontend: &ActiveFrontend| -> BTreeSet<_> {
        let ports = (0..200).map(|port| PickRequest { client: client(1, port), ..external(1) });
        ports.map(|request| goes(frontend, &request, &affinity)).collect()
    };
    assert_eq!(reached(&active(spec.clone())).len(), 3);
    spec.affinity = STICKY;
    assert_eq!(reached(&active(spec)).len(), 1);
}

fn any_frontend() -> impl Strategy<Value = Frontend> {
    let endpoints = prop::collection::vec((0u32..8, prop_oneof![Just(0u16), Just(100), any::<u16>()]), 1..8);
    (endpoints, 0usize..4, any::<bool>()).prop_map(|(endpoints, algorithm, sticky)| {
        let affinity = if sticky { STICKY } else { Affinity::None };
        Frontend { affinity, ..frontend(1, ALGORITHMS[algorithm], &endpoints) }
    })
}

proptest! {
    #[test]
    fn a_retry_reaches_every_eligible_endpoint_once_before_any_twice(spec in any_frontend(), number in any::<u8>()) {
        let all_zero = spec.backends[0].endpoints.iter().all(|endpoint| endpoint.weight.0 == 0);
        let eligible: BTreeSet<_> = spec.backends[0]
            .endpoints
            .iter()
            .filter(|endpoint| all_zero || endpoint.weight.0 > 0)
            .map(|endpoint| endpoint.addr)
            .collect();
        let (frontend, affinity) = (active(spec), AffinityTable::default());
        let mut tried = Vec::new();
        for _ in 0..eligible.len() {
            let next = goes(&frontend, &PickRequest { tried: &tried, ..external(number.into()) }, &affinity);
            tried.push(next);
        }
        prop_assert_eq!(tried.iter().copied().collect::<BTreeSet<_>>(), eligible.clone());
        let again = goes(&frontend, &PickRequest { tried: &tried, ..external(number.into()) }, &affinity);
        prop_assert!(eligible.contains(&again));
    }

    #[test]
    fn a_preview_is_what_the_pick_then_does_and_changes_nothing(
        spec in any_frontend(), requests in prop::collection::vec((0u32..4, any::<u64>()), 1..20),
    ) {
        let (frontend, affinity) = (active(spec), AffinityTable::default());
        let mut held = Vec::new();
        for (number, random) in requests {
            let request = PickRequest { random, ..external(number) };
            let known = affinity.peek(crate::select::affinity::Scope::of(&frontend.spec().service, AffinityScope::Port), request.client.ip(), TIMEOUT, request.now);
            let previews = [frontend.preview(&request, &affinity), frontend.preview(&request, &affinity)];
            let picked = forward(frontend.pick(&request, &affinity));
            let wanted = match known {
                Some((_, remaining)) => Preview::Affinity { endpoint: picked.addr(), remaining },
                None => Preview::Balanced(picked.addr()),
            };
            prop_assert_eq!(previews, [wanted; 2]);
            held.push(picked);
        }
    }
}
