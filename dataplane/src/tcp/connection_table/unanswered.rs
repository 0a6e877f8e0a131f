//! Connections that have ended without a byte from their endpoint. One that takes connections and resets them at once never has any open, and
//! would look idle to whoever compares loads: each of those counts for a moment longer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::select::Unanswered;
use crate::tcp::session::Session;

/// How long each counts.
const COUNTS_FOR: Duration = Duration::from_secs(1);

/// Those of the last moment, oldest first, and until when they count.
#[derive(Debug, Default)]
pub(super) struct UnansweredConnections(VecDeque<(Instant, Unanswered)>);

impl UnansweredConnections {
    /// This one ends.
    pub(super) fn add(&mut self, now: Instant, session: &Session) {
        self.0.extend(session.unanswered().map(|unanswered| (now + COUNTS_FOR, unanswered)));
    }

    /// Lets go of those that count no longer.
    pub(super) fn forget(&mut self, now: Instant) {
        while self.0.pop_front_if(|(until, _)| *until <= now).is_some() {}
    }

    /// When the first of them does not count any more.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.front().map(|(until, _)| *until)
    }
}
