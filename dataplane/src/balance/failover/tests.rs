//! Tests of failover: what spills over, how gradually, and that nothing is refused while an endpoint exists.

use proptest::prelude::*;
use sheave_model::test_util;

use super::*;
use crate::balance::shares::fold;

/// A cluster for a test: of `total` endpoints the first `healthy` are healthy, the next `sick` are unhealthy candidates,
/// and the rest serve nothing.
#[derive(Clone, Copy, Debug)]
struct Sketch {
    priority: u32,
    weight: u16,
    total: u32,
    healthy: u32,
    sick: u32,
}

const fn sketch(priority: u32, weight: u16, total: u32, healthy: u32) -> Sketch {
    Sketch { priority, weight, total, healthy, sick: 0 }
}

fn rules(spread: Spread) -> FailoverRules {
    FailoverRules { spread, overprovisioning: 140, panic_threshold: 50, counts_lost: true }
}

fn places(sketches: &[Sketch]) -> Vec<FailoverCandidate> {
    let of = |(backend, sketch): (u32, &Sketch)| {
        let place = move |healthy| FailoverCandidate { backend, weight: Weight(100), healthy };
        let healthy = (0..sketch.healthy).map(move |_| place(true));
        healthy.chain((0..sketch.sick).map(move |_| place(false)))
    };
    (0u32..).zip(sketches).flat_map(of).collect()
}

fn backends(sketches: &[Sketch]) -> Vec<Backend> {
    let backend = |sketch: &Sketch| {
        let endpoints: Vec<(u32, u16)> =
            (0..sketch.healthy + sketch.sick).map(|number| (number, 100)).collect();
        let (priority, capacity) = (sketch.priority, sketch.total);
        Backend { priority, capacity, ..test_util::backend("any", sketch.weight, &endpoints) }
    };
    sketches.iter().map(backend).collect()
}

/// Part of all traffic that each candidate takes.
fn parts(sketches: &[Sketch], rules: FailoverRules) -> Vec<f64> {
    let shares = fold(&members(&backends(sketches), &places(sketches), rules));
    let sum: f64 = shares.iter().map(|&share| f64::from(share)).sum();
    shares.into_iter().map(|share| f64::from(share) / sum).collect()
}

/// Part of all traffic that each cluster takes.
fn loads(sketches: &[Sketch], rules: FailoverRules) -> Vec<f64> {
    let mut loads = vec![0.0; sketches.len()];
    for (place, part) in places(sketches).iter().zip(parts(sketches, rules)) {
        loads[place.backend as usize] += part;
    }
    loads
}

#[track_caller]
fn assert_loads(spread: Spread, sketches: &[Sketch], wanted: &[f64]) {
    let got = loads(sketches, rules(spread));
    let near = got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-4);
    assert!(near, "wanted {wanted:?}, got {got:?}");
}

const BOTH: [Spread; 2] = [Spread::Endpoints, Spread::Backends];

#[test]
fn traffic_spills_over_by_what_the_first_tier_lacks() {
    for spread in BOTH {
        let first = |healthy| [sketch(0, 100, 10, healthy), sketch(1, 100, 10, 10)];
        for (healthy, load) in [(10, 1.0), (8, 1.0), (7, 0.98), (5, 0.7), (1, 0.14), (0, 0.0)] {
            assert_loads(spread, &first(healthy), &[load, 1.0 - load]);
        }
        let three = [sketch(0, 1, 10, 2), sketch(5, 1, 10, 4), sketch(9, 1, 10, 10)];
        assert_loads(spread, &three, &[0.28, 0.56, 0.16]);
    }
}

#[test]
fn with_too_little_everywhere_each_tier_takes_its_part_of_what_there_is() {
    for spread in BOTH {
        assert_loads(spread, &[sketch(0, 1, 10, 3), sketch(1, 1, 10, 1)], &[0.75, 0.25]);
        assert_loads(spread, &[sketch(0, 1, 10, 1)], &[1.0]);
    }
}

