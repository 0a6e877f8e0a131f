//! What the status of an AddressPool says, and the write that makes it so. Pure. It must not know how writes are sent.

use jiff::Timestamp;

use super::conditions::{DesiredCondition, sentences};
use crate::api::address_pool::{AddressPool, AddressPoolStatus};
use crate::api::problem::Problem;

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
        DesiredCondition::yes(READY, READY, "Every entry can be used.".into())
    } else {
        DesiredCondition::no(READY, INVALID, sentences(problems.iter()))
    };
    let before = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let condition = said.stamped(before, pool.metadata.generation, now);
    AddressPoolStatus { used, free, conditions: vec![condition] }
}

#[cfg(test)]
mod tests;
