//! Endurance tests: the real binary under steady load through upgrades, crashes and faults. Every request is counted, and every
//! failure is told with the time at which it happened.
//!
//! Each case has a short form for `tests/run` and a long one for `tests/soak` ([`scale`]), and prints one line of figures.

#[macro_use]
extern crate sheave_test_support as support;

#[cfg(test)]
#[path = "../../benches/scale/objects.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod objects;
#[cfg(test)]
#[path = "../cluster/stage.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod stage;

#[cfg(test)]
mod binaries;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod clock_steps;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod firewall;
#[cfg(test)]
mod flips;
#[cfg(test)]
mod haproxy;
#[cfg(test)]
mod links;
#[cfg(test)]
mod load;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod skew;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod standstill;
#[cfg(test)]
mod timeline;
#[cfg(test)]
mod town;
#[cfg(test)]
mod upgrades;
