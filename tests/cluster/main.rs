//! Cluster tests: the real binary with an API server, judged by what the server holds and what clients reach. They run
//! with the test API server, or with the real cluster of `SHEAVE_TEST_KUBECONFIG`.
//!
//! Hosts are network namespaces, so the tests need root or a user namespace; `tests/run` arranges for either.

#![cfg(test)]

use sheave_test_support as support;

mod all_gateways;
mod announce_policy;
mod announced;
mod clock_steps;
mod crash;
mod departures;
mod fleet_export;
mod fleet_kit;
mod fleet_life;
mod fleet_outage;
mod fleet_rest;
mod fleet_rivals;
mod fleet_works;
mod gateway_access;
mod gateway_alone;
mod gateway_trouble;
mod kubelet;
mod leadership;
mod life_cycle;
mod metrics_access;
mod neighbours;
mod node_addresses;
mod outage_definition;
mod outage_faults;
mod outage_guard;
mod outage_kit;
mod outage_server;
mod outage_snapshot;
mod outage_watch;
mod pools;
mod reporter;
mod reports;
mod requests;
mod rest;
mod rights;
mod rivals;
mod rollout;
mod scene;
mod sharing;
mod stage;
mod starts;
mod traces;
mod uninstall;
