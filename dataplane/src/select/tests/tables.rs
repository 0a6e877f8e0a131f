//! Tests of loads, turns and unchanged frontends from table to table.

use std::collections::VecDeque;

use super::*;

#[test]
fn an_unchanged_frontend_is_carried_over_even_as_a_new_allocation() {
    let spec = |number| frontend(number, Algorithm::Random, &[(1, 100)]);
    let first = compile([spec(1), spec(2)], &ActiveTable::default());
    let second = compile([spec(1), frontend(2, Algorithm::Random, &[(2, 100)])], &first);
    let same = |number| {
        let addr = frontend_addr(number);
        Arc::ptr_eq(first.get(addr).unwrap(), second.get(addr).unwrap())
    };
    assert!(same(1));
    assert!(!same(2));
}

#[test]
fn a_removed_frontend_is_not_found() {
    let first = compile([frontend(1, Algorithm::Random, &[])], &ActiveTable::default());
    assert!(first.get(frontend_addr(1)).is_some());
    assert!(compile([], &first).get(frontend_addr(1)).is_none());
}

#[test]
fn endpoints_that_stay_keep_their_loads() {
    let before = active(frontend(1, Algorithm::LeastConnections, &[(1, 100), (2, 100)]));
    let affinity = AffinityTable::default();
    let held: Vec<_> = (0..10).map(|number| forward(before.pick(&external(number), &affinity))).collect();
    let after = changed(frontend(1, Algorithm::LeastConnections, &[(2, 50), (3, 100)]), &before);
    assert_eq!(loads(&after), [loads(&before)[1], 0]);
    drop(held);
    assert_eq!(loads(&after), [0, 0]);
}

#[test]
fn picks_and_open_connections_are_counted_apart_over_many_changes() {
    let affinity = AffinityTable::default();
    let spec = |numbers: &[u32]| {
        let endpoints: Vec<(u32, u16)> = numbers.iter().map(|&number| (number, 100)).collect();
        frontend(1, Algorithm::RoundRobin, &endpoints)
    };
    let counts = |frontend: &ActiveFrontend| -> Vec<(u64, u32)> {
        frontend.loads().map(|(_, load)| (load.picks(), load.active())).collect()
    };
    let mut frontend = active(spec(&[1, 2]));
    let held: Vec<_> = (0..5).map(|number| forward(frontend.pick(&external(number), &affinity))).collect();
    assert_eq!(counts(&frontend), [(3, 3), (2, 2)]);
    for others in [&[0, 1, 2][..], &[1, 2], &[1, 2, 3], &[1, 2, 3, 4], &[1, 2, 4]] {
        frontend = changed(spec(others), &frontend);
    }
    assert_eq!(counts(&frontend), [(3, 3), (2, 2), (0, 0)]);
    drop(held);
    assert_eq!(counts(&frontend), [(3, 0), (2, 0), (0, 0)]);
    frontend = changed(spec(&[7, 8]), &changed(spec(&[]), &frontend));
    assert_eq!(counts(&changed(spec(&[1, 7, 8]), &frontend)), [(0, 0); 3]);
}

#[test]
fn an_endpoint_that_is_no_candidate_any_more_still_serves_and_keeps_its_load() {
    let mut spec = frontend(1, Algorithm::RoundRobin, &[(1, 100), (2, 100)]);
    let before = active(spec.clone());
    let held = forward(before.pick(&external(1), &AffinityTable::default()));
    spec.external = route([(0, 1)]);
    spec.internal = route([(0, 1)]);
    let after = changed(spec, &before);
    assert_eq!(held.addr(), endpoint_addr(1));
    assert!(after.serves(endpoint_addr(1)) && after.serves(endpoint_addr(2)));
    assert!(!after.serves(endpoint_addr(3)));
    assert_eq!(loads(&after), [1, 0]);
}

#[test]
fn equal_routes_take_turns_together() {
    let frontend = active(frontend(1, Algorithm::RoundRobin, &[(1, 100), (2, 100)]));
    let affinity = AffinityTable::default();
    let internal = PickRequest { origin: Origin::Internal, ..external(1) };
    assert_eq!(goes(&frontend, &external(1), &affinity), endpoint_addr(1));
    assert_eq!(goes(&frontend, &internal, &affinity), endpoint_addr(2));
}

#[test]
fn turns_go_on_after_a_change() {
    let affinity = AffinityTable::default();
    let before = active(frontend(1, Algorithm::RoundRobin, &[(1, 100), (2, 100), (3, 100)]));
    assert_eq!(goes(&before, &external(1), &affinity), endpoint_addr(1));
    let after = changed(frontend(1, Algorithm::RoundRobin, &[(1, 100), (2, 100)]), &before);
    assert_eq!(goes(&after, &external(1), &affinity), endpoint_addr(2));
}

#[test]
fn a_switch_of_algorithm_takes_effect() {
    let affinity = AffinityTable::default();
    let endpoints = [(1, 100), (2, 100), (3, 100)];
    let before = active(frontend(1, Algorithm::RoundRobin, &endpoints));
    let after = changed(frontend(1, Algorithm::Maglev, &endpoints), &before);
    let first = goes(&after, &external(1), &affinity);
    assert!((0..9).all(|_| goes(&after, &external(1), &affinity) == first));
}

/// Two endpoints get 1,000 connections a second: one answers each after 5 ms, the other resets each at once.
#[test]
fn an_endpoint_that_ends_all_connections_without_an_answer_does_not_look_idle() {
    const CONNECTIONS: usize = 10_000;
    let frontend = active(frontend(1, Algorithm::LeastConnections, &[(1, 100), (2, 100)]));
    let (affinity, mut share) = (AffinityTable::default(), 0);
    let (mut open, mut unanswered) = (VecDeque::new(), VecDeque::new());
    for number in 0..CONNECTIONS {
        while open.pop_front_if(|(ends, _)| *ends <= number).is_some() {}
        while unanswered.pop_front_if(|(ends, _)| *ends <= number).is_some() {}
        let picked = forward(frontend.pick(&external(number as u32), &affinity));
        if picked.addr() == endpoint_addr(1) {
            share += 1;
            unanswered.push_back((number + 1000, picked.unanswered()));
        } else {
            open.push_back((number + 5, picked));
        }
    }
    assert!(share * 100 <= CONNECTIONS * 55, "{share} of {CONNECTIONS}");
    let counted: Vec<u64> = frontend.loads().map(|(_, load)| load.unanswered()).collect();
    assert_eq!(counted, [share as u64, 0]);
}
