//! Tests of picks over several clusters: health, spill-over, and clients that stay in their cluster.

use sheave_model::{Backend, EndpointState, Failover, Path, Spread};

use super::*;

/// Clusters of ten endpoints each, with priority and weight; endpoint 3 of the second cluster has number 103.
fn spread_over(clusters: &[(u32, u16)], algorithm: Algorithm) -> Frontend {
    let backend_of = |(number, &(priority, weight)): (u32, &(u32, u16))| {
        let endpoints: Vec<(u32, u16)> = (0..10).map(|place| (100 * number + place, 100)).collect();
        Backend { priority, capacity: 10, ..backend(&format!("member{number}"), weight, &endpoints) }
    };
    let all = route((0..clusters.len() as u32).flat_map(|number| (0..10).map(move |place| (number, place))));
    Frontend {
        backends: (0..).zip(clusters).map(backend_of).collect(),
        external: all.clone(),
        internal: all,
        failover: Some(Failover { spread: Spread::Backends, overprovisioning: 140 }),
        ..frontend(1, algorithm, &[])
    }
}

fn two(algorithm: Algorithm) -> Frontend {
    spread_over(&[(0, 1), (1, 1)], algorithm)
}

/// Marks these endpoints of a frontend's Service as unhealthy.
fn unhealthy_of(frontend_number: u32, numbers: impl IntoIterator<Item = u32>) -> EndpointHealth {
    let service = frontend(frontend_number, Algorithm::Random, &[]).service;
    let mut unhealthy = EndpointHealth::default();
    for number in numbers {
        unhealthy.set_unhealthy(&service, endpoint_addr(number), "connection refused".into());
    }
    unhealthy
}

fn unhealthy(numbers: impl IntoIterator<Item = u32>) -> EndpointHealth {
    unhealthy_of(1, numbers)
}

fn only(table: &ActiveTable) -> Arc<ActiveFrontend> {
    Arc::clone(table.get(frontend_addr(1)).unwrap())
}

fn with_health(spec: Frontend, numbers: impl IntoIterator<Item = u32>) -> ActiveTable {
    compile([spec], &ActiveTable::default()).with_health(unhealthy(numbers))
}

/// Number of the cluster that an endpoint is in.
fn cluster(endpoint: EndpointAddr) -> u32 {
    let number = (0..2000).find(|&number| endpoint_addr(number) == endpoint).unwrap();
    number / 100
}

/// Each cluster's share of the traffic.
fn parts(frontend: &ActiveFrontend) -> Vec<f64> {
    let mut sums = vec![0u64; frontend.spec().backends.len()];
    for (endpoint, share) in frontend.shares(Origin::External) {
        sums[cluster(endpoint) as usize] += share;
    }
    let total: u64 = sums.iter().sum();
    sums.into_iter().map(|sum| sum as f64 / total as f64).collect()
}

fn everyone_goes(frontend: &ActiveFrontend) -> Vec<EndpointAddr> {
    let affinity = AffinityTable::default();
    (0..2000).map(|number| goes(frontend, &external(number), &affinity)).collect()
}

#[test]
fn every_algorithm_spills_over_by_the_shares() {
    for algorithm in ALGORITHMS {
        let frontend = only(&with_health(two(algorithm), 0..5));
        assert_eq!(frontend.choices(Origin::External).count(), 15);
        let spilt = everyone_goes(&frontend).into_iter().filter(|&endpoint| cluster(endpoint) == 1).count();
        assert!((540..660).contains(&spilt), "{algorithm:?}: {spilt} of 2,000");
    }
}

#[test]
fn a_connection_that_keeps_failing_leaves_the_clusters_in_use() {
    for algorithm in ALGORITHMS {
        let frontend = only(&with_health(spread_over(&[(0, 1), (1, 1)], algorithm), []));
        let affinity = AffinityTable::default();
        for number in 0..200 {
            let mut tried = Vec::new();
            for expected in [0, 0, 1] {
                let request = PickRequest { tried: &tried, ..external(number) };
                let endpoint = goes(&frontend, &request, &affinity);
                assert_eq!(cluster(endpoint), expected, "{algorithm:?}, tried {tried:?}");
                assert!(!tried.contains(&endpoint));
                tried.push(endpoint);
            }
        }
    }
}

#[test]
fn a_connection_that_fails_twice_in_one_cluster_goes_to_another_of_the_tier() {
    for algorithm in ALGORITHMS {
        let frontend = only(&with_health(spread_over(&[(0, 1), (0, 1)], algorithm), []));
        let affinity = AffinityTable::default();
        for (tried, expected) in [([3, 7], 1), ([103, 107], 0)] {
            let mut tried = tried.map(endpoint_addr).to_vec();
            for number in 0..50 {
                let request = PickRequest { tried: &tried, ..external(number) };
                assert_eq!(cluster(goes(&frontend, &request, &affinity)), expected, "{algorithm:?}");
            }
            // Without an untried endpoint elsewhere, the others of the cluster are better than none.
            tried.extend((0..10).map(|place| endpoint_addr(100 * expected + place)));
            let request = PickRequest { tried: &tried, ..external(1) };
            let endpoint = goes(&frontend, &request, &affinity);
            assert!(cluster(endpoint) != expected && !tried.contains(&endpoint), "{algorithm:?}");
        }
    }
}

