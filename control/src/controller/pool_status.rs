//! What the status of an AddressPool says, and the write that makes it so. Pure. It must not know how writes are sent.

use jiff::Timestamp;
use serde_json::json;

use super::conditions::{Said, sentences};
use super::publication::Step;
use crate::address_pool::{API_VERSION, AddressPool, AddressPoolStatus, KIND};
use crate::problem::Problem;

/// The pool's condition, and its reason when it is true.
pub const READY: &str = "Ready";
/// The condition's reason when some of the spec cannot be used.
pub const INVALID: &str = "Invalid";

/// The status of a pool of which so many addresses are used and free, and about which `problems` are known.
pub fn of(
    pool: &AddressPool,
    used: i64,
    free: i64,
    problems: &[Problem],
    now: Timestamp,
) -> AddressPoolStatus {
    let said = if problems.is_empty() {
        Said::yes(READY, READY, "Every entry can be used.".into())
    } else {
        Said::no(READY, INVALID, sentences(problems.iter()))
    };
    let before = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let condition = said.stamped(before, pool.metadata.generation, now);
    AddressPoolStatus { used, free, conditions: vec![condition] }
}

/// The write that brings the pool to this status.
pub(super) fn next_step(pool: &AddressPool, desired: &AddressPoolStatus) -> Step {
    let metadata = &pool.metadata;
    if metadata.uid.is_none() || metadata.deletion_timestamp.is_some() || says(pool, desired) {
        return Step::Nothing;
    }
    Step::ApplyStatus(json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": metadata.name, "uid": metadata.uid},
        "status": desired,
    }))
}

/// Conditions of others are none of our business, and times say nothing new.
fn says(pool: &AddressPool, desired: &AddressPoolStatus) -> bool {
    let Some(status) = &pool.status else { return false };
    let stands = |wanted: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        status.conditions.iter().any(|condition| {
            condition.type_ == wanted.type_
                && condition.status == wanted.status
                && condition.reason == wanted.reason
                && condition.message == wanted.message
                && condition.observed_generation == wanted.observed_generation
        })
    };
    (status.used, status.free) == (desired.used, desired.free) && desired.conditions.iter().all(stands)
}

#[cfg(test)]
mod tests;