#[test]
fn endpoints_share_equally_or_clusters_by_weight() {
    let sizes = [sketch(0, 100, 6, 6), sketch(0, 100, 2, 2)];
    assert_loads(Spread::Endpoints, &sizes, &[0.75, 0.25]);
    assert_loads(Spread::Backends, &sizes, &[0.5, 0.5]);
    let weighted = [sketch(0, 3, 6, 6), sketch(0, 1, 2, 2)];
    assert_loads(Spread::Endpoints, &weighted, &[0.9, 0.1]);
    assert_loads(Spread::Backends, &weighted, &[0.75, 0.25]);
}

#[test]
fn a_cluster_that_lost_endpoints_keeps_no_more_than_they_can_carry() {
    let with = |healthy, other| [sketch(0, 1, 10, healthy), sketch(0, 1, 10, other)];
    assert_loads(Spread::Backends, &with(8, 10), &[0.5, 0.5]);
    assert_loads(Spread::Backends, &with(5, 10), &[0.35, 0.65]);
    // Beyond the room of the other, both are overloaded alike.
    assert_loads(Spread::Backends, &with(2, 10), &[2.0 / 12.0, 10.0 / 12.0]);
    assert_loads(Spread::Backends, &with(3, 4), &[3.0 / 7.0, 4.0 / 7.0]);
    assert_loads(Spread::Backends, &with(0, 10), &[0.0, 1.0]);
    let three = [sketch(0, 2, 10, 5), sketch(0, 1, 10, 10), sketch(0, 3, 10, 10)];
    assert_loads(Spread::Backends, &three, &[1.4 / 6.0, 1.15 / 6.0, 3.45 / 6.0]);
}

#[test]
fn a_cluster_of_weight_zero_gets_nothing_beside_others_and_is_not_missed() {
    for spread in BOTH {
        let drained = [sketch(0, 0, 10, 10), sketch(0, 7, 5, 5), sketch(1, 7, 5, 5)];
        assert_loads(spread, &drained, &[0.0, 1.0, 0.0]);
        assert_loads(spread, &[sketch(0, 0, 10, 10), sketch(1, 7, 5, 1)], &[0.0, 1.0]);
        assert_loads(spread, &[sketch(0, 0, 5, 5), sketch(0, 0, 5, 5)], &[0.5, 0.5]);
        assert_loads(spread, &[sketch(0, 0, 5, 5), sketch(0, 9, 0, 0)], &[1.0, 0.0]);
    }
}

#[test]
fn an_endpoint_of_weight_zero_gets_nothing_beside_others() {
    let backend = [test_util::backend("a", 1, &[(1, 0), (2, 5)])];
    let place = |weight| FailoverCandidate { backend: 0, weight: Weight(weight), healthy: true };
    for spread in BOTH {
        let share = |weights: [u16; 2]| fold(&members(&backend, &weights.map(place), rules(spread)));
        assert_eq!(share([0, 5]), [0, 1]);
        assert_eq!(share([2, 4]), [1, 2]);
        assert_eq!(share([0, 0]), [1, 1]);
    }
}

#[test]
fn endpoints_that_a_policy_left_out_are_not_missed() {
    let all: Vec<(u32, u16)> = (0..10).map(|number| (number, 100)).collect();
    let own = Backend { capacity: 10, ..test_util::backend("own", 1, &all) };
    let other = Backend { priority: 1, ..test_util::backend("other", 1, &all) };
    let place = |backend| FailoverCandidate { backend, weight: Weight(100), healthy: true };
    let places = [place(0), place(1)];
    assert_eq!(fold(&members(&[own, other], &places, rules(Spread::Endpoints))), [1, 0]);
}

#[test]
fn when_nothing_is_healthy_every_candidate_counts_as_if_it_were() {
    let sick = |sketch: Sketch| Sketch { healthy: 0, sick: sketch.healthy, ..sketch };
    for spread in BOTH {
        let healthy = [sketch(0, 1, 10, 3), sketch(0, 4, 5, 5), sketch(1, 1, 10, 10)];
        assert_eq!(parts(&healthy.map(sick), rules(spread)), parts(&healthy, rules(spread)));
    }
}

