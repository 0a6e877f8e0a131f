//! Tests of rendezvous hashing in numbers: shares, no unnecessary moves of clients, golden choices that all versions must agree on.

use proptest::prelude::*;

use super::*;
use crate::balance::hash;
use crate::balance::tests::{endpoint, input, weights_of};

type CandidateList = Vec<(u64, u32)>;

fn weighted(weights: &[u32]) -> CandidateList {
    (0..).zip(weights).map(|(number, &weight)| (hash::endpoint(endpoint(number)), weight)).collect()
}

/// The identity that each of `clients` clients gets.
fn winners(candidates: &[(u64, u32)], clients: u64) -> Vec<u64> {
    let (identities, weights): (Vec<u64>, Vec<u32>) = candidates.iter().copied().unzip();
    let runs = runs(&weights_of(&weights));
    let all = Rendezvous { identities: &identities, runs: &runs };
    (0..clients)
        .map(|client| identities[all.choose(&PickInput { hash: hash::mix(client), ..input() })])
        .collect()
}

#[test]
fn the_random_times_are_exponential() {
    for exponent in 20..64 {
        let random = 1u64 << exponent;
        let wanted = (64.0 - f64::from(exponent)) * std::f64::consts::LN_2;
        assert!((exponential(random) - wanted).abs() < 1e-5);
    }
    for random in (0..1_000_000u64).map(hash::mix) {
        let wanted = -((random | 1) as f64 / 2f64.powi(64)).ln();
        let got = exponential(random);
        assert!(got > 0.0 && (got - wanted).abs() <= 1e-5 * wanted + 1e-15, "wanted {wanted}, got {got}");
    }
}

#[test]
fn clients_spread_in_proportion_to_weight() {
    const CLIENTS: u64 = 400_000;
    for weights in [vec![100; 3], vec![100; 32], vec![2, 1, 1], vec![65_535, 0, 65_534], (1..=32).collect()] {
        let (candidates, total) = (weighted(&weights), weights.iter().sum::<u32>());
        let winners = winners(&candidates, CLIENTS);
        for (identity, weight) in candidates {
            let got = winners.iter().filter(|&&winner| winner == identity).count() as f64;
            let wanted = CLIENTS as f64 * f64::from(weight) / f64::from(total);
            // Five standard deviations of independent draws.
            assert!((got - wanted).abs() <= 5.0 * wanted.sqrt(), "{weights:?}: wanted {wanted}, got {got}");
        }
    }
}

#[test]
fn choices_are_the_same_in_every_version() {
    let fingerprint = |weights: &[u32]| {
        winners(&weighted(weights), 1000).into_iter().fold(0, |all, winner| hash::mix(all ^ winner))
    };
    assert_eq!(fingerprint(&[100; 3]), 0x5ce6_0cdc_ebbc_836a);
    assert_eq!(fingerprint(&[100; 32]), 0x8740_6b9d_e34a_49fd);
    assert_eq!(fingerprint(&[1, 2, 3, 3, 4, 65_535, 0]), 0x4b9f_10d6_c72b_6384);
    let first: Vec<u32> = winners(&weighted(&[1, 1, 1, 1]), 12)
        .into_iter()
        .map(|winner| (0..4u32).find(|&number| hash::endpoint(endpoint(number)) == winner).unwrap())
        .collect();
    assert_eq!(first, [2, 3, 0, 3, 2, 1, 0, 3, 1, 0, 0, 2]);
}

#[test]
fn candidates_of_equal_weight_form_runs() {
    let ends = |weights: &[u32]| runs(&weights_of(weights)).iter().map(|run| run.end).collect::<Vec<u32>>();
    assert_eq!(ends(&[7, 7, 7]), [0u32; 0]);
    assert_eq!(ends(&[1, 1, 2, 3, 3, 1]), [2, 3, 5, 6]);
}

fn candidates() -> impl Strategy<Value = CandidateList> {
    let weight = prop_oneof![Just(0), Just(1), Just(100), 0u32..=300, Just(u32::MAX)];
    prop::collection::vec(weight, 2..=MOST_CANDIDATES).prop_map(|weights| weighted(&weights))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_of_candidates_never_matters((listed, shuffled) in candidates().prop_flat_map(|listed| {
        (Just(listed.clone()), Just(listed).prop_shuffle())
    })) {
        prop_assert_eq!(winners(&listed, 500), winners(&shuffled, 500));
    }

    #[test]
    fn one_that_leaves_or_loses_weight_moves_only_its_own_clients(
        candidates in candidates(), changed in any::<prop::sample::Index>(), part in prop_oneof![Just(0.0), 0.0f64..1.0],
    ) {
        prop_assume!(candidates.iter().any(|&(_, weight)| weight > 0));
        let changed = changed.index(candidates.len());
        let (identity, weight) = candidates[changed];
        let mut after = candidates.clone();
        after[changed].1 = (f64::from(weight) * part) as u32;
        prop_assume!(after.iter().any(|&(_, weight)| weight > 0));
        let mut gone = candidates.clone();
        gone.remove(changed);
        for (before, after) in winners(&candidates, 500).into_iter().zip(winners(&after, 500)) {
            prop_assert!(before == identity || before == after);
        }
        if gone.iter().any(|&(_, weight)| weight > 0) {
            for (before, after) in winners(&candidates, 500).into_iter().zip(winners(&gone, 500)) {
                prop_assert!(before == identity || before == after);
                prop_assert_ne!(after, identity);
            }
        }
    }

    #[test]
    fn a_retry_gets_who_would_win_without_those_tried(candidates in candidates(), client in any::<u64>()) {
        let (identities, weights): (Vec<u64>, Vec<u32>) = candidates.iter().copied().unzip();
        let runs = runs(&weights_of(&weights));
        let all = Rendezvous { identities: &identities, runs: &runs };
        let ask = PickInput { hash: client, ..input() };
        let first = all.choose(&ask);
        let was_tried = |index: usize| index == first;
        let second = all.choose(&PickInput { tried: Some(&was_tried), ..ask });
        prop_assert_eq!(Some(second), all.first(client, |index| index != first).or(Some(first)));
    }
}
