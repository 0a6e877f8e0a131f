//! Tests of the dashboards and alerts of `deploy/monitoring`, with a real Prometheus that scrapes a real gateway and
//! controller.
//!
//! Hosts are network namespaces, so the tests need root or a user namespace; `tests/run` arranges for either.

#![cfg(test)]

use sheave_test_support as support;

#[path = "../cluster/stage.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod stage;

mod alerts;
mod cases;
mod dashboards;
mod exposition;
mod prometheus;
mod queries;
mod rules;
mod scene;
mod timing;
