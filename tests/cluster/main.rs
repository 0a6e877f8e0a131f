//! Cluster tests: the real binary against an API server, judged by what the server holds and what clients reach. They run
//! against the test API server, or against the real cluster that `SHEAVE_TEST_KUBECONFIG` names.
//!
//! Hosts are network namespaces, so the tests need root, or a user namespace: `tests/run` arranges for either.

#[cfg(test)]
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the kit serves several test programs; each uses a part of it")]
mod support;

#[cfg(test)]
mod life_cycle;
#[cfg(test)]
mod stage;
