//! Tests of splits: the part by weight, then the endpoint inside it; what is refused; and what stays where it was when the split
//! changes.

use super::*;
use crate::select::affinity::{Scope, ScopeOwner};
use sheave_model::test_util::{change_pools, move_split, pool, refused, split};
use sheave_model::{FrontendAddr, PartTarget, Protocol, Split, SplitPart};

const CLIENTS: u32 = 20_000;

/// Numbers of the endpoints of a part.
type Endpoints<'a> = &'a [(u32, u16)];
const OF_1: Endpoints<'_> = &[(11, 100), (12, 100)];
const OF_2: Endpoints<'_> = &[(21, 100)];
const OF_3: Endpoints<'_> = &[(31, 100)];

fn three(weights: [u32; 3]) -> [SplitPart; 3] {
    [pool(1, weights[0], OF_1), pool(2, weights[1], OF_2), pool(3, weights[2], OF_3)]
}

/// The same split for UDP clients.
fn udp(mut whole: Frontend) -> Frontend {
    let addr = FrontendAddr { protocol: Protocol::Udp, ..whole.addr };
    move_split(&mut whole, addr);
    whole
}

fn sticky(mut whole: Frontend) -> Frontend {
    change_pools(&mut whole, |pool| pool.affinity = STICKY);
    whole
}

/// Number of the part whose endpoint was picked.
fn part_of(pick: &Pick) -> Option<usize> {
    match pick {
        Pick::Forward(picked) => (1..=3).find(|part| {
            let endpoints = [OF_1, OF_2, OF_3][part - 1];
            endpoints.iter().any(|&(number, _)| endpoint_addr(number) == picked.addr())
        }),
        Pick::Reject | Pick::Drop | Pick::Refused(_) => None,
    }
}

fn parts(whole: &Frontend, affinity: &AffinityTable) -> Vec<Option<usize>> {
    let active = active(whole.clone());
    (0..CLIENTS).map(|number| part_of(&active.pick(&external(number), affinity))).collect()
}

/// Percent of the clients that each part, or none, gets.
fn percent(parts: &[Option<usize>], of: Option<usize>) -> f64 {
    100.0 * parts.iter().filter(|part| **part == of).count() as f64 / parts.len() as f64
}

fn is_near(percent: f64, wanted: f64) -> bool {
    (percent - wanted).abs() < 1.5
}

/// The split for each way to choose a part: at random, by the client's address and port, by its address.
fn each_way(whole: &Frontend) -> [Frontend; 3] {
    [whole.clone(), udp(whole.clone()), sticky(whole.clone())]
}

#[test]
fn parts_get_what_their_weights_say_and_a_weight_of_0_gets_nothing() {
    for algorithm in ALGORITHMS {
        for whole in each_way(&split(1, algorithm, three([70, 30, 0]))) {
            let parts = parts(&whole, &AffinityTable::default());
            let shares = [1, 2, 3].map(|part| percent(&parts, Some(part)));
            assert!(is_near(shares[0], 70.0) && is_near(shares[1], 30.0), "{algorithm:?} {shares:?}");
            assert!(shares[2] == 0.0);
        }
    }
}

#[test]
fn weights_of_a_million_and_of_one_are_kept() {
    for whole in each_way(&split(1, Algorithm::Random, three([1_000_000, 500_000, 1]))) {
        let parts = parts(&whole, &AffinityTable::default());
        assert!(is_near(percent(&parts, Some(1)), 66.7) && is_near(percent(&parts, Some(2)), 33.3));
    }
}

#[test]
fn the_choice_inside_a_part_does_not_depend_on_the_choice_of_the_part() {
    for algorithm in ALGORITHMS {
        for whole in each_way(&split(1, algorithm, three([10, 90, 0]))) {
            let (active, affinity) = (active(whole), AffinityTable::default());
            let mut counts = [0u32; 2];
            for number in 0..CLIENTS {
                if let Pick::Forward(picked) = active.pick(&external(number), &affinity) {
                    let place = OF_1.iter().position(|&(number, _)| endpoint_addr(number) == picked.addr());
                    place.into_iter().for_each(|place| counts[place] += 1);
                }
            }
            assert!(counts[0].abs_diff(counts[1]) < 200, "{algorithm:?} {counts:?}");
        }
    }
}

