//! Heartbeats that come late: long links, full queues, bursts. What is measured makes gateways wait longer, and moves nothing.

use std::time::Duration;

use crate::network::{Link, Network, Saturation, ms};
use crate::{ADDRESSES, FAIL_AFTER, TAKEN_OVER, expect_one_owner, seeds};

/// Until gateways are used to a delay that has just begun, and have settled.
const SETTLED: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

/// For a minute nothing moves and nobody is fenced.
#[track_caller]
fn expect_calm(network: &mut Network, what: &str) {
    let fences = network.fences();
    network.judge_from_now();
    network.run(MINUTE);
    expect_one_owner(network, what);
    assert_eq!((network.judge.moves(), network.fences() - fences), (0, 0), "{what}: moves and fences");
}

#[test]
fn a_delay_that_was_there_from_the_start_moves_nothing() {
    for machines in [2, 3, 5] {
        for one_way in [50, 100, 200] {
            seeds(|seed| {
                let delay = |link: &mut Link| (link.latency, link.jitter) = (ms(one_way), ms(one_way / 10));
                let mut network = Network::settled_on(seed, machines, ADDRESSES, delay);
                expect_calm(&mut network, &format!("{machines} machines, {one_way} ms, seed {seed}"));
            });
        }
    }
}

#[test]
fn a_delay_that_begins_moves_nothing_for_long() {
    for machines in [2, 3, 5] {
        for one_way in [50, 100, 200] {
            seeds(|seed| {
                let what = format!("{machines} machines, {one_way} ms, seed {seed}");
                let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
                network.set_links(|link| (link.latency, link.jitter) = (ms(one_way), ms(one_way / 10)));
                network.run(SETTLED);
                // What is in place of 350 ms at 50 ms is what a heartbeat and its answer take.
                if one_way == 50 {
                    assert_eq!((network.judge.moves(), network.fences()), (0, 0), "{what}");
                }
                expect_calm(&mut network, &what);
            });
        }
    }
}

#[test]
fn a_saturated_link_moves_nothing() {
    for machines in [2, 3, 5] {
        for priority in [true, false] {
            seeds(|seed| {
                let what = format!("{machines} machines, priority {priority}, seed {seed}");
                let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
                let since = network.now;
                // 500 KB at 20 Mbit/s.
                let saturation = Saturation { since, full: ms(200), loss: 0.3, priority };
                for other in 1..machines {
                    network.set_link(0, other, |link| link.saturation = Some(saturation));
                }
                expect_calm(&mut network, &what);
            });
        }
    }
}

#[test]
fn bursts_move_nothing_once_they_are_known() {
    for machines in [3, 5] {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled_with_tie_breaker(seed, machines, ADDRESSES);
            for second in 0..140 {
                if second == 80 {
                    network.judge_from_now();
                }
                network.hold(ms(400), |from, to| from == 0 || to == 0);
                let pause = 700 + network.below(600);
                network.run(ms(pause));
                // Until they are known, a gateway may go on without the others for a moment.
                let most = if second < 80 { FAIL_AFTER } else { Duration::ZERO };
                assert!(network.judge.overlap() <= most, "{what}, second {second}");
            }
            network.run(ms(1_000));
            expect_one_owner(&network, &what);
            assert_eq!(network.judge.moves(), 0, "{what}");
        });
    }
}

#[test]
fn after_a_delay_has_ended_a_killed_gateway_is_replaced_as_soon_as_before() {
    seeds(|seed| {
        let mut network = Network::settled_on(seed, 3, ADDRESSES, |link| link.latency = ms(100));
        network.set_links(|link| link.latency = ms(0));
        network.run(MINUTE + ms(5_000));
        expect_one_owner(&network, &format!("seed {seed}"));
        assert_eq!(network.judge.moves(), 0, "seed {seed}");
        network.kill(0);
        network.run(TAKEN_OVER);
        expect_one_owner(&network, &format!("seed {seed}, killed"));
    });
}

#[test]
fn a_gateway_that_is_killed_during_a_delay_is_replaced() {
    for machines in [2, 3, 5] {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled_on(seed, machines, ADDRESSES, |link| link.latency = ms(100));
            network.kill(0);
            network.run(ms(1_500));
            expect_one_owner(&network, &what);
            network.start(0);
            network.run(SETTLED);
            expect_one_owner(&network, &format!("{what}, restarted"));
        });
    }
}

/// A delay that has just ended, and gateways that start afresh: what was promised still holds.
#[test]
fn what_was_promised_during_a_delay_holds_after_it() {
    seeds(|seed| {
        let what = format!("seed {seed}");
        for time in 0..2 {
            let mut network = Network::settled_on(seed, 3, ADDRESSES, |link| link.latency = ms(150));
            network.set_links(|link| link.latency = ms(0));
            // Around the moment when what is promised gets shorter.
            let pause = 29_000 + network.below(32_000) * (time % 2);
            network.run(ms(pause));
            network.kill(1);
            network.start(1);
            let pause = network.below(400);
            network.run(ms(pause));
            network.split(|n| n.min(1));
            network.run(ms(5_000));
            assert_eq!(network.judge.overlap(), Duration::ZERO, "{what}, time {time}");
        }
    });
}
