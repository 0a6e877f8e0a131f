//! Gateways on a simulated network: who owns an address under faults of links, processes and clocks.
//!
//! Two owners: two processes announce an address at the same time, by the clock of the simulation. A paused process does not count while it is
//! paused: the kernel takes its addresses away.
#![allow(clippy::unwrap_used)]

mod chaos;
mod delays;
mod faults;
mod figures;
mod gateway;
mod interfaces;
mod judge;
mod minority;
mod network;
mod operations;
mod staleness;

use std::time::Duration;

use network::Network;

/// How many networks each test builds.
const SEEDS: u64 = 10;
const ADDRESSES: u32 = 24;
const FAIL_AFTER: Duration = Duration::from_millis(350);
/// `fail_after` and two intervals.
const TAKEN_OVER: Duration = Duration::from_millis(550);
/// The hold-down, and time to hand over.
const RETURNED: Duration = Duration::from_millis(5_000 + 1_500);

/// Each address has exactly one owner, and never had two.
#[track_caller]
fn expect_one_owner(network: &Network, what: &str) {
    assert_eq!(network.judge.overlap(), Duration::ZERO, "{what}: two owners");
    assert!(network.judge.owned_once(), "{what}: {:?}", network.judge.owners());
}

fn seeds(test: impl Fn(u64)) {
    (0..SEEDS).for_each(test);
}
