//! Cluster tests: the real binary against an API server, judged by what the server holds and what clients reach. They run
//! against the test API server, or against the real cluster that `SHEAVE_TEST_KUBECONFIG` names.
//!
//! Hosts are network namespaces, so the tests need root, or a user namespace: `tests/run` arranges for either.

use sheave_test_support as support;

#[cfg(test)]
mod all_gateways;
#[cfg(test)]
mod announce_policy;
#[cfg(test)]
mod announced;
#[cfg(test)]
mod clock_steps;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod departures;
#[cfg(test)]
mod fleet_export;
#[cfg(test)]
mod fleet_kit;
#[cfg(test)]
mod fleet_life;
#[cfg(test)]
mod fleet_outage;
#[cfg(test)]
mod fleet_rest;
#[cfg(test)]
mod fleet_rivals;
#[cfg(test)]
mod fleet_works;
#[cfg(test)]
mod gateway_access;
#[cfg(test)]
mod gateway_alone;
#[cfg(test)]
mod gateway_trouble;
#[cfg(test)]
mod kubelet;
#[cfg(test)]
mod leadership;
#[cfg(test)]
mod life_cycle;
#[cfg(test)]
mod metrics_access;
#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod node_addresses;
#[cfg(test)]
mod outage_definition;
#[cfg(test)]
mod outage_faults;
#[cfg(test)]
mod outage_guard;
#[cfg(test)]
mod outage_kit;
#[cfg(test)]
mod outage_server;
#[cfg(test)]
mod outage_snapshot;
#[cfg(test)]
mod outage_watch;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod reporter;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod rivals;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod uninstall;