#[test]
fn panic_keeps_the_healthy_at_what_they_had_at_the_threshold() {
    let tier = |healthy| [Sketch { sick: 100 - healthy, ..sketch(0, 1, 100, healthy) }];
    for spread in BOTH {
        let rules = rules(spread);
        for healthy in 1..100 {
            let parts = parts(&tier(healthy), rules);
            let (well, sick) = parts.split_at(healthy as usize);
            assert!(well[0] <= 0.0201, "{healthy} healthy: {}", well[0]);
            assert_eq!(sick[0] > 0.0, healthy < 50, "{healthy} healthy");
            assert!(sick[0] <= well[0]);
        }
        let never = FailoverRules { panic_threshold: 0, ..rules };
        assert_eq!(parts(&tier(1), never)[..2], [1.0, 0.0]);
    }
}

#[test]
fn no_panic_while_another_tier_has_enough() {
    for spread in BOTH {
        let first = Sketch { sick: 8, ..sketch(0, 1, 10, 2) };
        let parts = parts(&[first, sketch(1, 1, 10, 10)], rules(spread));
        assert!(parts[2..10].iter().all(|&part| part == 0.0));
    }
}

#[test]
fn no_candidates_make_no_members() {
    assert_eq!(members(&[], &[], rules(Spread::Endpoints)), []);
    let stray = FailoverCandidate { backend: 3, weight: Weight(1), healthy: true };
    assert_eq!(members(&[], &[stray], rules(Spread::Endpoints)).len(), 1);
}

fn any_spread() -> impl Strategy<Value = Spread> {
    prop_oneof![Just(Spread::Endpoints), Just(Spread::Backends)]
}

fn any_sketch() -> impl Strategy<Value = Sketch> {
    let weight = prop_oneof![1 => Just(0u16), 4 => 1u16..5, 1 => any::<u16>()];
    (0u32..3, weight, 0u32..40, 0u32..40, 0u32..40).prop_map(|(priority, weight, missing, healthy, sick)| {
        Sketch { priority, weight, total: missing + healthy + sick, healthy, sick }
    })
}

fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    prop::collection::vec(any_sketch(), 1..8)
}

/// Part of all traffic that each tier takes, by priority.
fn by_tier(sketches: &[Sketch], rules: FailoverRules) -> [f64; 3] {
    let mut tiers = [0.0; 3];
    for (sketch, load) in sketches.iter().zip(loads(sketches, rules)) {
        tiers[sketch.priority as usize] += load;
    }
    tiers
}

