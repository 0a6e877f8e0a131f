//! What changed between two routing tables, frontend by frontend. Pure; decides nothing.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use super::RoutingTable;
use crate::model::{Frontend, FrontendAddr};

/// What happened to one frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Change {
    /// Was not there before.
    Added,
    /// Is the same value, whether or not it is the same allocation.
    Unchanged,
    /// Differs, and still has endpoints (or never had any).
    Changed,
    /// Differs, and lost its last endpoint: it stays, but takes no new traffic.
    Emptied,
    /// Is gone.
    Removed,
}

/// One frontend's change, with the value it has now; `None` for [`Change::Removed`].
#[derive(Clone, Debug)]
pub struct FrontendChange {
    /// Which frontend.
    pub addr: FrontendAddr,
    /// What happened to it.
    pub change: Change,
    /// Its present value.
    pub frontend: Option<Arc<Frontend>>,
}

/// Compares two tables; the answer names every frontend of either, sorted by address. O(old + new).
pub fn diff(old: &RoutingTable, new: &RoutingTable) -> Vec<FrontendChange> {
    let (mut before, mut after) = (old.frontends().iter().peekable(), new.frontends().iter().peekable());
    let mut changes = Vec::with_capacity(new.frontends().len());
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.addr.cmp(&new.addr),
        };
        let was = if order == Ordering::Greater { None } else { before.next() };
        let is = if order == Ordering::Less { None } else { after.next() };
        let change = match (was, is) {
            (Some(was), Some(is)) => compare(was, is),
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
        };
        changes.extend(was.or(is).map(|any| FrontendChange {
            addr: any.addr,
            change,
            frontend: is.cloned(),
        }));
    }
}

fn compare(was: &Arc<Frontend>, is: &Arc<Frontend>) -> Change {
    if Arc::ptr_eq(was, is) || was == is {
        Change::Unchanged
    } else if was.has_endpoints() && !is.has_endpoints() {
        Change::Emptied
    } else {
        Change::Changed
    }
}
