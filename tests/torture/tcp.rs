//! Torture of the TCP relay.

use crate::connection::Connections;
use crate::road::{Road, Roads};
use crate::run::{Torture as _, by_kernel, count, directly, run, seed, through_a_gateway};
use crate::support::world::World;

#[test]
fn a_direct_connection_keeps_the_rules() {
    directly::<Connections>();
}

#[test]
fn through_sockets_nothing_else_is_seen_than_directly() {
    through_a_gateway::<Connections>("steering: never\n");
}

#[test]
fn through_steering_nothing_else_is_seen_than_directly() {
    through_a_gateway::<Connections>("steering: always\n");
}

#[test]
fn through_the_kernel_nothing_else_is_seen_than_directly() {
    by_kernel::<Connections>();
}

/// Test of the rules: most scripts succeed through HAProxy, otherwise no proxy could satisfy them.
#[test]
fn haproxy_keeps_most_rules() {
    let world = World::new(1);
    let _roads = Roads::new(&world, "steering: never\n");
    let scripts = count(Connections::SCRIPTS) / 4;
    let wrong = run::<Connections>(&world, &[Road::HaProxy], seed(), scripts, false);
    println!("HAProxy: {} of {scripts} scripts went wrong", wrong.count);
    assert!(wrong.count * 4 < scripts, "{} of {scripts}", wrong.count);
}
