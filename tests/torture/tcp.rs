//! Torture of the TCP relay.

use crate::connection::Connections;
use crate::road::{Road, Roads, Source};
use crate::run::{count, run, seed};
use crate::support::patience::{eventually_within, patience};
use crate::support::world::World;

/// Number of scripts through the gateway with sockets, with steering, and by the kernel.
const SCRIPTS: usize = 1000;

fn expect_nothing_wrong(world: &World, roads: &[Road], count: usize) {
    let seed = seed();
    let wrong = run::<Connections>(world, roads, seed, count, true);
    if let Some(first) = wrong.first {
        panic!("{first}");
    }
}

/// Test of the rules: the kernel itself violates none.
#[test]
fn a_direct_connection_keeps_the_rules() {
    let world = World::new(1);
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        world.gateway.sysctl(name, "1");
    }
    expect_nothing_wrong(&world, &[Road::Direct], count(SCRIPTS) / 2);
}

#[test]
fn through_sockets_nothing_else_is_seen_than_directly() {
    through_a_gateway("steering: never\n");
}

#[test]
fn through_steering_nothing_else_is_seen_than_directly() {
    through_a_gateway("steering: always\n");
}

#[test]
fn through_the_kernel_nothing_else_is_seen_than_directly() {
    let world = World::new(1);
    let _roads = Roads::by_kernel(&world);
    expect_nothing_wrong(&world, &Source::OF_KERNEL.map(Road::Gateway), count(SCRIPTS));
}

fn through_a_gateway(steering: &'static str) {
    let world = World::new(1);
    let roads = Roads::new(&world, steering);
    let before = roads.gateway.open_files();
    expect_nothing_wrong(&world, &Source::ALL.map(Road::Gateway), count(SCRIPTS));
    eventually_within(patience(5.0), "nothing is left of the connections", || {
        let (open, files) = (roads.gateway.metric("sheave_tcp_connections", &[]), roads.gateway.open_files());
        if open == 0.0 && files <= before {
            Ok(())
        } else {
            Err(format!("{open} connections, {files} files"))
        }
    });
    let opened = roads.gateway.metric("sheave_tcp_connections_total", &[]);
    let closed = roads.gateway.metric("sheave_tcp_closed_total", &[]);
    assert_eq!(opened, closed, "every connection is counted once at either end");
}

/// Test of the rules: most scripts succeed through HAProxy, otherwise no proxy could satisfy them.
#[test]
fn haproxy_keeps_most_rules() {
    let world = World::new(1);
    let _roads = Roads::new(&world, "steering: never\n");
    let scripts = count(SCRIPTS) / 4;
    let wrong = run::<Connections>(&world, &[Road::HaProxy], seed(), scripts, false);
    println!("HAProxy: {} of {scripts} scripts went wrong", wrong.count);
    assert!(wrong.count * 4 < scripts, "{} of {scripts}", wrong.count);
}