#[test]
fn parts_of_the_same_name_get_their_shares() {
    let [one, two, _] = three([50, 50, 0]);
    let same = SplitPart { name: Arc::clone(&one.name), ..two };
    for whole in each_way(&split(1, Algorithm::Random, [one, same])) {
        let active = active(whole);
        let pick = |number| {
            let (request, affinity) = (external(number), AffinityTable::default());
            let part = active.part(&request, &affinity);
            part_of(&active.pick(&PickRequest { part, ..request }, &affinity))
        };
        assert!(is_near(percent(&(0..CLIENTS).map(pick).collect::<Vec<_>>(), Some(2)), 50.0));
    }
}

#[test]
fn a_split_without_weight_or_endpoint_refuses_everybody_as_a_frontend_without_endpoints_does() {
    let nothing = [
        split(1, Algorithm::Random, three([0, 0, 0])),
        split(1, Algorithm::Random, [refused("gone", 1), refused("too", 2)]),
        split(1, Algorithm::Random, [refused("gone", 1), pool(1, 1, &[])]),
        split(1, Algorithm::Random, [refused("gone", 1), pool(1, 0, OF_1)]),
        split(1, Algorithm::Random, []),
    ];
    for whole in nothing.iter().flat_map(each_way) {
        let (active, affinity, request) = (active(whole), AffinityTable::default(), external(1));
        assert!(matches!(active.pick(&request, &affinity), Pick::Reject));
        assert!(matches!(active.refusal(Origin::External, request.client), Some(Pick::Reject)));
        assert_eq!(active.preview(&request, &affinity), Preview::Reject);
        assert_eq!(active.choices(Origin::External).count(), 0);
    }
}

#[test]
fn the_share_of_a_part_that_cannot_be_served_is_refused() {
    let empty: [(SplitPart, RefusedShare); 2] =
        [(refused("gone", 30), RefusedShare::InvalidBackend), (pool(3, 30, &[]), RefusedShare::NoEndpoint)];
    for (part, reason) in empty {
        for whole in each_way(&split(1, Algorithm::Random, [pool(1, 70, OF_1), part])) {
            let affinity = AffinityTable::default();
            assert!(is_near(percent(&parts(&whole, &affinity), None), 30.0));
            let active = active(whole);
            for number in 0..1000 {
                let (request, affinity) = (external(number), AffinityTable::default());
                let preview = active.preview(&request, &affinity);
                match active.pick(&request, &affinity) {
                    Pick::Refused(why) => {
                        assert_eq!((why, preview), (reason, Preview::Refused(reason)));
                        assert!(affinity.is_empty());
                    }
                    other => assert_eq!(part_of(&other), Some(1)),
                }
            }
        }
    }
}

#[test]
fn a_refusal_is_known_in_advance_where_a_hash_alone_decides() {
    let whole = split(1, Algorithm::Random, [pool(1, 70, OF_1), refused("gone", 30)]);
    let [random, hashed, sticky] = each_way(&whole).map(active);
    for number in 0..1000 {
        let (request, affinity) = (external(number), AffinityTable::default());
        let told = matches!(
            hashed.refusal(Origin::External, request.client),
            Some(Pick::Refused(RefusedShare::InvalidBackend))
        );
        assert_eq!(told, matches!(hashed.pick(&request, &affinity), Pick::Refused(_)));
        assert!(random.refusal(Origin::External, request.client).is_none());
        assert!(sticky.refusal(Origin::External, request.client).is_none(), "a record may say otherwise");
    }
}

