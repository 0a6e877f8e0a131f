//! What is done to gateways on purpose: leaving, upgrades, two of them with a tie-breaker, changes in the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sheave_announce::{Claim, Nodes, Presence};

use crate::network::{Network, ms};
use crate::{ADDRESSES, FAIL_AFTER, RETURNED, TAKEN_OVER, expect_one_owner, seeds};

fn leave(network: &mut Network, machine: usize) {
    network.act(machine, |gateway, clock| {
        gateway.membership.set_presence(Presence::Leaving);
        gateway.drive(clock)
    });
}

/// Ends, whether others take over or not.
fn end(network: &mut Network, machine: usize) {
    network.act(machine, |gateway, clock| {
        gateway.membership.set_presence(Presence::Ending);
        gateway.drive(clock)
    });
}

#[test]
fn a_gateway_that_leaves_is_not_missed() {
    for machines in [2, 3, 5] {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled(seed, machines, ADDRESSES);
            leave(&mut network, 0);
            network.run(ms(150));
            expect_one_owner(&network, &what);
            assert!(network.gateway(0).announced.is_empty(), "{what}");
            // From its withdrawal until the heartbeat that reports it has arrived.
            assert!(network.judge.gap() <= ms(20), "{what}: nobody for {:?}", network.judge.gap());
            network.run(ms(200));
            network.kill(0);
            network.run(ms(10_000));
            expect_one_owner(&network, &what);
            assert!(network.judge.gap() <= ms(20), "{what}: nobody for {:?}", network.judge.gap());
        });
    }
}

#[test]
fn a_gateway_that_stays_after_all_gets_its_addresses_back() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        let own = network.gateway(0).announced.clone();
        leave(&mut network, 0);
        network.run(ms(2_000));
        network.act(0, |gateway, clock| {
            gateway.membership.set_presence(Presence::Staying);
            gateway.drive(clock)
        });
        network.run(ms(1_000));
        expect_one_owner(&network, &format!("seed {seed}"));
        assert_eq!(network.gateway(0).announced, own);
    });
}

#[test]
fn all_leave_one_after_the_other() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        for machine in 0..2 {
            leave(&mut network, machine);
            network.run(ms(300));
            network.kill(machine);
            network.run(ms(300));
            expect_one_owner(&network, &format!("seed {seed}, without {machine}"));
        }
        leave(&mut network, 2);
        network.run(ms(1_000));
        expect_one_owner(&network, &format!("seed {seed}, nobody is left to take over"));
        end(&mut network, 2);
        network.run(ms(100));
        assert!(network.judge.owned_by_nobody());
    });
}

#[test]
fn all_leave_together_and_serve_on() {
    for machines in [2, 3, 5] {
        for late in [1, 20, 400] {
            seeds(|seed| {
                let what = format!("{machines} machines, up to {late} ms apart, seed {seed}");
                let mut network = Network::settled(seed, machines, ADDRESSES);
                for machine in 0..machines {
                    leave(&mut network, machine);
                    let pause = network.below(late);
                    network.run(ms(pause));
                }
                network.run(ms(5_000));
                expect_one_owner(&network, &what);
                assert!(network.judge.gap() <= ms(50), "{what}: nobody for {:?}", network.judge.gap());
                // They end one after the other: the last one serves until then.
                for machine in 0..machines - 1 {
                    end(&mut network, machine);
                    network.run(ms(1_000));
                    expect_one_owner(&network, &format!("{what}, {machine} ended"));
                    assert!(network.judge.gap() <= ms(50), "{what}: nobody for {:?}", network.judge.gap());
                }
                end(&mut network, machines - 1);
                network.run(ms(1_000));
                assert!(network.judge.owned_by_nobody(), "{what}");
            });
        }
    }
}

