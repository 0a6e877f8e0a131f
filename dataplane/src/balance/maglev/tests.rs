//! Tests of Maglev in numbers: shares, disruption, size, and golden tables that all versions must agree on.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::balance::hash;
use crate::balance::tests::{endpoint, input, weights_of};

type CandidateList = Vec<(u64, u32)>;

fn equal(count: u32) -> CandidateList {
    (0..count).map(|number| (hash::endpoint(endpoint(number)), 100)).collect()
}

fn maglev(candidates: &[(u64, u32)]) -> Maglev {
    let (identities, weights): (Vec<u64>, Vec<u32>) = candidates.iter().copied().unzip();
    Maglev::new(weights_of(&weights), identities.into())
}

/// The identity that owns each slot.
fn owners(candidates: &[(u64, u32)]) -> Vec<u64> {
    let maglev = maglev(candidates);
    (0..maglev.size).map(|slot| candidates[maglev.slots.get(slot)].0).collect()
}

fn slots_each(candidates: &[(u64, u32)]) -> BTreeMap<u64, usize> {
    owners(candidates).into_iter().fold(BTreeMap::new(), |mut slots, owner| {
        *slots.entry(owner).or_default() += 1;
        slots
    })
}

/// Part of the remaining candidates' slots that changes owner when `leaver` leaves.
fn disruption(candidates: &[(u64, u32)], leaver: usize) -> f64 {
    let (gone, _) = candidates[leaver];
    let mut rest = candidates.to_vec();
    rest.remove(leaver);
    let unaffected: Vec<_> =
        owners(candidates).into_iter().zip(owners(&rest)).filter(|&(owner, _)| owner != gone).collect();
    let moved = unaffected.iter().filter(|(before, after)| before != after).count();
    moved as f64 / unaffected.len() as f64
}

#[test]
fn two_percent_of_unaffected_slots_move_at_most_when_one_leaves() {
    for count in (2..=50).chain([100, 163, 500]) {
        let candidates = equal(count);
        for leaver in [0, candidates.len() / 2, candidates.len() - 1] {
            let moved = disruption(&candidates, leaver);
            assert!(moved <= 0.02, "{moved} moved when {leaver} of {count} left");
        }
    }
}

#[test]
fn few_unaffected_slots_move_when_one_of_unequal_weight_leaves() {
    let candidates: CandidateList =
        equal(20).into_iter().zip(1..).map(|((id, _), weight)| (id, weight)).collect();
    for leaver in 0..candidates.len() {
        let moved = disruption(&candidates, leaver);
        assert!(moved <= 0.05, "{moved} moved when {leaver} left");
    }
}

#[test]
fn equal_candidates_get_equal_shares() {
    for count in (1..=50).chain([100, 163, 164, 500, 1000]) {
        let candidates = equal(count);
        let slots = slots_each(&candidates);
        let total: usize = slots.values().sum();
        assert_eq!(slots.len(), candidates.len());
        let (least, most) = (slots.values().min().unwrap(), slots.values().max().unwrap());
        assert!(most - least <= 1, "{count} candidates got {least} to {most} slots");
        assert!(*most as f64 / (total as f64 / f64::from(count)) <= 1.02);
    }
}

#[test]
fn equal_weights_give_the_table_that_a_hair_of_difference_would_give() {
    let nearly: CandidateList =
        equal(100).into_iter().zip(0..).map(|((id, _), n)| (id, u32::MAX - n % 2)).collect();
    assert_eq!(owners(&equal(100)), owners(&nearly));
}

#[test]
fn weights_two_one_one_hold_within_a_hundredth() {
    for unit in [1, 100, 16_384] {
        let candidates: CandidateList =
            equal(3).into_iter().zip([2, 1, 1]).map(|((id, _), weight)| (id, weight * unit)).collect();
        let slots = slots_each(&candidates);
        for ((id, _), share) in candidates.iter().zip([0.5, 0.25, 0.25]) {
            let got = slots[id] as f64 / SMALL as f64;
            assert!((got / share - 1.0).abs() < 0.01, "wanted {share}, got {got}");
        }
    }
}

