//! Torture of UDP.

use crate::datagrams::Exchanges;
use crate::run::{by_kernel, directly, through_a_gateway};

#[test]
fn a_direct_exchange_keeps_the_rules() {
    directly::<Exchanges>();
}

#[test]
fn through_sockets_nothing_else_arrives_than_directly() {
    through_a_gateway::<Exchanges>("steering: never\n");
}

#[test]
fn through_steering_nothing_else_arrives_than_directly() {
    through_a_gateway::<Exchanges>("steering: always\n");
}

#[test]
fn through_the_kernel_nothing_else_arrives_than_directly() {
    by_kernel::<Exchanges>();
}
