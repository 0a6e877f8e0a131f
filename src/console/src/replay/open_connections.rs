//! Connections of the replay that have not ended, which least connections counts.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use sheave_dataplane::select::Picked;

/// Maximum number of open connections. Beyond it, those that would end first end early.
const MOST_OPEN: usize = 1 << 20;

/// Open connections by the time at which they end.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    open: BinaryHeap<CountedConnection>,
    /// Number of connections that ended early.
    pub(super) cut: u64,
}

/// A connection that counts as open at its endpoint until it is dropped.
#[derive(Debug)]
struct CountedConnection {
    end: i64,
    _picked: Picked,
}

impl OpenConnections {
    /// Adds a connection that ends at this time.
    pub(super) fn add(&mut self, end: i64, picked: Picked) {
        self.open.push(CountedConnection { end, _picked: picked });
        if self.open.len() > MOST_OPEN {
            self.open.pop();
            self.cut += 1;
        }
    }

    /// Ends the connections that have ended by this time.
    pub(super) fn end_until(&mut self, now: i64) {
        while self.open.peek().is_some_and(|next| next.end <= now) {
            self.open.pop();
        }
    }
}

/// The one that ends first is the greatest, as the heap takes the greatest first.
impl Ord for CountedConnection {
    fn cmp(&self, other: &Self) -> Ordering {
        other.end.cmp(&self.end)
    }
}

impl PartialOrd for CountedConnection {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for CountedConnection {
    fn eq(&self, other: &Self) -> bool {
        self.end == other.end
    }
}

impl Eq for CountedConnection {}
