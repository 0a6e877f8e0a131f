//! A majority that is lost or out of reach, and a tie-breaker that answers all: the rest goes on, alone if need be.

use std::time::Duration;

use crate::network::{Network, ms};
use crate::{ADDRESSES, FAIL_AFTER, RETURNED, expect_one_owner, seeds};

/// `fail_after`, an interval for the tie-breaker, and time to agree.
const TAKEN_OVER: Duration = Duration::from_millis(650);

/// In which part of the network a machine is.
type Part = fn(usize) -> usize;

const PARTS: [(usize, Part); 6] =
    [(2, |n| n), (3, |n| n.min(1)), (3, |n| n), (4, |n| n / 2), (5, |n| n / 3), (5, |n| n / 2)];

#[track_caller]
fn expect_owned(network: &Network, overlap: Duration, gap: Duration, what: &str) {
    let (two, none) = (network.judge.overlap(), network.judge.gap());
    assert!(two <= overlap, "{what}: two owners for {two:?}");
    assert!(none <= gap, "{what}: nobody for {none:?}");
}

#[test]
fn the_last_one_goes_on_alone() {
    for machines in [3, 4, 5] {
        for apart in [0, 3, 300, 5_000] {
            seeds(|seed| {
                let what = format!("{machines} machines, {apart} ms apart, seed {seed}");
                let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
                let pause = network.below(200);
                network.run(ms(pause));
                for machine in 1..machines {
                    network.kill(machine);
                    network.run(ms(apart));
                }
                network.run(TAKEN_OVER);
                expect_one_owner(&network, &what);
                // Whoever takes over may be killed before it has.
                let killed = if ms(apart) < TAKEN_OVER { ms(apart) * (machines as u32 - 2) } else { ms(0) };
                expect_owned(&network, Duration::ZERO, TAKEN_OVER + killed, &what);
                network.judge_from_now();
                network.run(ms(5_000));
                for machine in 1..machines {
                    network.start(machine);
                    network.run(ms(apart));
                }
                network.run(RETURNED);
                expect_one_owner(&network, &format!("{what}, all back"));
                expect_owned(&network, Duration::ZERO, ms(100), &format!("{what}, all back"));
                assert!((0..machines).all(|it| !network.gateway(it).announced.is_empty()), "{what}");
            });
        }
    }
}

/// Runs for each way to part a settled network; the last argument describes it.
fn in_parts(run: impl Fn(Network, usize, Part, &str)) {
    for (machines, part) in PARTS {
        seeds(|seed| {
            let parts: Vec<usize> = (0..machines).map(part).collect();
            let what = format!("{machines} machines, parts {parts:?}, seed {seed}");
            run(Network::settled_with_tie_breaker(seed, machines, ADDRESSES), machines, part, &what);
        });
    }
}

/// A firewall that lets no heartbeats through, for example.
#[test]
fn parts_that_see_the_frames_of_each_other_share_the_addresses() {
    in_parts(|mut network, _, part, what| {
        let pause = network.below(200);
        network.run(ms(pause));
        network.filter(part);
        network.run(ms(20_000));
        // Of parts that all have fewer than half, each gives way to the first that it hears.
        expect_owned(&network, FAIL_AFTER, TAKEN_OVER + ms(250), what);
        network.judge_from_now();
        network.run(ms(20_000));
        expect_one_owner(&network, &format!("{what}, later"));
        assert_eq!(network.judge.moves(), 0, "{what}, later");
        network.filter(|_| 0);
        network.run(RETURNED);
        expect_owned(&network, FAIL_AFTER, ms(500), &format!("{what}, healed"));
        assert!(network.judge.owned_once(), "{what}, healed: {:?}", network.judge.owners());
        network.judge_from_now();
        network.run(ms(10_000));
        expect_one_owner(&network, &format!("{what}, calm"));
    });
}

#[test]
fn each_part_of_a_split_serves_its_clients() {
    in_parts(|mut network, machines, part, what| {
        let pause = network.below(200);
        network.run(ms(pause));
        network.split(part);
        network.run(TAKEN_OVER);
        expect_owned(&network, Duration::ZERO, TAKEN_OVER, what);
        for number in 0..machines {
            let mut within: Vec<_> = (0..machines)
                .filter(|it| part(*it) == part(number))
                .flat_map(|it| network.gateway(it).on())
                .collect();
            within.sort();
            let all: Vec<_> = network.claims().keys().copied().collect();
            assert_eq!(within, all, "{what}, part {}", part(number));
        }
        network.run(ms(3_000));
        network.judge_from_now();
        network.split(|_| 0);
        network.run(ms(1_000));
        expect_owned(&network, FAIL_AFTER, ms(500), &format!("{what}, healed"));
        assert!(network.judge.owned_once(), "{what}, healed: {:?}", network.judge.owners());
        network.judge_from_now();
        network.run(RETURNED);
        expect_one_owner(&network, &format!("{what}, later"));
        assert!((0..machines).all(|it| !network.gateway(it).announced.is_empty()), "{what}");
    });
}

