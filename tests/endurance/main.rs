//! Endurance tests: the real binary under steady load through upgrades, crashes and faults. Every request is counted, and every
//! failure is reported with its time.
//!
//! Each case has a short form for `tests/run` and a long one for `tests/soak` ([`scale`]), and prints one line of figures.

#![cfg(test)]

#[macro_use]
extern crate sheave_test_support as support;

#[path = "../../benches/scale/objects.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod objects;
#[path = "../cluster/stage.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod stage;

mod binaries;
mod clients;
mod clock_steps;
mod crashes;
mod firewall;
mod flips;
mod haproxy;
mod links;
mod load;
mod scale;
mod servers;
mod skew;
mod soak;
mod standstill;
mod timeline;
mod town;
mod upgrades;
