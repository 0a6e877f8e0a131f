//! Tests of picks over the endpoints of one cluster, some of which are unhealthy.

use sheave_model::{EndpointState, HealthPolicy};

use super::*;

/// A table with one frontend, with these endpoints unhealthy.
fn with_unhealthy(spec: Frontend, numbers: &[u32]) -> Arc<ActiveFrontend> {
    let (addr, mut unhealthy) = (spec.addr, EndpointHealth::default());
    for &number in numbers {
        unhealthy.set_unhealthy(&spec.service, endpoint_addr(number), "connection refused".into());
    }
    let table = compile([spec], &ActiveTable::default()).with_health(unhealthy);
    Arc::clone(table.get(addr).unwrap())
}

/// Share of the traffic of each endpoint that has one.
fn parts(frontend: &ActiveFrontend) -> Vec<(EndpointAddr, f64)> {
    let total: u64 = frontend.shares(Origin::External).map(|(_, share)| share).sum();
    frontend.shares(Origin::External).map(|(addr, share)| (addr, share as f64 / total as f64)).collect()
}

fn ten(algorithm: Algorithm) -> Frontend {
    let endpoints: Vec<(u32, u16)> = (0..10).map(|number| (number, 100)).collect();
    frontend(1, algorithm, &endpoints)
}

#[test]
fn unhealthy_endpoints_get_nothing_while_half_are_healthy() {
    for algorithm in ALGORITHMS {
        let frontend = with_unhealthy(ten(algorithm), &[0, 1, 2, 3, 4]);
        let expected: Vec<_> = (5..10).map(|number| (endpoint_addr(number), 0.2)).collect();
        assert_eq!(parts(&frontend), expected);
    }
}

#[test]
fn below_the_panic_threshold_the_unhealthy_get_ever_more_and_without_any_healthy_the_same() {
    // Two of ten are healthy, so the others get 1 - 20 / 50 of the traffic.
    let parts_of = |frontend: &ActiveFrontend| parts(frontend).into_iter().map(|(_, part)| part).collect();
    let most: Vec<f64> = parts_of(&with_unhealthy(ten(Algorithm::Random), &[0, 1, 2, 3, 4, 5, 6, 7]));
    let expected = [0.075, 0.075, 0.075, 0.075, 0.075, 0.075, 0.075, 0.075, 0.2, 0.2];
    assert!(most.iter().zip(expected).all(|(got, wanted)| (got - wanted).abs() < 1e-3), "{most:?}");
    let all: Vec<u32> = (0..10).collect();
    let everyone: Vec<f64> = parts_of(&with_unhealthy(ten(Algorithm::Random), &all));
    assert_eq!(everyone, [0.1; 10]);
    let health = Arc::new(HealthPolicy { panic_threshold: 0, ..HealthPolicy::default() });
    let never = Frontend { health, ..ten(Algorithm::Random) };
    assert_eq!(parts(&with_unhealthy(never, &all[1..])), [(endpoint_addr(0), 1.0)]);
}

#[test]
fn a_route_whose_endpoints_are_all_unhealthy_still_forwards_to_them() {
    let mut spec = ten(Algorithm::LeastConnections);
    (spec.external, spec.internal) = (route([(0, 0), (0, 1)]), route([(0, 5)]));
    let frontend = with_unhealthy(spec, &[0, 1, 5]);
    let affinity = AffinityTable::default();
    let local = [endpoint_addr(0), endpoint_addr(1)];
    assert!((0..20).all(|number| local.contains(&goes(&frontend, &external(number), &affinity))));
    let internal = PickRequest { origin: Origin::Internal, ..external(1) };
    assert_eq!(goes(&frontend, &internal, &affinity), endpoint_addr(5));
}

#[test]
fn where_all_are_terminating_the_healthy_serve() {
    let mut spec = ten(Algorithm::Random);
    let mut backends = spec.backends.to_vec();
    backends[0].endpoints.iter_mut().for_each(|endpoint| endpoint.state = EndpointState::Terminating);
    spec.backends = backends.into();
    let served: Vec<EndpointAddr> = with_unhealthy(spec, &[3]).choices(Origin::External).collect();
    assert_eq!(served.len(), 9);
    assert!(!served.contains(&endpoint_addr(3)));
}

#[test]
fn a_client_whose_endpoint_is_ejected_stays_with_the_other_when_that_returns() {
    let spec = Frontend { affinity: STICKY, ..ten(Algorithm::Random) };
    let (affinity, request) = (AffinityTable::default(), external(1));
    let first = goes(&with_unhealthy(spec.clone(), &[]), &request, &affinity);
    let number = (0..10).find(|&number| endpoint_addr(number) == first).unwrap();
    let second = goes(&with_unhealthy(spec.clone(), &[number]), &request, &affinity);
    assert_ne!(second, first);
    assert_eq!(goes(&with_unhealthy(spec, &[]), &request, &affinity), second);
}

#[test]
fn only_the_clients_of_an_ejected_endpoint_move_by_hash_and_they_come_back() {
    let affinity = AffinityTable::default();
    let everyone = |frontend: &ActiveFrontend| -> Vec<EndpointAddr> {
        (0..2000).map(|number| goes(frontend, &external(number), &affinity)).collect()
    };
    let before = everyone(&with_unhealthy(ten(Algorithm::Maglev), &[]));
    let during = everyone(&with_unhealthy(ten(Algorithm::Maglev), &[7]));
    for (before, during) in before.iter().zip(&during) {
        assert_eq!(before != during, *before == endpoint_addr(7));
    }
}

#[test]
fn an_endpoint_that_starts_slowly_gets_part_of_its_share_except_by_hash() {
    let expected = |algorithm| match algorithm {
        Algorithm::Maglev => [0.5, 0.5],
        _ => [0.75, 0.25],
    };
    for algorithm in ALGORITHMS {
        let spec = frontend(1, algorithm, &[(1, 100), (2, 100)]);
        let (addr, mut health) = (spec.addr, EndpointHealth::default());
        health.set_slow_start(&spec.service, endpoint_addr(2), 1);
        health.set_slow_start(&spec.service, endpoint_addr(1), 3);
        let table = compile([spec], &ActiveTable::default()).with_health(health);
        let got: Vec<f64> = parts(table.get(addr).unwrap()).into_iter().map(|(_, part)| part).collect();
        assert_eq!(got, expected(algorithm), "{algorithm:?}");
    }
}
