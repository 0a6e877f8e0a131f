use std::collections::BTreeMap;

use super::*;
use crate::jhash::chosen_slot;

fn endpoint(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, (number >> 8) as u8, number as u8], 8080))
}

fn equal(count: usize) -> Vec<(SocketAddr, u32)> {
    (0..count).map(|number| (endpoint(number), 100)).collect()
}

fn weighted(shares: &[u32]) -> Vec<(SocketAddr, u32)> {
    shares.iter().enumerate().map(|(number, &share)| (endpoint(number), share)).collect()
}

/// Numbers of slots in the order of [`endpoint`].
fn counts(endpoints: &[(SocketAddr, u32)], method: Method) -> Vec<usize> {
    let mut counts: BTreeMap<SocketAddr, usize> =
        endpoints.iter().map(|&(endpoint, _)| (endpoint, 0)).collect();
    for slot in slots(endpoints, method) {
        *counts.get_mut(&slot).unwrap() += 1;
    }
    counts.into_values().collect()
}

fn highest_to_mean(counts: &[usize]) -> f64 {
    *counts.iter().max().unwrap() as f64 * counts.len() as f64 / counts.iter().sum::<usize>() as f64
}

#[test]
fn random_slots_have_the_ratio_of_the_shares_in_the_fewest_slots() {
    let of = |shares: &[u32]| counts(&weighted(shares), Method::Random);
    assert_eq!(of(&[300, 100]), [3, 1]);
    assert_eq!(of(&[7]), [1]);
    assert_eq!(of(&[1_000_000, 1_000_000]), [1, 1]);
    assert_eq!(of(&[1_000_000, 500_000]), [2, 1]);
    assert_eq!(of(&[1_000, 24]), [125, 3]);
    assert_eq!(counts(&equal(5_000), Method::Random), vec![1; 5_000]);
}

#[test]
fn beyond_the_limit_random_slots_are_the_nearest_whole_numbers_and_never_none() {
    let of = |shares: &[u32]| counts(&weighted(shares), Method::Random);
    assert_eq!(of(&[1_000_000, 1]), [1_023, 1]);
    assert_eq!(of(&[1_000_000, 999_999]), [512, 512]);
    assert_eq!(of(&[333_333, 666_667]), [341, 683]);
    assert_eq!(of(&[u32::MAX, u32::MAX - 1, 1]), [512, 511, 1]);
    let mut shares = vec![1; 1_000];
    shares[0] = 1_000_000;
    assert_eq!((of(&shares)[0], of(&shares).iter().sum()), (3_001, 4_000));
    let shares: Vec<u32> = (0..5_000).map(|number| 1_000_000 - number % 2).collect();
    assert_eq!(of(&shares), vec![4; 5_000]);
}

#[test]
fn the_order_of_endpoints_makes_no_difference() {
    for method in [Method::Random, Method::Hash] {
        let endpoints: Vec<_> = (0..30).map(|number| (endpoint(number), 1 + number as u32 % 7)).collect();
        let reversed: Vec<_> = endpoints.iter().rev().copied().collect();
        assert_eq!(slots(&endpoints, method), slots(&reversed, method));
    }
}

/// The sizes decide in how many chains the frontends share, and clients move when one is crossed.
#[test]
fn hash_tables_have_a_few_sizes() {
    let sizes = [1, 2, 10, 11, 250, 251, 5_000].map(|count| slots(&equal(count), Method::Hash).len());
    assert_eq!(sizes, [1, 251, 251, 1_021, 1_021, 16_381, 16_381]);
}

#[test]
fn hash_tables_have_even_shares_and_honour_weights() {
    assert!(highest_to_mean(&counts(&equal(3), Method::Hash)) < 1.02);
    assert!(highest_to_mean(&counts(&equal(10), Method::Hash)) < 1.04);
    assert!(highest_to_mean(&counts(&equal(50), Method::Hash)) < 1.04);
    assert!(highest_to_mean(&counts(&equal(1_000), Method::Hash)) < 1.1);
    assert!(highest_to_mean(&counts(&equal(5_000), Method::Hash)) < 1.3);
    assert_eq!(counts(&weighted(&[3, 1]), Method::Hash), [188, 63]);
    assert_eq!(counts(&weighted(&[1_000_000, 1]), Method::Hash), [250, 1]);
    let mut shares = vec![1; 1_000];
    shares[0] = 1_000_000;
    let counts = counts(&weighted(&shares), Method::Hash);
    assert_eq!((counts[0], *counts[1..].iter().max().unwrap()), (15_382, 1));
}

/// Part of the clients of the others that move when one endpoint leaves. With `hash mod n` it would be a quarter to a half.
#[test]
fn few_clients_move_when_an_endpoint_leaves() {
    for (count, most) in [(3, 0.03), (10, 0.06), (50, 0.06), (200, 0.08)] {
        let before = slots(&equal(count), Method::Hash);
        let (mut stayed, mut moved) = (0, 0);
        for gone in 0..count {
            let rest: Vec<_> = equal(count).into_iter().filter(|(it, _)| *it != endpoint(gone)).collect();
            let after = slots(&rest, Method::Hash);
            for client in (0..2_000_u32).map(|it| IpAddr::from((0xc0a8_0000 + it * 7).to_be_bytes())) {
                let of = |slots: &[SocketAddr]| slots[chosen_slot(client, slots.len() as u32, 0) as usize];
                match of(&before) {
                    left if left == endpoint(gone) => {}
                    kept if kept == of(&after) => stayed += 1,
                    _ => moved += 1,
                }
            }
        }
        let part = f64::from(moved) / f64::from(moved + stayed);
        assert!(part < most, "{count} endpoints: {part}");
    }
}

/// Gateways of different versions must agree: these values never change.
#[test]
fn tables_stay_as_they_are() {
    let identities = ["10.0.0.1:80", "[2001:db8::1]:443"].map(|endpoint| identity(endpoint.parse().unwrap()));
    let owners: Vec<SocketAddr> = slots(&equal(3), Method::Hash).into_iter().take(12).collect();
    let owners: Vec<usize> =
        owners.iter().filter_map(|owner| (0..3).find(|&number| endpoint(number) == *owner)).collect();
    assert_eq!(identities, [0xa81b_29ea_3b3d_ec2f, 0xf1d9_7359_caa5_c0b9]);
    assert_eq!(owners, [1, 2, 1, 1, 1, 1, 0, 2, 2, 0, 2, 0]);
}

#[test]
fn what_the_contract_excludes_has_no_slots_of_its_own() {
    for method in [Method::Random, Method::Hash] {
        assert!(slots(&[], method).is_empty());
        assert!(slots(&[(endpoint(0), 0)], method).is_empty());
        assert_eq!(slots(&[(endpoint(0), 1), (endpoint(0), 2)], method), [endpoint(0)]);
    }
}
