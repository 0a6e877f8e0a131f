//! Connections in the order of their starts. A log has the order of their ends, so a window of connections waits for those that began
//! earlier and end later. One that outlasts the window comes late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::connection::ReplayedConnection;

/// Number of connections that wait: 40 MB, and minutes of a busy gateway.
pub(super) const WINDOW: usize = 1 << 18;

/// Connections that wait for earlier ones.
#[derive(Debug)]
pub(super) struct StartOrder {
    window: usize,
    /// Start, position in the log, and place in `waiting`.
    order: BinaryHeap<Reverse<(i64, u64, u32)>>,
    waiting: Vec<ReplayedConnection>,
    free: Vec<u32>,
    read: u64,
    last_start: i64,
    /// Number of connections that began before one that was taken earlier.
    pub(super) late: u64,
}

impl StartOrder {
    /// An empty window of this many connections.
    pub(super) fn new(window: usize) -> Self {
        Self {
            window,
            order: BinaryHeap::new(),
            waiting: Vec::new(),
            free: Vec::new(),
            read: 0,
            last_start: i64::MIN,
            late: 0,
        }
    }

    /// Adds the next connection of the log, and takes the one that began first if the window is full.
    pub(super) fn add(&mut self, connection: ReplayedConnection) -> Option<ReplayedConnection> {
        let place = self.free.pop().unwrap_or(self.waiting.len() as u32);
        match self.waiting.get_mut(place as usize) {
            Some(free) => *free = connection,
            None => self.waiting.push(connection),
        }
        self.order.push(Reverse((connection.start, self.read, place)));
        self.read += 1;
        if self.order.len() > self.window { self.take() } else { None }
    }

    /// Takes the connection that began first.
    pub(super) fn take(&mut self) -> Option<ReplayedConnection> {
        let Reverse((start, _, place)) = self.order.pop()?;
        self.free.push(place);
        self.late += u64::from(start < self.last_start);
        self.last_start = self.last_start.max(start);
        self.waiting.get(place as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;
    use sheave_model::FrontendSource;

    use super::*;
    use crate::replay::names::LoggedNames;

    fn connection(start: i64, end: i64) -> ReplayedConnection {
        let addr: SocketAddr = ([192, 0, 2, 1], 1).into();
        let route = LoggedNames::default().route((FrontendSource::Service, "a/b", ""), addr).unwrap();
        ReplayedConnection {
            route,
            client: addr,
            proxy: None,
            endpoint: None,
            asked: true,
            start,
            end,
            client_bytes: 0,
            endpoint_bytes: 0,
        }
    }

    proptest! {
        /// Late are exactly those that are taken after one that began later, and a window as long as the log has none.
        #[test]
        fn connections_come_in_the_order_of_their_starts(
            mut spans in prop::collection::vec((0..1000_i64, 0..300_i64), 0..200),
            window in 1..64_usize,
        ) {
            spans.sort_unstable_by_key(|(start, duration)| start + duration);
            for window in [window, spans.len()] {
                let mut order = StartOrder::new(window);
                let mut taken: Vec<i64> = Vec::new();
                for (start, duration) in &spans {
                    taken.extend(order.add(connection(*start, start + duration)).map(|it| it.start));
                }
                taken.extend(std::iter::from_fn(|| order.take()).map(|it| it.start));
                let mut latest = i64::MIN;
                let late = taken.iter().filter(|&&start| {
                    let late = start < latest;
                    latest = latest.max(start);
                    late
                }).count() as u64;
                prop_assert_eq!(taken.len(), spans.len());
                prop_assert_eq!(order.late, late);
                prop_assert!(window < spans.len() || late == 0);
                prop_assert!(order.waiting.len() <= window + 1);
            }
        }
    }
}
