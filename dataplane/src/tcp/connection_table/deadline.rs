//! How connections end at a deadline of any kind: with FIN at rest, which clients with a connection pool expect, otherwise with RST, since
//! FIN would make half a response look complete.

use std::time::Duration;

use super::{Connection, ConnectionState, ConnectionTable, Tick, ticks};
use crate::counters::CloseReason;
use crate::worker::token::Key;

/// Time without traffic after which a response counts as complete.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

impl Connection {
    /// Whether both peers have received everything, may send more, and have not for a moment.
    pub(super) fn rests(&self, now: Tick) -> bool {
        match &self.state {
            ConnectionState::Relaying(relay, _) => {
                self.moved.elapsed(now) >= ticks(PAUSE) && relay.is_at_rest()
            }
            ConnectionState::Setup(_) | ConnectionState::Changing => false,
        }
    }

    /// Makes the sockets close with RST unless the connection is at rest.
    pub(super) fn time_is_over(&self, now: Tick) {
        if let ConnectionState::Relaying(relay, _) = &self.state
            && !self.rests(now)
        {
            relay.cut();
        }
    }
}

impl ConnectionTable {
    /// Ends a connection at a deadline.
    pub(super) fn end_in_time(&mut self, key: Key, now: Tick, reason: CloseReason) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.time_is_over(now);
        }
        self.end(key, reason);
    }
}