#[test]
fn a_retry_stays_in_its_part_when_all_its_endpoints_have_failed() {
    for whole in each_way(&split(1, Algorithm::Random, three([1, 1, 1]))) {
        let (active, affinity) = (active(whole), AffinityTable::default());
        for number in 0..500 {
            let request = external(number);
            let part = active.part(&request, &affinity);
            let mut tried = Vec::new();
            let mut seen = BTreeSet::new();
            for random in 0..4 {
                let request = PickRequest { random: mix(random), tried: &tried, part, ..request };
                let pick = active.pick(&request, &affinity);
                seen.insert(part_of(&pick));
                tried.push(forward(pick).addr());
            }
            assert_eq!(seen.len(), 1, "{tried:?}");
            let numbers: BTreeSet<EndpointAddr> = tried.into_iter().collect();
            assert_eq!(numbers.len(), [2, 1, 1][seen.first().unwrap().unwrap() - 1]);
        }
    }
}

#[test]
fn a_retry_is_refused_with_its_part_and_chooses_anew_when_the_part_has_gone() {
    let before = active(split(1, Algorithm::Random, three([0, 1, 0])));
    let (affinity, request) = (AffinityTable::default(), external(1));
    let part = before.part(&request, &affinity);
    let request = PickRequest { part, ..request };
    let mut parts = three([1, 1, 0]);
    let name = Arc::clone(&parts[1].name);
    parts[1] = refused(&name, 1);
    let refusing = changed(split(1, Algorithm::Random, parts), &before);
    assert!(matches!(refusing.pick(&request, &affinity), Pick::Refused(RefusedShare::InvalidBackend)));
    let without = changed(split(1, Algorithm::Random, [pool(1, 1, OF_1)]), &before);
    assert_eq!(part_of(&without.pick(&request, &affinity)), Some(1));
    let unsplit = changed(frontend(1, Algorithm::Random, OF_3), &before);
    assert_eq!(part_of(&unsplit.pick(&request, &affinity)), Some(3));
    assert!(unsplit.part(&request, &affinity).is_none());
}

#[test]
fn a_client_keeps_its_part_while_its_record_is_valid_and_the_part_has_a_weight() {
    let affinity = AffinityTable::default();
    let at = |weights| sticky(split(1, Algorithm::LeastConnections, three(weights)));
    let first = parts(&at([50, 50, 0]), &affinity);
    assert_eq!(parts(&at([1, 99, 0]), &affinity), first, "weights change nothing");
    let left = parts(&at([0, 99, 1]), &affinity);
    assert!(first.iter().zip(&left).all(|(was, is)| *is != Some(1) && (*was != Some(2) || was == is)));
    assert_eq!(parts(&at([99, 1, 1]), &affinity), left, "the last one used counts");
}

#[test]
fn a_client_keeps_its_part_when_its_endpoint_has_left_but_not_when_the_part_has_none() {
    let affinity = AffinityTable::default();
    let at = |one: Endpoints<'_>, weights: [u32; 2]| {
        let whole = [pool(1, weights[0], one), pool(2, weights[1], OF_2)];
        sticky(split(1, Algorithm::LeastConnections, whole))
    };
    let first = parts(&at(&OF_1[..1], [50, 50]), &affinity);
    assert_eq!(parts(&at(&OF_1[1..], [1, 99]), &affinity), first);
    let without = parts(&at(&[], [1, 99]), &affinity);
    assert!(is_near(percent(&without, Some(2)), 99.5), "{}", percent(&without, Some(2)));
}

