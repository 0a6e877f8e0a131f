//! Gateways whose interface in the network of the addresses goes down, while heartbeats have another way.

use std::time::Duration;

use crate::network::{Network, ms};
use crate::{ADDRESSES, RETURNED, expect_one_owner, seeds};

/// From the loss until others announce: a heartbeat, and the answers to it.
const MOVED: Duration = Duration::from_millis(100);

#[test]
fn an_interface_that_goes_down_gives_its_addresses_to_others() {
    for machines in [2, 3, 5] {
        seeds(|seed| {
            let mut network = Network::settled(seed, machines, ADDRESSES);
            network.start_pings();
            (0..machines).for_each(|machine| network.set_router(machine, true));
            let own = network.gateway(0).announced.clone();
            network.set_interface(0, false);
            network.run(MOVED);
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}"));
            assert!(network.gateway(0).announced.is_empty());
            assert!(network.judge.gaps(&own).into_iter().all(|gap| gap <= MOVED));
            network.set_interface(0, true);
            network.run(ms(4_000));
            assert!(network.gateway(0).announced.is_empty(), "held down");
            network.run(RETURNED - ms(4_000));
            expect_one_owner(&network, &format!("{machines} machines, seed {seed}, back"));
            assert_eq!(network.gateway(0).announced, own);
            // Those who take over may have to give something of theirs to others, to stay within their share.
            let (moves, least) = (network.judge.moves(), 2 * own.len());
            assert!(
                (least..=least + 8).contains(&moves),
                "{machines} machines, seed {seed}: {moves} of {least}"
            );
        });
    }
}

#[test]
fn a_network_that_is_away_and_comes_back_moves_nothing() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        let interfaces = |network: &mut Network, up: bool| {
            for machine in 0..3 {
                let late = network.below(300);
                network.run(ms(late));
                network.set_interface(machine, up);
            }
        };
        let before = network.judge.owners();
        interfaces(&mut network, false);
        network.run(ms(30_000));
        expect_one_owner(&network, &format!("seed {seed}, away"));
        assert_eq!(network.judge.owners(), before, "seed {seed}: those who own answer as soon as they can");
        let moves = network.judge.moves();
        interfaces(&mut network, true);
        network.run(ms(10_000));
        expect_one_owner(&network, &format!("seed {seed}, back"));
        assert_eq!(network.judge.moves(), moves, "seed {seed}: all are back together");
    });
}

#[test]
fn who_does_not_hear_a_gateway_learns_from_others_what_it_can_announce() {
    for heard_before in [true, false] {
        seeds(|seed| {
            let mut network = Network::new(seed, 4, ADDRESSES);
            network.set_link(1, 0, |link| link.up = heard_before);
            network.start_all();
            network.run(ms(15_000));
            expect_one_owner(&network, &format!("seed {seed}, heard {heard_before}"));
            network.set_link(1, 0, |link| link.up = false);
            network.run(ms(2_000));
            network.set_interface(1, false);
            // Gateway 0 cannot see that 1 has let go: it waits for twice `fail_after`.
            network.run(MOVED + ms(700));
            expect_one_owner(&network, &format!("seed {seed}, heard {heard_before}, down"));
            assert!(network.gateway(1).announced.is_empty());
        });
    }
}

#[test]
fn an_interface_that_flaps_moves_little() {
    seeds(|seed| {
        let mut network = Network::settled(seed, 3, ADDRESSES);
        let own = network.gateway(0).announced.len();
        // For five minutes, 1 s down and 9 s up.
        for _ in 0..30 {
            network.set_interface(0, false);
            network.run(ms(1_000));
            network.set_interface(0, true);
            network.run(ms(9_000));
        }
        assert_eq!(network.judge.overlap(), Duration::ZERO, "seed {seed}");
        // Away, back after 5 s, and away again; 10 s are too long for it to come back.
        assert!(
            network.judge.moves() <= 3 * own + 9,
            "seed {seed}: {} moves of {own}",
            network.judge.moves()
        );
        network.run(ms(65_000));
        expect_one_owner(&network, &format!("seed {seed}, at rest"));
        assert_eq!(network.gateway(0).announced.len(), own);
    });
}
