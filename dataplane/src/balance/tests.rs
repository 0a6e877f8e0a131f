//! Tests of the properties of every balancer: weights, no favoured index, retries that avoid failed candidates.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use sheave_model::{ClientAddr, EndpointAddr, FrontendSource, Path, Protocol, ServicePort};

use super::*;

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::LeastConnections, Algorithm::Maglev, Algorithm::RoundRobin, Algorithm::Random];

pub(super) fn endpoint(number: u32) -> EndpointAddr {
    EndpointAddr::new(IpAddr::V4((0x0a00_0000 + number).into()), 8080)
}

pub(super) fn input() -> PickInput<'static> {
    PickInput { hash: 0, random: 0, turn: 0, load: &|_| 0, tried: None }
}

pub(super) fn weights_of(weights: &[u32]) -> Weights {
    Weights::new(weights.iter().map(|&weight| weight.into())).unwrap()
}

fn make(algorithm: Algorithm, weights: &[u32]) -> Balancer {
    let identities = (0u32..).take(weights.len()).map(|number| hash::endpoint(endpoint(number)));
    Balancer::new(algorithm, weights_of(weights), identities, &[])
}

/// The input of the `number`th client.
fn nth(number: usize) -> PickInput<'static> {
    let random = hash::mix(number as u64 + 1);
    PickInput { hash: hash::mix(random ^ 1), random, turn: number, ..input() }
}

/// Each candidate's part of `questions` choices.
fn shares(balancer: &Balancer, candidates: usize, questions: usize) -> Vec<f64> {
    let mut counts = vec![0u32; candidates];
    (0..questions).for_each(|number| counts[balancer.choose(&nth(number))] += 1);
    counts.into_iter().map(|count| f64::from(count) / questions as f64).collect()
}

#[test]
fn idle_candidates_are_chosen_in_proportion_to_weight_by_every_algorithm() {
    let weights = [100, 50, 0, 25, 25];
    for algorithm in ALGORITHMS {
        let shares = shares(&make(algorithm, &weights), weights.len(), 100_000);
        for (share, weight) in shares.iter().zip(weights) {
            let wanted = f64::from(weight) / 200.0;
            assert!((share - wanted).abs() < 0.005, "{algorithm:?}: wanted {wanted}, got {share}");
        }
    }
}

#[test]
fn all_weights_zero_mean_equal_shares_for_every_algorithm() {
    for algorithm in ALGORITHMS {
        for share in shares(&make(algorithm, &[0; 7]), 7, 100_000) {
            assert!((share - 1.0 / 7.0).abs() < 0.005, "{algorithm:?}: got {share}");
        }
    }
}

#[test]
fn no_candidates_make_no_weights() {
    assert_eq!(Weights::new(std::iter::empty()), None);
}

#[test]
fn only_more_than_32_candidates_need_a_maglev_table() {
    assert_eq!(make(Algorithm::Maglev, &[1; 32]).maglevs().len(), 0);
    assert_eq!(make(Algorithm::Maglev, &[1; 33]).maglevs().len(), 1);
}

mod least_connections {
    use super::*;

    #[test]
    fn the_less_loaded_of_two_wins_always() {
        let balancer = make(Algorithm::LeastConnections, &[1, 1]);
        for number in 0..1000 {
            assert_eq!(balancer.choose(&PickInput { load: &|index| [7, 6][index], ..nth(number) }), 1);
            assert_eq!(balancer.choose(&PickInput { load: &|index| [6, 7][index], ..nth(number) }), 0);
        }
    }

    #[test]
    fn load_counts_by_weight() {
        let balancer = make(Algorithm::LeastConnections, &[1, 3]);
        for number in 0..1000 {
            assert_eq!(balancer.choose(&PickInput { load: &|index| [10, 29][index], ..nth(number) }), 1);
            assert_eq!(balancer.choose(&PickInput { load: &|index| [10, 35][index], ..nth(number) }), 0);
        }
    }

    #[test]
    fn ties_favour_no_index() {
        let balancer = make(Algorithm::LeastConnections, &[1; 10]);
        let mut counts = [0u32; 10];
        for number in 0..100_000 {
            counts[balancer.choose(&PickInput { load: &|_| 5, ..nth(number) })] += 1;
        }
        for count in counts {
            assert!((9_600..10_400).contains(&count), "got {counts:?}");
        }
    }