#[test]
fn two_routes_share_no_records_of_a_service_that_both_name() {
    let (affinity, request) = (AffinityTable::default(), external(1));
    let [one, mut other] = [1, 2].map(|route| sticky(split(route, Algorithm::Random, three([1, 0, 0]))));
    let picked = goes(&active(one.clone()), &request, &affinity);
    let tried = [goes(&active(other.clone()), &request, &affinity)];
    assert_eq!(picked, tried[0], "the first pick is a hash");
    let moved = goes(&active(other.clone()), &PickRequest { tried: &tried, ..request }, &affinity);
    assert_ne!(moved, picked);
    assert_eq!(goes(&active(one.clone()), &request, &affinity), picked);
    // The frontends of one listener share them.
    other.service = one.service.clone();
    assert_eq!(goes(&active(other), &request, &affinity), picked);
    // The port's own records are others as well.
    let port = Scope::of(&one.service, AffinityScope::Port);
    let part = Scope::of_owner(ScopeOwner::Part(&one.service, 0), AffinityScope::Port);
    assert_ne!(port, part);
}

#[test]
fn an_endpoint_in_two_parts_has_one_load() {
    let whole = split(
        1,
        Algorithm::LeastConnections,
        [pool(1, 1, &[(1, 100), (2, 100)]), pool(2, 1, &[(2, 100), (3, 100)])],
    );
    let (active, affinity) = (active(whole), AffinityTable::default());
    let held: Vec<_> = (0..100).map(|number| forward(active.pick(&external(number), &affinity))).collect();
    let addresses: Vec<EndpointAddr> = active.loads().map(|(addr, _)| addr).collect();
    assert_eq!(addresses, [1, 2, 3].map(endpoint_addr));
    assert_eq!(loads(&active).iter().sum::<u32>(), 100);
    assert!(loads(&active).iter().all(|load| load.abs_diff(33) < 12), "{:?}", loads(&active));
    drop(held);
    assert_eq!(loads(&active), [0; 3]);
}

#[test]
fn shares_are_the_weight_of_the_part_times_the_share_inside() {
    let weights = [60, 30, 0];
    let mut whole = split(1, Algorithm::RoundRobin, three(weights).into_iter().chain([refused("gone", 10)]));
    change_pools(&mut whole, |pool| {
        let mut backend = pool.backends[0].clone();
        backend.endpoints[0].weight.0 = 300;
        pool.backends = Arc::new([backend]);
    });
    let active = active(whole);
    let shares: Vec<(EndpointAddr, u64)> = active.shares(Origin::Internal).collect();
    let unit = shares[1].1;
    let relative: Vec<u64> = shares.iter().map(|(_, share)| (share + unit / 2) / unit).collect();
    assert_eq!(relative, [3, 1, 2], "45 : 15 : 30");
    assert_eq!(active.choices(Origin::External).collect::<Vec<_>>(), [11, 12, 21].map(endpoint_addr));
}

#[test]
fn an_unhealthy_endpoint_is_avoided_in_its_part_and_weights_stay() {
    let whole = split(1, Algorithm::Random, three([50, 50, 0]));
    let service = whole.split.as_ref().unwrap().parts[0].pool().unwrap().service.clone();
    let addr = whole.addr;
    let first = compile([whole], &ActiveTable::default());
    let mut health = EndpointHealth::default();
    health.set_unhealthy(&service, endpoint_addr(11), "refused".into());
    let second = first.with_health(health);
    let (active, affinity) = (second.get(addr).unwrap(), AffinityTable::default());
    let picks: Vec<Pick> = (0..CLIENTS).map(|number| active.pick(&external(number), &affinity)).collect();
    assert!(picks.iter().all(|pick| !matches!(pick, Pick::Forward(it) if it.addr() == endpoint_addr(11))));
    assert!(is_near(percent(&picks.iter().map(part_of).collect::<Vec<_>>(), Some(1)), 50.0));
    assert!(active.serves(endpoint_addr(11)));
    let judges = |number| active.judges(endpoint_addr(number)).cloned().collect::<Vec<_>>();
    assert_eq!((judges(11), judges(99)), (vec![service], vec![]));
}

#[test]
fn a_service_that_two_parts_name_judges_their_endpoint_once() {
    let [one, _, _] = three([1, 0, 0]);
    let again = SplitPart { name: "another name".into(), ..one.clone() };
    let active = active(split(1, Algorithm::Random, [one, again, pool(2, 1, OF_1)]));
    assert_eq!(active.judges(endpoint_addr(11)).count(), 2);
}

