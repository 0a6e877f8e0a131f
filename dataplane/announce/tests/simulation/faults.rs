//! Faults, one at a time, with many seeds.

use std::time::Duration;

use crate::network::{Network, ms};
use crate::{ADDRESSES, FAIL_AFTER, RETURNED, TAKEN_OVER, expect_one_owner, seeds};

#[test]
fn a_cold_start_ends_with_one_owner_each() {
    for machines in [1, 2, 3, 5, 8] {
        seeds(|seed| {
            let mut network = Network::new(seed, machines, ADDRESSES);
            network.start_all();
            network.run(ms(1_500));
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}"));
            network.run(ms(10_000));
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, later"));
        });
    }
}

#[test]
fn a_killed_gateway_is_replaced() {
    for machines in [3, 5, 8] {
        seeds(|seed| {
            let mut network = Network::settled(seed, machines, ADDRESSES);
            let pause = network.below(200);
            network.run(ms(pause));
            let victim = network.below(machines as u64) as usize;
            network.kill(victim);
            network.run(TAKEN_OVER);
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}"));
            network.start(victim);
            network.run(RETURNED);
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, restarted"));
            assert!(!network.gateway(victim).announced.is_empty());
        });
    }
}

/// In which part of a split a machine is.
type Group = fn(usize) -> usize;

/// All links break between the groups, and heal after some seconds.
fn split(machines: usize, seed: u64, group: Group) -> Network {
    let mut network = Network::settled(seed, machines, ADDRESSES);
    let pause = network.below(200);
    network.run(ms(pause));
    network.split(group);
    network.run(TAKEN_OVER);
    network
}

#[test]
fn the_larger_part_of_a_split_takes_over() {
    let splits: [(usize, Group); 3] = [(3, |n| n / 2), (5, |n| n / 3), (5, |n| n % 2)];
    for (machines, group) in splits {
        seeds(|seed| {
            let mut network = split(machines, seed, group);
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}"));
            network.run(ms(3_000));
            network.split(|_| 0);
            network.run(RETURNED);
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, healed"));
        });
    }
}

#[test]
fn without_a_majority_nobody_announces() {
    let splits: [(usize, Group); 3] = [(3, |n| n), (5, |n| n / 2), (4, |n| n / 2)];
    for (machines, group) in splits {
        seeds(|seed| {
            let mut network = split(machines, seed, group);
            assert_eq!(network.judge.overlap(), Duration::ZERO);
            assert!(network.judge.owned_by_nobody(), "{machines} machines, seed {seed}");
            network.run(ms(3_000));
            network.split(|_| 0);
            network.run(ms(2_000));
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, healed"));
            network.run(RETURNED);
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, later"));
        });
    }
}

#[test]
fn a_gateway_that_was_paused_fences_itself_first() {
    for machines in [3, 5] {
        seeds(|seed| {
            let mut network = Network::settled(seed, machines, ADDRESSES);
            let pause = network.below(200);
            network.run(ms(pause));
            network.pause(0);
            network.run(ms(5_000));
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, paused"));
            network.resume(0);
            assert!(network.gateway(0).announced.is_empty());
            network.run(ms(1_000));
            let others = network.judge.moves();
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, resumed"));
            network.run(RETURNED);
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, later"));
            assert!(network.judge.moves() > others && !network.gateway(0).announced.is_empty());
        });
    }
}