    #[test]
    fn the_most_loaded_is_never_chosen_while_another_is_left() {
        let balancer = make(Algorithm::LeastConnections, &[1; 5]);
        for number in 0..10_000 {
            assert_ne!(
                balancer.choose(&PickInput { load: &|index| [1, 1, 9, 1, 1][index], ..nth(number) }),
                2
            );
        }
    }

    #[test]
    fn open_connections_end_up_in_proportion_to_weight() {
        let weights = [4, 2, 1, 1];
        let balancer = make(Algorithm::LeastConnections, &weights);
        let mut loads = [0u32; 4];
        for number in 0..8000 {
            loads[balancer.choose(&PickInput { load: &|index| loads[index], ..nth(number) })] += 1;
        }
        for (load, weight) in loads.into_iter().zip(weights) {
            assert!(load.abs_diff(weight * 1000) <= 10, "got {loads:?}");
        }
    }
}

mod round_robin {
    use super::*;

    #[test]
    fn equal_candidates_come_exactly_once_per_cycle() {
        let balancer = make(Algorithm::RoundRobin, &[9; 5]);
        let cycle =
            |from: usize| (from..from + 5).map(|turn| balancer.choose(&nth(turn))).collect::<Vec<_>>();
        assert_eq!(cycle(0), [0, 1, 2, 3, 4]);
        assert_eq!(cycle(5), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_cycle_of_unequal_weights_is_exact_and_spread() {
        let balancer = make(Algorithm::RoundRobin, &[500, 100, 100]);
        let turns: Vec<usize> = (0..14).map(|turn| balancer.choose(&nth(turn))).collect();
        assert_eq!(turns, [0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 1, 2, 0, 0]);
    }

    #[test]
    fn awkward_weights_are_rounded_to_a_bounded_cycle() {
        let weights = [65_535, 65_534, 1, 0];
        let balancer = make(Algorithm::RoundRobin, &weights);
        let turns: Vec<usize> = (0..3 * 4097).map(|turn| balancer.choose(&nth(turn))).collect();
        let count = |index| turns.iter().filter(|&&chosen| chosen == index).count();
        assert!(
            turns[..4097] == turns[4097..2 * 4097],
            "the cycle is 4,096 turns and the lightest one's own"
        );
        assert_eq!([count(0), count(1), count(2), count(3)], [3 * 2048, 3 * 2048, 3, 0]);
    }

    #[test]
    fn a_hundred_thousand_unequal_candidates_all_come() {
        let weights: Vec<u32> = (0..100_000).map(|number| 1 + number % 2).collect();
        let balancer = make(Algorithm::RoundRobin, &weights);
        let mut seen = vec![false; weights.len()];
        (0..150_000).for_each(|turn| seen[balancer.choose(&nth(turn))] = true);
        assert!(seen.into_iter().all(|seen| seen));
    }
}

mod stable_hash {
    use super::*;

    fn client(text: &str) -> ClientAddr {
        ClientAddr(text.parse::<SocketAddr>().unwrap())
    }

    #[test]
    fn the_mixer_is_splitmix64() {
        assert_eq!(hash::mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn hashes_are_the_same_in_every_version() {
        assert_eq!(hash::client_ip(client("192.0.2.1:1234")), 0xfff1_6800_0d88_2edb);
        assert_eq!(hash::client(client("192.0.2.1:1234")), 0xa700_47bd_0e47_3745);
        assert_eq!(hash::client(client("[2001:db8::1]:1234")), 0x39e5_ab4a_c6cb_6e01);
        assert_eq!(hash::endpoint(endpoint(1)), 0x8ac8_5b46_7666_08e4);
        assert_eq!(hash::endpoint(EndpointAddr { path: Path(7), ..endpoint(1) }), 0x3309_ad75_a34d_9dec);
        assert_eq!(hash::cluster("member1"), 0x2cca_3327_1471_d9e7);
        let port = ServicePort {
            source: FrontendSource::Service,
            namespace: "shop".into(),
            name: "web".into(),
            port_name: "http".into(),
            protocol: Protocol::Tcp,
            settings_of: None,
        };
        assert_eq!(hash::service_port(&port), 0xf1b9_91ae_360a_6aaf);
        let of_fleet = ServicePort { source: FrontendSource::MultiClusterService, ..port };
        assert_eq!(hash::service_port(&of_fleet), 0x632f_4300_ea24_1cec);
        let of_gateway = ServicePort { source: FrontendSource::Gateway, ..of_fleet };
        assert_eq!(hash::service_port(&of_gateway), 0xde56_37d7_9e52_80bb);
        assert_eq!(hash::part("Service shop/web:80"), 0x2b62_2f17_3ee5_8014);
        assert_eq!(hash::in_part(1, 2), 0xe4d9_7177_1b65_2c20);
    }

    #[test]
    fn decisions_are_the_same_in_every_version() {
        let weights = [100, 100, 50, 10];
        let clients =
            ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.77:50000", "[2001:db8::1]:443", "[::ffff:192.0.2.1]:2"];
        let ask = |algorithm, number: u64, text| {
            let hash = hash::client(client(text));
            let ask = PickInput { hash, random: hash::mix(number), turn: number as usize, ..input() };
            make(algorithm, &weights).choose(&ask)
        };
        let decisions = ALGORITHMS.map(|algorithm| {
            clients.iter().zip(1..).map(|(text, number)| ask(algorithm, number, text)).collect::<Vec<_>>()
        });
        assert_eq!(decisions, [[0, 2, 0, 1, 1], [1, 0, 2, 0, 0], [1, 2, 0, 1, 0], [0, 2, 0, 1, 1]]);
    }

    #[test]
    fn a_mapped_client_is_the_ipv4_client() {
        assert_eq!(hash::client(client("[::ffff:192.0.2.1]:7")), hash::client(client("192.0.2.1:7")));
    }

    #[test]
    fn the_port_counts_only_without_affinity() {
        let (one, other) = (client("192.0.2.1:1"), client("192.0.2.1:2"));
        assert_eq!(hash::client_ip(one), hash::client_ip(other));
        assert_ne!(hash::client(one), hash::client(other));
    }
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    let weight = prop_oneof![2 => Just(0), 3 => 1u32..200, 1 => 0u32..=65_535];
    prop_oneof![
        prop::collection::vec(weight, 1..12),
        (1usize..12, any::<u16>()).prop_map(|(count, weight)| vec![u32::from(weight); count]),
    ]
}

proptest! {
    #[test]
    fn a_choice_has_weight_and_is_untried_while_one_such_is_left(
        weights in weights(),
        tried in any::<u16>(),
        loads in prop::collection::vec(0u32..5, 12),
        (hash, random, turn) in any::<(u64, u64, usize)>(),
    ) {
        let was_tried = |index: usize| tried >> index & 1 == 1;
        let all_zero = weights.iter().all(|&weight| weight == 0);
        let eligible = |index: usize| all_zero || weights[index] > 0;
        let one_is_left = (0..weights.len()).any(|index| eligible(index) && !was_tried(index));
        for algorithm in ALGORITHMS {
            let balancer = make(algorithm, &weights);
            let ask = PickInput { hash, random, turn, load: &|index| loads[index], tried: Some(&was_tried) };
            let index = balancer.choose(&ask);
            prop_assert!(eligible(index), "{algorithm:?} chose {index}");
            prop_assert!(!was_tried(index) || !one_is_left, "{algorithm:?} chose {index} again");
            prop_assert_eq!(balancer.choose(&ask), index, "the same input, the same answer");
        }
    }

    #[test]
    fn drawing_another_never_gives_the_first(weights in weights(), random in any::<u64>(), first in any::<prop::sample::Index>()) {
        let first = first.index(weights.len());
        let widths = weights_of(&weights);
        let other = widths.draw_other(random, first);
        prop_assert_eq!(other.is_some(), widths.total() > widths.get(first));
        if let Some(other) = other {
            prop_assert!(other != first && widths.get(other) > 0);
        }
        prop_assert_eq!(other.is_some(), widths.draw_where(random, |index| index != first).is_some());
    }

    #[test]
    fn a_cycle_visits_every_candidate_by_its_weight(weights in prop::collection::vec(0u32..30, 1..12)) {
        prop_assume!(weights.iter().any(|&weight| weight > 0));
        let balancer = make(Algorithm::RoundRobin, &weights);
        let total: u32 = weights.iter().sum();
        let mut visits = vec![0; weights.len()];
        (0..total as usize).for_each(|turn| visits[balancer.choose(&nth(turn))] += 1);
        prop_assert_eq!(visits, weights);
    }
}