/// After a split frames arrive again and heartbeats do not: nothing but frames shows that there are two owners.
#[test]
fn parts_that_come_in_sight_of_each_other_share_the_addresses() {
    in_parts(|mut network, _, part, what| {
        network.split(part);
        let pause = 3_000 + network.below(200);
        network.run(ms(pause));
        network.judge_from_now();
        network.filter(part);
        network.run(ms(10_000));
        // An interval until one announces what it has.
        expect_owned(&network, ms(120), ms(400), what);
        network.judge_from_now();
        network.run(ms(10_000));
        expect_one_owner(&network, &format!("{what}, later"));
        assert_eq!(network.judge.moves(), 0, "{what}, later");
    });
}

#[test]
fn a_flapping_link_moves_little() {
    for machines in [2, 3] {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
            // For two minutes, 500 ms up and 500 ms down.
            for flap in 0..120 {
                network.split(|n| if flap % 2 == 0 { n.min(1) } else { 0 });
                network.run(ms(500));
            }
            expect_owned(&network, FAIL_AFTER, FAIL_AFTER, &what);
            let moves = network.judge.moves();
            assert!(moves <= 2 * ADDRESSES as usize, "{what}: {moves} moves");
            network.split(|_| 0);
            network.run(ms(65_000));
            network.judge_from_now();
            network.run(ms(10_000));
            expect_one_owner(&network, &format!("{what}, healed"));
        });
    }
}

/// Each part has a majority of those whom its API server lists.
#[test]
fn two_parts_with_a_majority_each_settle() {
    for router in [true, false] {
        seeds(|seed| {
            let what = format!("router {router}, seed {seed}");
            let mut network = Network::settled_with_tie_breaker(seed, 5, ADDRESSES);
            (0..5).for_each(|machine| network.set_router(machine, router));
            network.split(|n| n / 3);
            network.run(ms(2_000));
            network.list_as_ready(3..5, 0..3, false);
            network.run(ms(5_000));
            network.judge_from_now();
            network.split(|_| 0);
            network.run(ms(500));
            network.list_as_ready(3..5, 0..3, true);
            network.run(RETURNED);
            expect_owned(&network, FAIL_AFTER, ms(500), &what);
            assert!(network.judge.owned_once(), "{what}: {:?}", network.judge.owners());
            network.judge_from_now();
            network.run(ms(10_000));
            expect_owned(&network, Duration::ZERO, ms(100), &format!("{what}, calm"));
        });
    }
}

/// One of five hears a single other one, which hears all.
#[test]
fn a_gateway_that_most_others_do_not_hear_owns_nothing() {
    seeds(|seed| {
        let what = format!("seed {seed}");
        let mut network = Network::settled_with_tie_breaker(seed, 5, ADDRESSES);
        for other in 2..5 {
            network.set_link(0, other, |link| link.up = false);
            network.set_link(other, 0, |link| link.up = false);
        }
        network.run(ms(3_000));
        expect_owned(&network, FAIL_AFTER, ms(1_000), &what);
        network.judge_from_now();
        network.run(ms(20_000));
        expect_one_owner(&network, &format!("{what}, later"));
        assert!(network.gateway(0).announced.is_empty(), "{what}");
        assert_eq!(network.judge.moves(), 0, "{what}");
    });
}

/// Others have found their addresses in use, and left them to it.
#[test]
fn what_a_part_that_gives_way_had_is_announced_at_once() {
    seeds(|seed| {
        let what = format!("seed {seed}");
        let mut network = Network::settled_with_tie_breaker(seed, 3, ADDRESSES);
        let all: Vec<_> = network.claims().keys().copied().collect();
        network.act(0, |gateway, clock| {
            gateway.membership.set_contested(&all);
            gateway.drive(clock)
        });
        network.run(ms(1_000));
        network.act(0, |gateway, clock| {
            gateway.membership.set_contested(&[]);
            gateway.drive(clock)
        });
        network.filter(|n| n.min(1));
        // Probed after 0.15, 1.15 and 3.15 s.
        network.run(ms(2_000));
        assert!(!network.gateway(0).on().is_empty(), "{what}: its own are left to it");
        network.judge_from_now();
        network.filter(|_| 0);
        network.run(ms(3_000));
        expect_owned(&network, FAIL_AFTER, ms(500), &what);
        assert!(network.judge.owned_once(), "{what}: {:?}", network.judge.owners());
    });
}

/// An address that was left to another gateway is taken back soon after that one has died.
#[test]
fn the_holder_of_what_was_left_to_it_dies() {
    for (machines, part) in PARTS.into_iter().take(2) {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
            network.filter(part);
            network.run(ms(70_000));
            network.judge_from_now();
            (1..machines).for_each(|machine| drop(network.kill(machine)));
            network.run(ms(4_000));
            expect_one_owner(&network, &what);
            expect_owned(&network, Duration::ZERO, ms(2_500), &what);
        });
    }
}
