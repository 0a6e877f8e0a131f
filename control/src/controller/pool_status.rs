//! The desired status of an AddressPool. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::conditions::{DesiredCondition, sentences};
use crate::api::address_pool::{AddressPool, AddressPoolStatus};
use crate::api::problem::Problem;

/// The pool's condition, and its reason when it is true.
pub const READY: &str = "Ready";
/// The condition's reason when some of the spec cannot be used.
pub const INVALID: &str = "Invalid";

/// How many addresses of a pool are used and free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Of the AddressPool.
    pub name: Arc<str>,
    /// Addresses that Services have.
    pub used: i64,
    /// Addresses that can still be given.
    pub free: i64,
}

/// What the status of each pool counts; nothing for those that have none yet.
pub fn counts(pools: &BTreeMap<Arc<str>, Arc<AddressPool>>) -> Vec<PoolCounts> {
    let of = |(name, pool): (&Arc<str>, &Arc<AddressPool>)| {
        let status = pool.status.as_ref()?;
        Some(PoolCounts { name: name.clone(), used: status.used, free: status.free })
    };
    pools.iter().filter_map(of).collect()
}

/// The status of a pool with these numbers of used and free addresses, and these `problems`.
pub fn of(
    pool: &AddressPool,
    used: i64,
    free: i64,
    problems: &[Problem],
    now: Timestamp,
) -> AddressPoolStatus {
    let condition = if problems.is_empty() {
        DesiredCondition::yes(READY, READY, "Every entry can be used.".into())
    } else {
        DesiredCondition::no(READY, INVALID, sentences(problems.iter()))
    };
    let before = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let condition = condition.stamped(before, pool.metadata.generation, now);
    AddressPoolStatus { used, free, conditions: vec![condition] }
}

#[cfg(test)]
mod tests;