/// The clock of a virtual machine that was stopped says that no time has passed.
#[test]
fn a_virtual_machine_that_was_stopped_notices_and_leaves_the_addresses_to_others() {
    for machines in [2, 3, 5] {
        for stopped in [700, 2_000, 30_000] {
            seeds(|seed| {
                let what = format!("{machines} machines, {stopped} ms, seed {seed}");
                let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
                let pause = network.below(200);
                network.run(ms(pause));
                network.freeze(0);
                network.run(ms(stopped));
                expect_one_owner(&network, &format!("{what}, stopped"));
                network.judge_from_now();
                network.thaw(0);
                network.run(FAIL_AFTER);
                assert!(network.judge.owned_once(), "{what}: {:?}", network.judge.owners());
                assert_eq!(network.judge.gap(), Duration::ZERO, "{what}");
                assert!(network.gateway(0).announced.is_empty(), "{what}: others went on");
                network.run(RETURNED);
                assert!(network.judge.owned_once(), "{what}, later: {:?}", network.judge.owners());
                assert!(!network.gateway(0).announced.is_empty(), "{what}, later");
                let (overlap, gap) = (network.judge.overlap(), network.judge.gap());
                assert!(
                    overlap <= FAIL_AFTER && gap <= ms(100),
                    "{what}: two for {overlap:?}, none for {gap:?}"
                );
            });
        }
    }
}

/// Nobody went on without the others: they go on together.
#[test]
fn a_silent_segment_costs_little_more_than_the_silence() {
    for machines in [2, 3, 5] {
        for silence in [100, 250, 500, 1_000, 3_000] {
            seeds(|seed| {
                let what = format!("{machines} machines, {silence} ms, seed {seed}");
                let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
                // Again and again: nothing gets longer.
                for time in 0..2 {
                    let pause = network.below(200);
                    network.run(ms(pause));
                    let fences = |network: &Network| -> Vec<u64> {
                        let of = |machine| network.gateway(machine).membership.counters().fences;
                        (0..machines).map(of).collect()
                    };
                    let before = fences(&network);
                    network.set_links(|link| link.up = false);
                    (0..machines).for_each(|machine| network.set_router(machine, false));
                    network.run(ms(silence));
                    network.set_links(|link| link.up = true);
                    (0..machines).for_each(|machine| network.set_router(machine, true));
                    network.judge_from_now();
                    network.run(ms(1_000));
                    expect_one_owner(&network, &format!("{what}, time {time}"));
                    let gap = network.judge.gap();
                    assert!(gap <= ms(500), "{what}, time {time}: nobody for {gap:?}");
                    network.run(ms(1_000));
                    // Who was still serving when the silence ended took over.
                    let one_stayed =
                        before.iter().zip(fences(&network)).any(|(before, after)| *before == after);
                    let all = (0..machines).all(|machine| !network.gateway(machine).announced.is_empty());
                    assert!(all || one_stayed, "{what}, time {time}: {:?}", network.judge.owners());
                    network.run(ms(3_000));
                }
            });
        }
    }
}

/// One waited for its hold-down when the other lost its link, and served alone from then on: the other waits as well.
#[test]
fn a_gateway_that_another_one_in_its_hold_down_replaced_is_held_down() {
    seeds(|seed| {
        let what = format!("seed {seed}");
        let mut network = Network::two(seed, true, ADDRESSES);
        network.kill(1);
        network.run(ms(1_000));
        network.start(1);
        network.run(ms(1_500));
        assert!(network.gateway(1).announced.is_empty(), "{what}: in its hold-down");
        network.split(|n| n);
        network.set_router(0, false);
        network.run(ms(2_000));
        expect_one_owner(&network, &what);
        network.split(|_| 0);
        network.set_router(0, true);
        network.run(ms(4_000));
        assert!(network.gateway(0).announced.is_empty(), "{what}: back at once");
        network.run(RETURNED);
        expect_one_owner(&network, &format!("{what}, later"));
        assert!((0..2).all(|machine| !network.gateway(machine).announced.is_empty()), "{what}, later");
    });
}

