//! What changed between two routing tables, frontend by frontend. Pure; decides nothing.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use super::RoutingTable;
use crate::{Frontend, FrontendAddr};

/// What happened to one frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Change {
    /// Was not there before.
    Added,
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

/// Compares two tables; the answer names every frontend of either that is not the same value in both, sorted by address.
/// What the tables share is passed over in parts, and of other frontends that kept their `Arc` not even the address is read.
pub fn diff(old: &RoutingTable, new: &RoutingTable) -> Vec<FrontendChange> {
    let [before, after] = old.frontends().unshared(new.frontends());
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    let mut changes = Vec::new();
    loop {
        while let (Some(was), Some(is)) = (before.peek(), after.peek())
            && Arc::ptr_eq(was, is)
        {
            before.next();
            after.next();
        }
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
            (None, _) => Some(Change::Added),
            (_, None) => Some(Change::Removed),
        };
        let changed = was.or(is).zip(change);
        changes.extend(changed.map(|(any, change)| FrontendChange {
            addr: any.addr,
            change,
            frontend: is.cloned(),
        }));
    }
}

/// None if they are the same value, whether or not it is the same allocation.
fn compare(was: &Arc<Frontend>, is: &Arc<Frontend>) -> Option<Change> {
    if was == is {
        None
    } else if was.has_endpoints() && !is.has_endpoints() {
        Some(Change::Emptied)
    } else {
        Some(Change::Changed)
    }
}