#[test]
fn connections_that_last_do_not_move_traffic_between_clusters() {
    let frontend = only(&with_health(spread_over(&[(0, 3), (0, 1)], Algorithm::LeastConnections), []));
    let affinity = AffinityTable::default();
    let mut open = std::collections::VecDeque::new();
    let mut first = 0;
    for number in 0..4000 {
        let Pick::Forward(picked) = frontend.pick(&external(number), &affinity) else {
            panic!("an endpoint")
        };
        first += usize::from(cluster(picked.addr()) == 0);
        open.push_back(picked);
        // As many connections as endpoints, so that most have one and some have none.
        if open.len() > 20 {
            open.pop_front();
        }
    }
    assert!((2900..3100).contains(&first), "{first} of 4,000");
}

#[test]
fn the_next_tier_gets_nothing_while_the_first_is_well() {
    let frontend = only(&with_health(two(Algorithm::LeastConnections), 0..2));
    assert_eq!(parts(&frontend), [1.0, 0.0]);
    let all_of_it = only(&with_health(two(Algorithm::LeastConnections), 0..10));
    assert_eq!(parts(&all_of_it), [0.0, 1.0]);
}

#[test]
fn a_trial_takes_no_client_to_a_cluster_that_stands_by() {
    let service = frontend(1, Algorithm::Random, &[]).service;
    let mut health = unhealthy([3, 103]);
    assert!([3, 103].into_iter().all(|number| health.offer_trial(&service, endpoint_addr(number))));
    let active = compile([two(Algorithm::Random)], &ActiveTable::default()).with_health(health);
    let reached = everyone_goes(&only(&active));
    let clients = |number| reached.iter().filter(|&&endpoint| endpoint == endpoint_addr(number)).count();
    assert_eq!([3, 103].map(clients), [1, 0]);
}

#[test]
fn when_everything_is_unhealthy_traffic_goes_on() {
    for algorithm in ALGORITHMS {
        let frontend = only(&with_health(two(algorithm), (0..10).chain(100..110)));
        assert_eq!(parts(&frontend), [1.0, 0.0]);
        assert_eq!(everyone_goes(&frontend).len(), 2000);
    }
}

#[test]
fn health_is_that_of_one_service() {
    let before = compile([two(Algorithm::Random)], &ActiveTable::default());
    let of_another = unhealthy_of(2, [1]);
    assert!(Arc::ptr_eq(&only(&before), &only(&before.with_health(of_another.clone()))));
    assert_eq!(*before.with_health(of_another.clone()).health(), of_another);
}

#[test]
fn an_endpoint_that_is_terminating_counts_as_lost() {
    let mut spec = two(Algorithm::Random);
    let mut backends = spec.backends.to_vec();
    backends[0].endpoints[..5].iter_mut().for_each(|endpoint| endpoint.state = EndpointState::Terminating);
    spec.backends = backends.into();
    assert!((parts(&active(spec))[0] - 0.7).abs() < 1e-4);
}

#[test]
fn only_frontends_whose_endpoints_changed_health_are_made_anew_and_they_keep_their_loads() {
    let other = Frontend { addr: frontend_addr(2), ..frontend(2, Algorithm::Random, &[(500, 1)]) };
    let table = compile([two(Algorithm::LeastConnections), other], &ActiveTable::default());
    let held = forward(only(&table).pick(&external(1), &AffinityTable::default()));
    let changed = table.with_health(unhealthy(0..5));
    let same = |one: &ActiveTable, other: &ActiveTable, number| {
        Arc::ptr_eq(one.get(frontend_addr(number)).unwrap(), other.get(frontend_addr(number)).unwrap())
    };
    assert!(!same(&table, &changed, 1) && same(&table, &changed, 2));
    assert_eq!(loads(&only(&changed)).iter().sum::<u32>(), 1);
    drop(held);
    assert_eq!(loads(&only(&changed)).iter().sum::<u32>(), 0);
    let unchanged = changed.with_health(unhealthy(0..5));
    assert!(same(&changed, &unchanged, 1) && same(&changed, &unchanged, 2));
}

#[test]
fn the_next_table_keeps_the_health_of_the_one_before() {
    let before = with_health(two(Algorithm::Random), 0..10);
    let mut spec = two(Algorithm::Random);
    spec.affinity = STICKY;
    let after = compile([spec], &before);
    assert_eq!(parts(&only(&after)), [0.0, 1.0]);
    assert_eq!(parts(&only(&after.with_health(EndpointHealth::default()))), [1.0, 0.0]);
}

