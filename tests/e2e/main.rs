//! End-to-end tests: the real binary between real hosts, judged by the bytes and errors that clients and servers see.
//!
//! Each case runs once per address family. Hosts are network namespaces, so the tests need root, or a user namespace:
//! `tests/run` arranges for either.

#[macro_use]
extern crate sheave_test_support as support;

#[cfg(test)]
mod admin;
#[cfg(test)]
mod balancing;
#[cfg(test)]
mod caps;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod client_source;
#[cfg(test)]
mod connection_log;
#[cfg(test)]
mod datagrams;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod diff;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod explain;
#[cfg(test)]
mod fleet_affinity;
#[cfg(test)]
mod fleet_drain;
#[cfg(test)]
mod fleet_edits;
#[cfg(test)]
mod fleet_outage;
#[cfg(test)]
mod fleet_overlap;
#[cfg(test)]
mod fleet_shares;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod forwarded;
mod hardening;
#[cfg(test)]
mod health;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod lame_duck;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod max_age;
#[cfg(test)]
mod outliers;
#[cfg(test)]
mod overload;
#[cfg(test)]
mod pipes;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod proxy_protocol;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod removal;
#[cfg(test)]
mod retirement;
#[cfg(test)]
mod source_ranges;
#[cfg(test)]
mod status;
#[cfg(test)]
mod steering;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod system_calls;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod top;
#[cfg(test)]
mod watch;
