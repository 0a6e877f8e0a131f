//! How connections end whose time is over, whatever time that is: by FIN at rest, where clients with a pool of connections expect it, else by
//! RST, since FIN would make half an answer look like a whole one.

use std::time::Duration;

use super::{Connection, ConnectionState, ConnectionTable, Tick, ticks};
use crate::counters::CloseReason;
use crate::worker::token::Key;

/// Nothing moves for so long: the answer is complete, in all likelihood.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

impl Connection {
    /// Whether both peers have got everything, may send more, and have not for a moment.
    pub(super) fn rests(&self, now: Tick) -> bool {
        match &self.state {
            ConnectionState::Relaying(relay, _) => {
                self.moved.elapsed(now) >= ticks(PAUSE) && relay.is_at_rest()
            }
            ConnectionState::Setup(_) | ConnectionState::Changing => false,
        }
    }

    /// Has both peers see how it ends.
    pub(super) fn time_is_over(&self, now: Tick) {
        if let ConnectionState::Relaying(relay, _) = &self.state
            && !self.rests(now)
        {
            relay.cut();
        }
    }
}

impl ConnectionTable {
    /// Ends a connection whose time is over.
    pub(super) fn end_in_time(&mut self, key: Key, now: Tick, reason: CloseReason) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.time_is_over(now);
        }
        self.end(key, reason);
    }
}