#[test]
fn a_client_whose_endpoint_went_stays_in_its_cluster_and_no_other_client_moves() {
    for (algorithm, affinity) in [(Algorithm::Maglev, Affinity::None), (Algorithm::LeastConnections, STICKY)]
    {
        let spec = Frontend { affinity, ..spread_over(&[(0, 1), (0, 1), (0, 2)], algorithm) };
        let table = compile([spec], &ActiveTable::default());
        let before = everyone_goes(&only(&table));
        let after = everyone_goes(&only(&table.with_health(unhealthy([103, 104]))));
        let mut moved = 0;
        for (before, after) in before.into_iter().zip(after) {
            assert_eq!(cluster(before), cluster(after));
            moved += usize::from(before != after);
            assert!(before == after || cluster(before) == 1);
        }
        assert!(moved > 50, "those of the two endpoints did move");
    }
}

#[test]
fn clients_of_a_cluster_that_sheds_load_move_and_come_back() {
    let spec = spread_over(&[(0, 1), (0, 1), (0, 1)], Algorithm::Maglev);
    let table = compile([spec], &ActiveTable::default());
    let [before, after] = [EndpointHealth::default(), unhealthy(100..107)]
        .map(|unhealthy| everyone_goes(&only(&table.with_health(unhealthy))));
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || cluster(*before) == 1);
    }
    let again =
        everyone_goes(&only(&table.with_health(unhealthy(100..107)).with_health(EndpointHealth::default())));
    assert_eq!(before, again);
}

#[test]
fn a_record_counts_only_while_its_endpoint_has_a_share() {
    let table = compile([Frontend { affinity: STICKY, ..two(Algorithm::Random) }], &ActiveTable::default());
    let (affinity, request) = (AffinityTable::default(), external(1));
    let first = goes(&only(&table), &request, &affinity);
    let number = (0..10).find(|&number| endpoint_addr(number) == first).unwrap();
    let without = only(&table.with_health(unhealthy([number])));
    let second = goes(&without, &request, &affinity);
    assert!(second != first && cluster(second) == 0);
    assert_eq!(goes(&only(&table), &request, &affinity), second, "it does not go back");
}

#[test]
fn a_cluster_that_answers_nobody_is_left_after_two_attempts() {
    for affinity in [Affinity::None, STICKY] {
        let spec = spread_over(&[(0, 1), (0, 1)], Algorithm::Maglev);
        let frontend = active(Frontend { affinity, ..spec });
        for number in 0..100 {
            let (table, mut tried) = (AffinityTable::default(), Vec::new());
            for _ in 0..3 {
                tried.push(goes(&frontend, &PickRequest { tried: &tried, ..external(number) }, &table));
            }
            assert!(cluster(tried[0]) == cluster(tried[1]) && cluster(tried[1]) != cluster(tried[2]));
        }
    }
}

#[test]
fn the_order_of_backends_decides_nothing() {
    let spec = spread_over(&[(0, 1), (0, 2), (0, 3)], Algorithm::Maglev);
    let mut turned = spec.clone();
    turned.backends = spec.backends.iter().rev().cloned().collect();
    assert_eq!(everyone_goes(&active(spec)), everyone_goes(&active(turned)));
}

#[test]
fn one_address_in_two_clusters_is_one_endpoint_and_by_two_paths_two() {
    let mut spec = spread_over(&[(0, 1), (0, 1)], Algorithm::Maglev);
    let mut backends = spec.backends.to_vec();
    backends[1].endpoints = backends[0].endpoints.clone();
    spec.backends = backends.clone().into();
    let frontend = active(spec.clone());
    assert_eq!(frontend.choices(Origin::External).count(), 10);
    assert_eq!(loads(&frontend).len(), 10);
    backends[1].endpoints.iter_mut().for_each(|endpoint| endpoint.addr.path = Path(2));
    spec.backends = backends.into();
    let frontend = active(spec);
    let paths: BTreeSet<_> = everyone_goes(&frontend).into_iter().map(|endpoint| endpoint.path).collect();
    assert_eq!((frontend.choices(Origin::External).count(), paths.len()), (20, 2));
}

proptest! {
    #[test]
    fn a_preview_is_what_the_pick_does_and_a_retry_avoids_what_failed(
        clusters in prop::collection::vec((0u32..3, 0u16..4), 1..4),
        sick in prop::collection::btree_set((0u32..4, 0u32..10), 0..30),
        (algorithm, sticky, number) in (0usize..4, any::<bool>(), any::<u8>()),
    ) {
        let affinity = if sticky { STICKY } else { Affinity::None };
        let spec = Frontend { affinity, ..spread_over(&clusters, ALGORITHMS[algorithm]) };
        let sick = sick.into_iter().map(|(cluster, place)| 100 * cluster + place);
        let frontend = only(&with_health(spec, sick));
        let choices: BTreeSet<_> = frontend.choices(Origin::External).collect();
        prop_assert!(!choices.is_empty());
        let (table, mut tried) = (AffinityTable::default(), Vec::new());
        for _ in 0..choices.len() {
            let request = PickRequest { tried: &tried, ..external(number.into()) };
            let preview = frontend.preview(&request, &table);
            let next = goes(&frontend, &request, &table);
            prop_assert_eq!(preview, Preview::Balanced(next));
            tried.push(next);
        }
        prop_assert!(tried.iter().take(2).all(|endpoint| choices.contains(endpoint)), "{tried:?}");
        prop_assert_eq!(tried.into_iter().collect::<BTreeSet<_>>().len(), choices.len());
    }
}
