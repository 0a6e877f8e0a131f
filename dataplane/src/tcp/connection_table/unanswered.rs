//! Connections that ended without a byte from their endpoint. An endpoint that accepts connections and resets them at once never has an
//! open one and would look idle to load comparisons, so each such connection counts for a moment longer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::select::Unanswered;
use crate::tcp::session::Session;

/// How long a connection counts after its end.
const COUNTS_FOR: Duration = Duration::from_secs(1);

/// Connections that still count, oldest first, each with the time until which it counts.
#[derive(Debug, Default)]
pub(super) struct UnansweredConnections(VecDeque<(Instant, Unanswered)>);

impl UnansweredConnections {
    /// Adds a connection that ends now.
    pub(super) fn add(&mut self, now: Instant, session: &Session) {
        self.0.extend(session.unanswered().map(|unanswered| (now + COUNTS_FOR, unanswered)));
    }

    /// Removes the connections that no longer count.
    pub(super) fn forget(&mut self, now: Instant) {
        while self.0.pop_front_if(|(until, _)| *until <= now).is_some() {}
    }

    /// Until when the first connection counts.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.front().map(|(until, _)| *until)
    }
}
