//! Dashboards and alerts of `deploy/monitoring`, against a real Prometheus that scrapes a real gateway and controller.
//!
//! Hosts are network namespaces, so the tests need root, or a user namespace: `tests/run` arranges for either.

use sheave_test_support as support;

#[cfg(test)]
#[path = "../cluster/stage.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod stage;

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod dashboards;
#[cfg(test)]
mod exposition;
#[cfg(test)]
mod prometheus;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod timing;