#[test]
fn parts_keep_loads_and_turns_by_name_when_they_change() {
    let affinity = AffinityTable::default();
    let whole = |parts: &[SplitPart]| split(1, Algorithm::RoundRobin, parts.iter().cloned());
    let [one, two, _] = three([1, 0, 0]);
    let before = active(whole(&[one.clone(), two.clone()]));
    let held = forward(before.pick(&external(1), &affinity));
    let after = changed(whole(&[two, SplitPart { weight: 7, ..one }]), &before);
    let next = forward(after.pick(&external(1), &affinity));
    assert_ne!(next.addr(), held.addr(), "round robin goes on");
    assert_eq!(loads(&after), [1, 1, 0]);
    let unsplit = changed(frontend(1, Algorithm::RoundRobin, OF_1), &after);
    assert_eq!(loads(&unsplit), [1, 1], "loads stay when the split goes");
    drop((held, next));
    assert_eq!((loads(&unsplit), loads(&before)), (vec![0, 0], vec![0; 3]));
}

#[test]
fn an_endpoint_serves_while_any_part_that_is_not_refused_has_it() {
    let of = |weight| split(1, Algorithm::Random, [pool(1, weight, OF_1), pool(2, 1, OF_2)]);
    let frontend = active(of(0));
    assert!(frontend.serves(endpoint_addr(11)) && frontend.take_over(endpoint_addr(11)).is_some());
    let mut whole = of(1);
    let parts = &mut Arc::make_mut(whole.split.as_mut().unwrap()).parts;
    parts[0].target = PartTarget::Refused(sheave_model::RefusedPart::RefNotPermitted);
    let frontend = active(whole);
    assert!(!frontend.serves(endpoint_addr(11)) && frontend.take_over(endpoint_addr(11)).is_none());
    assert_eq!(frontend.serving().collect::<Vec<_>>(), [endpoint_addr(21)]);
}

#[test]
fn silence_is_judged_by_the_answers_of_the_same_part() {
    let frontend = active(udp(split(1, Algorithm::Maglev, [pool(1, 1, OF_1), pool(2, 1, OF_2)])));
    let now = Instant::now() + Duration::from_secs(100);
    let [early, since, late] = [0, 10, 20].map(|seconds| now + Duration::from_secs(seconds));
    let answer = |number, at| frontend.take_over(endpoint_addr(number)).unwrap().note_answer(at);
    answer(11, early);
    answer(21, late);
    assert!(!frontend.has_fallen_silent(endpoint_addr(11), since), "another Service answers");
    answer(12, late);
    assert!(frontend.has_fallen_silent(endpoint_addr(11), since));
}

#[test]
fn source_ranges_of_the_frontend_apply_before_the_split() {
    let mut whole = split(1, Algorithm::Random, three([1, 1, 1]));
    whole.source_ranges = Arc::new(SourceRanges::new(vec!["203.0.113.0/24".parse().unwrap()]));
    assert!(matches!(active(whole).pick(&external(1), &AffinityTable::default()), Pick::Drop));
}

/// Weights of three parts.
fn any_weights() -> impl Strategy<Value = [u32; 3]> {
    let weight = || prop_oneof![Just(0u32), 1u32..10, Just(1_000_000), 0u32..=1_000_000];
    [weight(), weight(), weight()]
}

fn hashed_ways(whole: &Frontend) -> [Frontend; 3] {
    let maglev = Frontend { algorithm: Algorithm::Maglev, ..whole.clone() };
    [maglev, udp(whole.clone()), sticky(whole.clone())]
}