#[test]
fn who_stays_takes_over_from_all_who_leave() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        for machine in 0..3 {
            leave(&mut network, machine);
        }
        network.run(ms(1_000));
        network.act(1, |gateway, clock| {
            gateway.membership.set_presence(Presence::Staying);
            gateway.drive(clock)
        });
        network.run(ms(1_000));
        expect_one_owner(&network, &format!("seed {seed}"));
        assert!(network.judge.gap() <= ms(50), "seed {seed}: nobody for {:?}", network.judge.gap());
        assert_eq!(network.gateway(1).announced.len(), ADDRESSES as usize, "seed {seed}");
    });
}

#[test]
fn an_upgrade_moves_nothing() {
    for machines in [1, 2, 3, 5] {
        seeds(|seed| {
            let what = format!("{machines} machines, seed {seed}");
            let mut network = Network::settled(seed, machines, ADDRESSES);
            for machine in 0..machines {
                network.upgrade(machine);
                let pause = network.below(3_000);
                network.run(ms(pause));
            }
            network.run(ms(2_000));
            expect_one_owner(&network, &what);
            assert_eq!(network.judge.gap(), Duration::ZERO, "{what}");
            assert_eq!(network.judge.moves(), 0, "{what}");
        });
    }
}

#[test]
fn a_gateway_dies_during_an_upgrade() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        network.upgrade(0);
        let pause = network.below(400);
        network.run(ms(pause));
        network.kill(1);
        network.run(ms(1_200));
        expect_one_owner(&network, &format!("seed {seed}"));
    });
}

#[test]
fn of_two_gateways_the_tie_breaker_decides() {
    seeds(|seed| {
        let mut network = Network::two(seed, true, ADDRESSES);
        network.kill(1);
        network.run(TAKEN_OVER);
        expect_one_owner(&network, &format!("seed {seed}"));
        network.start(1);
        network.run(RETURNED);
        expect_one_owner(&network, &format!("seed {seed}, restarted"));
    });
}

#[test]
fn of_two_gateways_one_ends_and_is_not_missed_when_it_is_back() {
    for latency in [ms(0), ms(20), ms(60)] {
        seeds(|seed| {
            let what = format!("seed {seed}, {latency:?} one way");
            let mut network = Network::two(seed, true, ADDRESSES);
            network.set_links(|link| link.latency += latency);
            network.run(ms(40_000));
            let fences = |network: &Network| network.gateway(0).membership.counters().fences;
            let before = fences(&network);
            leave(&mut network, 1);
            network.run(ms(2_000));
            network.kill(1);
            network.run(ms(3_000));
            network.start(1);
            // A process that has just started may be slow.
            let slow = network.below(400);
            network.hold(ms(slow), |_, to| to == 1);
            network.run(RETURNED);
            expect_one_owner(&network, &what);
            assert_eq!(fences(&network), before, "{what}: the other one gave up its addresses");
        });
    }
}

#[test]
fn of_two_gateways_that_are_apart_the_one_with_the_tie_breaker_goes_on() {
    seeds(|seed| {
        let mut network = Network::two(seed, true, ADDRESSES);
        network.split(|n| n);
        network.set_router(1, false);
        network.run(TAKEN_OVER);
        expect_one_owner(&network, &format!("seed {seed}"));
        assert!(network.gateway(1).announced.is_empty());
    });
}

/// The second gateway does not hear the first, which hears it; both reach the router.
#[test]
fn of_two_gateways_the_one_that_is_not_heard_gives_up() {
    for loss in [0.0, 0.3] {
        seeds(|seed| {
            let what = format!("seed {seed}, loss {loss}");
            let mut network = Network::two(seed, true, ADDRESSES);
            let own = network.gateway(0).announced.len();
            network.set_link(0, 1, |link| link.up = false);
            network.set_link(1, 0, |link| link.loss = loss);
            network.run(ms(60_000));
            // With loss, the other one may have taken all before this one hears of it.
            let most = if loss > 0.0 { FAIL_AFTER } else { Duration::ZERO };
            let overlap = network.judge.overlap();
            assert!(overlap <= most, "{what}: two owners for {overlap:?}");
            network.judge_from_now();
            network.run(ms(60_000));
            expect_one_owner(&network, &what);
            assert!(network.gateway(0).announced.is_empty(), "{what}");
            assert_eq!(network.judge.moves(), 0, "{what}");
            network.set_links(|link| (link.up, link.loss) = (true, 0.0));
            network.run(RETURNED);
            expect_one_owner(&network, &format!("{what}, healed"));
            assert_eq!(network.judge.moves(), own, "{what}");
        });
    }
}