/// In some silences of a quarter of a second one gateway keeps its leases, and another one does not.
#[test]
fn short_silences_of_all_make_nobody_wait_for_longer() {
    for silence in [100, 250] {
        for seed in 0..3 {
            let mut network = Network::settled_with_tie_breaker(seed, 3, ADDRESSES);
            let before: Vec<_> = (0..3).map(|it| network.gateway(it).membership.hold_down().time).collect();
            for _ in 0..20 {
                network.set_links(|link| link.up = false);
                (0..3).for_each(|machine| network.set_router(machine, false));
                network.run(ms(silence));
                network.set_links(|link| link.up = true);
                (0..3).for_each(|machine| network.set_router(machine, true));
                let pause = 1_500 + network.below(3_000);
                network.run(ms(pause));
            }
            let after: Vec<_> = (0..3).map(|it| network.gateway(it).membership.hold_down().time).collect();
            assert_eq!(after, before, "{silence} ms, seed {seed}");
        }
    }
}

/// Heartbeats that come late, or not at all, must not make a second owner of those who go on together.
#[test]
fn a_silence_that_ends_in_loss_and_delay_makes_no_second_owner() {
    for machines in [3, 5] {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled(seed, machines, ADDRESSES);
            for time in 0..5 {
                let pause = network.below(200);
                network.run(ms(pause));
                network.set_links(|link| link.up = false);
                network.run(ms(200 + 100 * time));
                network.set_links(|link| (link.up, link.loss, link.jitter) = (true, 0.3, ms(100)));
                network.run(ms(3_000));
                assert_eq!(network.judge.overlap(), Duration::ZERO, "{what}, time {time}");
                network.set_links(|link| (link.loss, link.jitter) = (0.0, ms(1)));
                network.run(ms(2_000));
                expect_one_owner(&network, &format!("{what}, time {time}, calm"));
            }
        });
    }
}

/// It may not hear the others at once, who are alive and own everything.
#[test]
fn a_gateway_that_counts_nobody_listens_before_it_owns_something() {
    seeds(|seed| {
        let what = format!("seed {seed}");
        let mut network = Network::settled(seed, 3, ADDRESSES);
        network.kill(0);
        network.run(ms(1_000));
        (1..3).for_each(|machine| network.set_ready(machine, false));
        network.split(|n| n.min(1));
        network.start(0);
        network.run(ms(250));
        network.split(|_| 0);
        network.run(RETURNED);
        expect_one_owner(&network, &what);
    });
}

#[test]
fn all_that_were_killed_go_on_together() {
    for machines in [2, 3, 5] {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
            for time in 0..3 {
                (0..machines).for_each(|machine| drop(network.kill(machine)));
                network.run(ms(500));
                network.start_all();
                network.judge_from_now();
                network.run(ms(1_500));
                expect_one_owner(&network, &format!("{what}, time {time}"));
                let gap = network.judge.gap();
                assert!(gap <= ms(1_000), "{what}, time {time}: nobody for {gap:?}");
            }
        });
    }
}

#[test]
fn all_paused_at_once_go_on() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        (0..3).for_each(|machine| network.pause(machine));
        network.run(ms(5_000));
        for machine in 0..3 {
            let late = network.below(30);
            network.run(ms(late));
            network.resume(machine);
        }
        network.run(ms(2_000));
        expect_one_owner(&network, &format!("seed {seed}"));
    });
}

#[test]
fn a_link_that_loses_one_direction_moves_nothing() {
    for machines in [3, 5] {
        seeds(|seed| {
            let mut network = Network::settled(seed, machines, ADDRESSES);
            network.set_link(0, 1, |link| link.up = false);
            network.run(ms(10_000));
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}"));
            assert_eq!(network.judge.moves(), 0);
            network.set_link(0, 1, |link| link.up = true);
            network.run(ms(10_000));
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, healed"));
            assert_eq!(network.judge.moves(), 0);
        });
    }
}

#[test]
fn a_gateway_that_only_sends_or_only_receives_is_replaced() {
    for sends in [true, false] {
        seeds(|seed| {
            let mut network = Network::settled(seed, 3, ADDRESSES);
            for other in 1..3 {
                let (from, to) = if sends { (other, 0) } else { (0, other) };
                network.set_link(from, to, |link| link.up = false);
            }
            network.run(TAKEN_OVER + ms(200));
            expect_one_owner(&network, &format!("sends {sends}, seed {seed}"));
            assert!(network.gateway(0).announced.is_empty());
            network.set_links(|link| link.up = true);
            network.run(RETURNED);
            expect_one_owner(&network, &format!("sends {sends}, seed {seed}, healed"));
        });
    }
}

