//! Desired status of an AddressPool, without I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::conditions::sentences;
use crate::api::address_pool::{AddressPool, AddressPoolStatus};
use crate::api::condition::DesiredCondition;
use crate::api::problem::Problem;

/// Condition type of a pool, and its reason if true.
pub const READY: &str = "Ready";
/// Reason of the condition if part of the spec is unusable.
pub const INVALID: &str = "Invalid";

/// Usage of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Name of the AddressPool.
    pub name: Arc<str>,
    /// Number of addresses that Services have.
    pub used: i64,
    /// Number of addresses that are still free.
    pub free: i64,
}

/// Usage from the status of each pool, without pools that have no status yet.
pub fn pool_counts(pools: &BTreeMap<Arc<str>, Arc<AddressPool>>) -> Vec<PoolCounts> {
    let of = |(name, pool): (&Arc<str>, &Arc<AddressPool>)| {
        let status = pool.status.as_ref()?;
        Some(PoolCounts { name: name.clone(), used: status.used, free: status.free })
    };
    pools.iter().filter_map(of).collect()
}

/// The status of a pool with this usage and these `problems`.
pub fn pool_status(
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
