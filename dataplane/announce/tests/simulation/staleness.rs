//! Gateways that have lost the API server: who goes second, and that all compute the same owners meanwhile, whenever their processes started.

use std::time::Duration;

use sheave_announce::Knowledge;

use crate::network::{Network, ms};
use crate::{ADDRESSES, RETURNED, expect_one_owner, seeds};

/// How long a gateway has to be cut off, and others not, until these go first; and time to hand over.
const SPLIT: Duration = Duration::from_secs(31);

fn set_cut_off(network: &mut Network, machine: usize, cut_off: bool) {
    network.act(machine, |gateway, clock| {
        gateway.membership.set_knowledge(if cut_off { Knowledge::Old } else { Knowledge::Current });
        gateway.drive(clock)
    });
}

/// Three gateways, the first of which has long lost the API server.
fn one_goes_second(seed: u64) -> Network {
    let mut network = Network::settled(seed, 3, ADDRESSES);
    set_cut_off(&mut network, 0, true);
    network.run(SPLIT);
    assert!(network.gateway(0).announced.is_empty(), "seed {seed}: others go first");
    network.judge_from_now();
    network
}

#[track_caller]
fn expect_nothing_moved(network: &Network, what: &str) {
    expect_one_owner(network, what);
    assert_eq!(network.judge.gap(), Duration::ZERO, "{what}: nobody");
    assert_eq!(network.judge.moves(), 0, "{what}");
}

#[test]
fn an_upgrade_moves_nothing_while_another_gateway_is_stale() {
    seeds(|seed| {
        let mut network = one_goes_second(seed);
        for machine in [1, 2] {
            network.upgrade(machine);
            network.run(ms(5_000));
            expect_nothing_moved(&network, &format!("seed {seed}, upgrade of {machine}"));
        }
    });
}

#[test]
fn a_gateway_that_crashed_is_back_while_another_one_is_stale() {
    seeds(|seed| {
        let what = format!("seed {seed}");
        let mut network = one_goes_second(seed);
        network.kill(1);
        network.run(ms(1_000));
        network.start(1);
        network.judge_from_now();
        network.run(RETURNED + ms(1_000));
        expect_one_owner(&network, &what);
        assert!(network.judge.gap() <= ms(20), "{what}: nobody for {:?}", network.judge.gap());
        assert!(network.gateway(0).announced.is_empty(), "{what}: others go first");
        assert!(!network.gateway(1).announced.is_empty(), "{what}");
    });
}

#[test]
fn an_outage_of_all_moves_nothing_however_they_notice_it() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        for cut_off in [true, false] {
            for machine in 0..3 {
                set_cut_off(&mut network, machine, cut_off);
                network.run(ms(20_000));
            }
            network.run(ms(60_000));
            expect_nothing_moved(&network, &format!("seed {seed}, cut off: {cut_off}"));
        }
    });
}

#[test]
fn who_lost_the_api_server_before_all_others_stays_second_and_returns_with_it() {
    seeds(|seed| {
        let mut network = one_goes_second(seed);
        for machine in [1, 2] {
            set_cut_off(&mut network, machine, true);
            network.run(ms(10_000));
        }
        expect_nothing_moved(&network, &format!("seed {seed}"));
        // A process that starts without the API server takes a while to count as cut off.
        network.kill(1);
        network.start(1);
        network.run(ms(25_000));
        set_cut_off(&mut network, 1, true);
        network.judge_from_now();
        network.run(ms(60_000));
        expect_nothing_moved(&network, &format!("seed {seed}, restarted"));
        let owns = [0, 1, 2].map(|machine| !network.gateway(machine).announced.is_empty());
        assert_eq!(owns, [false, true, true], "seed {seed}");
        set_cut_off(&mut network, 0, false);
        network.run(ms(1_000));
        expect_one_owner(&network, &format!("seed {seed}, back"));
        assert!(!network.gateway(0).announced.is_empty(), "seed {seed}: it goes first now");
    });
}

/// A gateway that lacks addresses would own some of them without announcing them.
#[test]
fn a_gateway_that_does_not_know_all_addresses_yet_owns_none_while_others_can() {
    seeds(|seed| {
        let what = format!("seed {seed}");
        let mut network = Network::settled(seed, 3, ADDRESSES);
        network.kill(2);
        network.run(ms(1_000));
        network.start(2);
        network.act(2, |gateway, clock| {
            gateway.membership.set_knowledge(Knowledge::Incomplete);
            gateway.drive(clock)
        });
        network.judge_from_now();
        network.run(RETURNED + ms(5_000));
        expect_nothing_moved(&network, &what);
        assert!(network.gateway(2).announced.is_empty(), "{what}");
        set_cut_off(&mut network, 2, false);
        network.run(ms(2_000));
        expect_one_owner(&network, &what);
        assert!(!network.gateway(2).announced.is_empty(), "{what}: it has its share once it knows all");
        // Where nobody knows all, what is known is shared as before.
        network.judge_from_now();
        for machine in 0..3 {
            network.act(machine, |gateway, clock| {
                gateway.membership.set_knowledge(Knowledge::Incomplete);
                gateway.drive(clock)
            });
        }
        network.run(ms(5_000));
        expect_one_owner(&network, &what);
        assert!((0..3).all(|machine| !network.gateway(machine).announced.is_empty()), "{what}");
    });
}