proptest! {
    #[test]
    fn gateways_agree_and_the_order_of_parts_moves_nobody(
        weights in any_weights(), order in Just([0usize, 1, 2]).prop_shuffle(), seed in any::<u64>(),
    ) {
        let parts = three(weights);
        let ordered = order.map(|index| parts[index].clone());
        let one = hashed_ways(&split(1, Algorithm::Maglev, parts));
        let other = hashed_ways(&split(1, Algorithm::Maglev, ordered));
        for (one, other) in one.into_iter().zip(other) {
            let gateways = [active(one), active(other)];
            for number in 0..200 {
                let random = |gateway: u64| mix(seed ^ gateway ^ u64::from(number) << 1);
                let picks = [0, 1].map(|gateway| {
                    let request = PickRequest { random: random(gateway as u64), ..external(number) };
                    let pick = gateways[gateway].pick(&request, &AffinityTable::default());
                    if let Pick::Forward(picked) = pick { Some(picked.addr()) } else { None }
                });
                prop_assert_eq!(picks[0], picks[1]);
            }
        }
    }

    #[test]
    fn a_changed_weight_moves_only_clients_to_or_from_its_part(
        weights in any_weights(), changed in 0usize..3, weight in 0u32..=1_000_000,
    ) {
        let mut others = weights;
        others[changed] = weight;
        let before = hashed_ways(&split(1, Algorithm::Maglev, three(weights)));
        let after = hashed_ways(&split(1, Algorithm::Maglev, three(others)));
        for (before, after) in before.into_iter().zip(after) {
            let gateways = [active(before), active(after)];
            for number in 0..500 {
                let [was, is] = [0, 1].map(|gateway: usize| {
                    part_of(&gateways[gateway].pick(&external(number), &AffinityTable::default()))
                });
                let part = Some(changed + 1);
                let may_move = match weight.cmp(&weights[changed]) {
                    std::cmp::Ordering::Greater => is == part,
                    std::cmp::Ordering::Less => was == part,
                    std::cmp::Ordering::Equal => false,
                };
                prop_assert!(was == is || may_move, "{:?} to {:?}", was, is);
            }
        }
    }

    #[test]
    fn the_preview_of_a_split_is_what_the_pick_then_does(
        weights in any_weights(), gone in any::<bool>(), way in 0usize..3, requests in prop::collection::vec((0u32..4, any::<u64>()), 1..20),
    ) {
        let mut parts = three(weights).to_vec();
        if gone {
            parts[1] = refused("gone", weights[1]);
        }
        let whole = each_way(&split(1, Algorithm::LeastConnections, parts))[way].clone();
        let (active, affinity) = (active(whole), AffinityTable::default());
        let mut held = Vec::new();
        for (number, random) in requests {
            let request = PickRequest { random, ..external(number) };
            let preview = active.preview(&request, &affinity);
            match (preview, active.pick(&request, &affinity)) {
                (Preview::Balanced(addr) | Preview::Affinity { endpoint: addr, .. }, Pick::Forward(picked)) => {
                    prop_assert_eq!(addr, picked.addr());
                    held.push(picked);
                }
                (Preview::Refused(one), Pick::Refused(other)) => prop_assert_eq!(one, other),
                (Preview::Reject, Pick::Reject) => {}
                (preview, pick) => prop_assert!(false, "{:?} but {:?}", preview, pick),
            }
        }
    }

    #[test]
    fn no_client_of_a_part_that_stays_is_moved_by_one_that_leaves(weights in any_weights()) {
        let of = |parts: &[SplitPart]| Arc::new(Split { parts: parts.to_vec(), ..Split::default() });
        for whole in hashed_ways(&split(1, Algorithm::Maglev, three(weights))) {
            let parts = whole.split.as_ref().unwrap().parts.clone();
            let without = Frontend { split: Some(of(&parts[1..])), ..whole.clone() };
            let gateways = [active(whole), active(without)];
            for number in 0..200 {
                let [was, is] = [0, 1].map(|gateway: usize| {
                    part_of(&gateways[gateway].pick(&external(number), &AffinityTable::default()))
                });
                prop_assert!(was == Some(1) || was == is);
            }
        }
    }
}