#[test]
fn the_lightest_beside_the_heaviest_still_gets_a_slot() {
    let candidates: CandidateList =
        equal(3).into_iter().zip([65_535, 1, 0]).map(|((id, _), weight)| (id, weight)).collect();
    let slots = slots_each(&candidates);
    assert_eq!(slots.get(&candidates[1].0), Some(&1));
    assert_eq!(slots.get(&candidates[2].0), None);
}

#[test]
fn the_table_has_a_hundred_slots_per_candidate_in_the_narrowest_type() {
    let bytes = |count| match maglev(&equal(count)).slots {
        Slots::Narrow(slots) => size_of_val(&*slots),
        Slots::Middle(slots) => size_of_val(&*slots),
        Slots::Wide(slots) => size_of_val(&*slots),
    };
    assert_eq!(bytes(163), SMALL);
    assert_eq!(bytes(164), LARGE);
    assert_eq!(bytes(256), LARGE);
    assert_eq!(bytes(257), 2 * LARGE);
    assert_eq!(bytes(65_536), 2 * LARGE);
    assert_eq!(bytes(65_537), 4 * LARGE);
}

#[test]
fn more_candidates_than_slots_fill_every_slot_with_another_one() {
    let slots = slots_each(&equal(70_000));
    assert_eq!(slots.len(), LARGE);
}

#[test]
fn a_known_table_over_the_same_candidates_is_used_again() {
    let new = |candidates: &[(u64, u32)], known: &[Arc<Maglev>]| {
        let (identities, weights): (Vec<u64>, Vec<u32>) = candidates.iter().copied().unzip();
        Maglev::new_or_known(&weights_of(&weights), identities.into(), known)
    };
    let mut candidates = equal(40);
    let known = [new(&equal(41), &[]), new(&candidates, &[])];
    assert!(Arc::ptr_eq(&new(&candidates, &known), &known[1]));
    candidates[3].1 += 1;
    assert!(known.iter().all(|known_one| !Arc::ptr_eq(&new(&candidates, &known), known_one)));
}

#[test]
fn a_retry_takes_the_next_other_candidate_in_slot_order() {
    let maglev = maglev(&equal(5));
    for number in 0..1000 {
        let hash = hash::mix(number);
        let start = scale(hash, maglev.size as u64) as usize;
        let in_order = || (start..maglev.size).chain(0..start).map(|slot| maglev.slots.get(slot));
        let first = in_order().next().unwrap();
        let second = in_order().find(|&index| index != first).unwrap();
        let third = in_order().find(|&index| index != first && index != second).unwrap();
        let tried_one = |index| index == first;
        let tried_two = |index| index == first || index == second;
        let ask = |tried| maglev.choose(&PickInput { hash, tried, ..input() });
        assert_eq!([ask(None), ask(Some(&tried_one)), ask(Some(&tried_two))], [first, second, third]);
    }
}

#[test]
fn tables_are_the_same_in_every_version() {
    let fingerprint =
        |candidates: &CandidateList| owners(candidates).into_iter().fold(0, |all, id| hash::mix(all ^ id));
    let weighted: CandidateList =
        equal(7).into_iter().zip(1..).map(|((id, _), weight)| (id, weight)).collect();
    assert_eq!(fingerprint(&equal(3)), 0x983b_7204_a9b8_6416);
    assert_eq!(fingerprint(&equal(500)), 0xbd17_75eb_4d92_ab31);
    assert_eq!(fingerprint(&weighted), 0x4dc5_3f2d_b1aa_5a84);
}

fn candidates() -> impl Strategy<Value = CandidateList> {
    let weight = prop_oneof![Just(0), Just(1), 0u32..=300, Just(u32::MAX)];
    prop::collection::vec(weight, 1..40)
        .prop_map(|weights| equal(40).into_iter().map(|(id, _)| id).zip(weights).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_of_candidates_never_matters((listed, shuffled) in candidates().prop_flat_map(|listed| {
        (Just(listed.clone()), Just(listed).prop_shuffle())
    })) {
        prop_assert_eq!(owners(&listed), owners(&shuffled));
    }

    #[test]
    fn only_candidates_with_weight_get_slots_and_all_of_them_do(candidates in candidates()) {
        let all_zero = candidates.iter().all(|&(_, weight)| weight == 0);
        let slots = slots_each(&candidates);
        for (id, weight) in candidates {
            prop_assert_eq!(slots.contains_key(&id), weight > 0 || all_zero);
        }
    }
}