#[test]
fn of_two_gateways_the_one_that_is_not_heard_goes_on_where_the_other_cannot() {
    seeds(|seed| {
        for dies in [true, false] {
            let what = format!("seed {seed}, dies {dies}");
            let mut network = Network::two(seed, true, ADDRESSES);
            network.set_link(0, 1, |link| link.up = false);
            network.run(ms(2_000));
            if dies {
                network.kill(1);
            } else {
                network.set_router(1, false);
            }
            network.run(ms(3_000));
            expect_one_owner(&network, &what);
            assert!(!network.gateway(0).announced.is_empty(), "{what}");
        }
    });
}

#[test]
fn heavy_loss_between_two_gateways_moves_little() {
    seeds(|seed| {
        let mut network = Network::two(seed, true, ADDRESSES);
        network.set_links(|link| link.loss = 0.3);
        network.run(ms(60_000));
        let (moves, gap) = (network.judge.moves(), network.judge.gap());
        assert!(moves <= 2 * ADDRESSES as usize, "seed {seed}: {moves} moves");
        assert!(gap <= FAIL_AFTER, "seed {seed}: {gap:?} without an owner");
        let overlap = network.judge.overlap();
        assert!(overlap <= FAIL_AFTER, "seed {seed}: two owners for {overlap:?}");
    });
}

#[test]
fn of_two_gateways_without_a_tie_breaker_the_other_waits_for_the_api_server() {
    seeds(|seed| {
        let mut network = Network::two(seed, false, ADDRESSES);
        network.kill(1);
        network.run(ms(2_000));
        assert!(network.judge.owned_by_nobody());
        network.set_ready(1, false);
        network.run(ms(800));
        expect_one_owner(&network, &format!("seed {seed}"));
    });
}

#[test]
fn what_the_api_server_does_not_list_yet_counts() {
    seeds(|seed| {
        let mut network = Network::new(seed, 3, ADDRESSES);
        network.unlist(2);
        network.start_all();
        network.run(ms(10_000));
        expect_one_owner(&network, &format!("seed {seed}"));
        assert!(!network.gateway(2).announced.is_empty());
        network.split(|n| n.min(1));
        network.run(TAKEN_OVER);
        expect_one_owner(&network, &format!("seed {seed}, split"));
        assert!(network.gateway(0).announced.is_empty());
    });
}

/// Each address goes to another node, which every gateway learns at another time.
#[test]
fn claims_that_arrive_at_different_times_make_no_second_owner() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        for round in 0..6 {
            let nodes = |address: &IpAddr| -> BTreeSet<Arc<str>> {
                let sum = usize::from(*address.to_string().as_bytes().last().unwrap());
                BTreeSet::from([Arc::from(format!("node-{}", (sum + round) % 3))])
            };
            let claim = |address: &IpAddr| Claim { nodes: Nodes::Only(nodes(address)), ..Claim::default() };
            let claims: BTreeMap<IpAddr, Claim> =
                network.claims().keys().map(|address| (*address, claim(address))).collect();
            let claims = Arc::new(claims);
            for machine in 0..3 {
                network.set_claims(machine, claims.clone());
                let late = network.below(200);
                network.run(ms(late));
            }
            network.run(ms(100));
            expect_one_owner(&network, &format!("seed {seed}, round {round}"));
        }
    });
}