proptest! {
    #[test]
    fn somebody_takes_the_traffic_while_there_is_a_candidate(sketches in sketches(), spread in any_spread()) {
        let places = places(&sketches);
        let shares = fold(&members(&backends(&sketches), &places, rules(spread)));
        prop_assert_eq!(shares.len(), places.len());
        prop_assert_eq!(shares.iter().any(|&share| share > 0), !places.is_empty());
        let well = |place: &FailoverCandidate| place.healthy && sketches[place.backend as usize].weight > 0;
        let panicking = members(&backends(&sketches), &places, FailoverRules { panic_threshold: 0, ..rules(spread) });
        if places.iter().any(well) {
            for (place, share) in places.iter().zip(fold(&panicking)) {
                prop_assert!(share == 0 || place.healthy, "an unhealthy one is used without panic");
            }
        }
    }

    #[test]
    fn one_tier_in_full_health_is_the_plain_fold(
        sizes in prop::collection::vec((any::<u16>(), 1u32..30), 1..8),
        weights in prop::collection::vec(any::<u16>(), 240),
    ) {
        let sketches: Vec<_> = sizes.iter().map(|&(weight, size)| sketch(0, weight, size, size)).collect();
        let mut places = places(&sketches);
        places.iter_mut().zip(&weights).for_each(|(place, &weight)| place.weight = Weight(weight));
        let plain: Vec<Member> = places
            .iter()
            .map(|place| Member {
                backend: place.backend,
                backend_weight: sizes[place.backend as usize].0.into(),
                weight: place.weight.0.into(),
            })
            .collect();
        prop_assert_eq!(fold(&members(&backends(&sketches), &places, rules(Spread::Backends))), fold(&plain));
    }

    #[test]
    fn a_loss_moves_a_bounded_part_of_the_traffic_away_and_none_towards_its_tier(
        mut sketches in sketches(), spread in any_spread(), at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(sketches.len());
        sketches.iter_mut().for_each(|sketch| sketch.weight = sketch.weight.max(1));
        prop_assume!(sketches[at].healthy > 0);
        let before = by_tier(&sketches, rules(spread));
        let priority = sketches[at].priority;
        let of_tier = |sketch: &&Sketch| sketch.priority == priority;
        let total: u32 = sketches.iter().filter(of_tier).map(|sketch| sketch.total).sum();
        sketches[at].healthy -= 1;
        sketches[at].sick += 1;
        prop_assume!(sketches.iter().any(|sketch| sketch.healthy > 0));
        let after = by_tier(&sketches, rules(spread));
        let health = |priority| {
            let tier = || sketches.iter().filter(move |sketch| sketch.priority == priority);
            let [total, healthy] = [tier().map(|sketch| sketch.total).sum::<u32>(), tier().map(|sketch| sketch.healthy).sum()];
            (1.4 * f64::from(healthy) / f64::from(total.max(1))).min(1.0)
        };
        let available: f64 = (0..3).map(health).sum();
        let bound = 1.4 / f64::from(total) / available.min(1.0) + 1e-4;
        for tier in 0..3u32 {
            let moved = after[tier as usize] - before[tier as usize];
            prop_assert!(moved.abs() <= bound, "tier {tier}: {before:?} became {after:?}, bound {bound}");
            prop_assert!(if tier == priority { moved < 1e-5 } else { moved > -1e-5 }, "{before:?} became {after:?}");
        }
    }

    #[test]
    fn no_cluster_is_overrun_while_others_have_room(
        mut sketches in prop::collection::vec(any_sketch(), 1..8),
    ) {
        sketches.iter_mut().for_each(|sketch| {
            (sketch.priority, sketch.weight) = (0, sketch.weight.max(1));
            sketch.total = sketch.healthy + (sketch.total - sketch.healthy) / 4;
            sketch.sick = 0;
        });
        let weights: f64 = sketches.iter().filter(|sketch| sketch.total > 0).map(|sketch| f64::from(sketch.weight)).sum();
        let able = |sketch: &Sketch| {
            1.4 * f64::from(sketch.weight) / weights * f64::from(sketch.healthy) / f64::from(sketch.total.max(1))
        };
        prop_assume!(sketches.iter().map(able).sum::<f64>() >= 1.0);
        let rules = FailoverRules { panic_threshold: 0, ..rules(Spread::Backends) };
        for (sketch, load) in sketches.iter().zip(loads(&sketches, rules)) {
            prop_assert!(load <= able(sketch) + 1e-3, "{sketch:?} takes {load}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_thousandth_of_health_moves_little_whether_or_not_there_is_panic(
        healthy in 1u32..1000, other in 0u32..1000, spread in any_spread(), second in any::<bool>(),
    ) {
        let with = |healthy| {
            let cluster = |priority, healthy| Sketch { sick: 1000 - healthy, ..sketch(priority, 1, 1000, healthy) };
            [cluster(0, healthy), cluster(u32::from(second), other)]
        };
        let [before, after] = [healthy, healthy - 1].map(|healthy| parts(&with(healthy), rules(spread)));
        prop_assume!(healthy + other > 200);
        let moved: f64 = before.iter().zip(&after).map(|(before, after)| (before - after).abs()).sum();
        prop_assert!(moved < 0.04, "{moved} of the traffic moved");
    }
}

#[test]
fn within_one_cluster_endpoints_that_serve_nothing_do_not_count_as_lost() {
    let plain = test_util::frontend(1, sheave_model::Algorithm::Random, &[(0, 100), (1, 100)]);
    assert_eq!(plain.failover, None);
    let mut unready = sketch(0, 100, 10, 1);
    unready.sick = 1;
    let shares = parts(&[unready], FailoverRules { panic_threshold: 50, ..FailoverRules::of(&plain) });
    assert_eq!(shares, [1.0, 0.0], "8 Pods that are not ready do not send clients to the one that fails");
    let counted = parts(&[unready], rules(Spread::Endpoints));
    assert!(counted[1] > 0.2, "{counted:?}");
}