#[test]
fn heavy_loss_makes_no_second_owner_and_moves_little() {
    for machines in [3, 5] {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled(seed, machines, ADDRESSES);
            network.set_links(|link| link.loss = 0.3);
            network.run(ms(60_000));
            assert_eq!(network.judge.overlap(), Duration::ZERO, "{what}");
            let (moves, gap) = (network.judge.moves(), network.judge.gap());
            assert!(moves <= 2 * ADDRESSES as usize, "{what}: {moves} moves");
            assert!(gap <= FAIL_AFTER, "{what}: {gap:?} without an owner");
            network.set_links(|link| link.loss = 0.0);
            network.run(ms(2_000));
            expect_one_owner(&network, &format!("{what}, healed"));
        });
    }
}

#[test]
fn a_flapping_link_moves_little() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        let own = network.gateway(0).announced.len();
        // For two minutes, 500 ms up and 500 ms down.
        for flap in 0..120 {
            let down = flap % 2 == 0;
            network.split(|n| if down { n.min(1) } else { 0 });
            network.run(ms(500));
        }
        assert_eq!(network.judge.overlap(), Duration::ZERO, "seed {seed}");
        assert!(network.judge.moves() <= own, "seed {seed}: {} moves of {own}", network.judge.moves());
        network.split(|_| 0);
        network.run(ms(65_000));
        expect_one_owner(&network, &format!("seed {seed}, healed"));
        assert!(!network.gateway(0).announced.is_empty());
    });
}

#[test]
fn a_slowly_flapping_link_is_held_down_longer_and_longer() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        let own = network.gateway(0).announced.len();
        // For five minutes, 1 s down and 9 s up.
        for _ in 0..30 {
            network.split(|n| n.min(1));
            network.run(ms(1_000));
            network.split(|_| 0);
            network.run(ms(9_000));
        }
        assert_eq!(network.judge.overlap(), Duration::ZERO, "seed {seed}");
        // Away, back after 5 s, and away again; 10 s are too long for it to come back.
        assert!(network.judge.moves() <= 3 * own, "seed {seed}: {} moves of {own}", network.judge.moves());
    });
}

#[test]
fn a_gateway_that_crashes_again_and_again_is_held_down_longer_and_longer() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        let own = network.gateway(0).announced.len();
        // For five minutes, every 10 s.
        for _ in 0..30 {
            network.kill(0);
            network.run(ms(1_000));
            network.start(0);
            network.run(ms(9_000));
        }
        assert_eq!(network.judge.overlap(), Duration::ZERO, "seed {seed}");
        // As a link that flaps slowly.
        assert!(network.judge.moves() <= 3 * own, "seed {seed}: {} moves of {own}", network.judge.moves());
        network.run(ms(60_000));
        expect_one_owner(&network, &format!("seed {seed}, at rest"));
        assert!(!network.gateway(0).announced.is_empty());
    });
}

#[test]
fn clocks_that_run_apart_make_no_second_owner() {
    seeds(|seed| {
        let mut network = Network::new(seed, 3, ADDRESSES);
        for (machine, drift) in [10_000, -10_000, 0].into_iter().enumerate() {
            network.set_drift(machine, drift);
        }
        network.start_all();
        network.run(ms(10_000));
        for machine in 0..3 {
            network.split(|n| usize::from(n == machine));
            network.run(TAKEN_OVER + ms(200));
            expect_one_owner(&network, &format!("seed {seed}, without {machine}"));
            network.split(|_| 0);
            network.run(ms(30_000));
        }
        expect_one_owner(&network, &format!("seed {seed}"));
    });
}
