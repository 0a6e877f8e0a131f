//! End-to-end tests: the real binary between real hosts, judged by the bytes and errors that clients and servers see.
//!
//! Each case runs once per address family. Hosts are network namespaces, so the tests need root or a user namespace;
//! `tests/run` arranges for either.

#![cfg(test)]

#[macro_use]
extern crate sheave_test_support as support;

mod admin;
mod balancing;
mod caps;
mod changes;
mod client_source;
mod connection_log;
mod datagrams;
mod demo;
mod diff;
mod endings;
mod events;
mod explain;
mod fleet_affinity;
mod fleet_drain;
mod fleet_edits;
mod fleet_outage;
mod fleet_overlap;
mod fleet_shares;
mod flood;
mod forwarded;
mod gateway_api;
mod gateway_tls;
mod hardening;
mod health;
mod idle;
mod kernel_path;
mod kinds;
mod kit;
mod lame_duck;
mod limits;
mod max_age;
mod outliers;
mod overload;
mod pipes;
mod policies;
mod programs;
mod proxy_protocol;
mod refused;
mod reload;
mod removal;
mod replay;
mod retirement;
mod source_ranges;
mod status;
mod steering;
mod streams;
mod system_calls;
mod takeover;
mod top;
mod trace;
mod watch;
