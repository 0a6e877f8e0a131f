//! Relay: both directions of one connection until it ends. A half-close is preserved, and a reset on one side becomes a reset
//! on the other.

use std::io;

use super::idle_clock::{IdleClock, Tick};
use super::splice::{Direction, DirectionState, RelayBuffers, Side, SideError};
use super::stream::Stream;
use crate::counters::{CloseReason, TcpCounters};
use crate::sys::epoll::Readiness;

/// Party of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Client,
    Endpoint,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum RelayState {
    /// Waits for an event.
    Waits,
    /// Has more to move, but other connections come first.
    BudgetSpent,
    /// Both streams may be closed.
    Ended(CloseReason),
}

/// Bytes moved in one turn: from the client, and from the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) up: u64,
    pub(super) down: u64,
}

/// A connection between a client and an endpoint. Dropping it closes both sockets.
#[derive(Debug)]
pub(super) struct Relay {
    client: Stream,
    endpoint: Stream,
    upload: Direction,
    download: Direction,
    idle: IdleClock,
}

impl Relay {
    /// Creates a relay; `upload` is the direction from client to endpoint, which may already hold bytes.
    pub(super) fn new(client: Stream, endpoint: Stream, upload: Direction, idle: IdleClock) -> Self {
        Self { client, endpoint, upload, download: Direction::new(), idle }
    }

    /// Applies an event of one peer's socket.
    pub(super) fn on_ready(&mut self, peer: Peer, readiness: Readiness) {
        match peer {
            Peer::Client => self.client.on_ready(readiness),
            Peer::Endpoint => self.endpoint.on_ready(readiness),
        }
    }

    /// Moves the bytes that can be moved now, in both directions, until both have ended or one side breaks. Also returns
    /// their number.
    pub(super) fn advance(&mut self, buffers: &RelayBuffers, counters: &TcpCounters) -> (RelayState, Moved) {
        let before = (self.upload.moved(), self.download.moved());
        let outcome = self.advance_both(buffers);
        self.endpoint.acknowledge();
        let (up, down) = (self.upload.moved() - before.0, self.download.moved() - before.1);
        counters.add_bytes(up, down);
        let relayed = outcome.unwrap_or_else(|(peer, error)| {
            tracing::debug!(%error, ?peer, "connection broke");
            RelayState::Ended(self.reset_other(peer))
        });
        (relayed, Moved { up, down })
    }

    fn advance_both(&mut self, buffers: &RelayBuffers) -> Result<RelayState, (Peer, io::Error)> {
        let mut budget_spent = false;
        for (from, to) in [(Peer::Client, Peer::Endpoint), (Peer::Endpoint, Peer::Client)] {
            match self.advance_from(from, buffers) {
                Ok(advanced) => budget_spent |= advanced == DirectionState::BudgetSpent,
                Err(SideError { side: Side::From, error }) => return Err((from, error)),
                Err(SideError { side: Side::To, error }) => {
                    self.deliver_last_bytes(to, buffers);
                    return Err((to, error));
                }
            }
        }
        let Self { client, endpoint, upload, download, .. } = self;
        // A direction that reads detects a reset with the read.
        if !upload.reads()
            && let Some(error) = client.take_error()
        {
            return Err((Peer::Client, error));
        }
        if !download.reads()
            && let Some(error) = endpoint.take_error()
        {
            return Err((Peer::Endpoint, error));
        }
        Ok(match budget_spent {
            _ if upload.is_over() && download.is_over() => RelayState::Ended(CloseReason::Finished),
            true => RelayState::BudgetSpent,
            false => RelayState::Waits,
        })
    }

    /// Advances the direction in which this peer sends, unless it is over.
    fn advance_from(&mut self, sender: Peer, buffers: &RelayBuffers) -> Result<DirectionState, SideError> {
        let Self { client, endpoint, upload, download, .. } = self;
        match sender {
            Peer::Client if upload.is_over() => Ok(DirectionState::Over),
            Peer::Client => upload.advance(client, endpoint, buffers, download.is_over()),
            Peer::Endpoint if download.is_over() => Ok(DirectionState::Over),
            Peer::Endpoint => download.advance(endpoint, client, buffers, upload.is_over()),
        }
    }

    /// Delivers what a peer had sent before a write showed that it is gone: that can still be read, and the other side gets
    /// as much of it as it accepts now. An HTTP server, for example, may reject a request before it has received all of it.
    fn deliver_last_bytes(&mut self, gone: Peer, buffers: &RelayBuffers) {
        let Self { client, endpoint, upload, download, .. } = self;
        let (direction, from, to) = match gone {
            Peer::Client => (upload, client, endpoint),
            Peer::Endpoint => (download, endpoint, client),
        };
        // No FIN, since a reset follows. The loop ends, since no more data arrives.
        while matches!(direction.advance(from, to, buffers, true), Ok(DirectionState::BudgetSpent)) {}
    }

    /// Whether it has been idle for longer than its timeout.
    pub(super) fn is_idle(&mut self, now: Tick) -> bool {
        self.client.age();
        self.endpoint.age();
        let moved = self.moved();
        let Self { client, endpoint, idle, .. } = self;
        // A peer that reads buffered data from its own kernel, or from this one, is not idle even if nothing is relayed.
        let taken = || client.taken_by_peer().wrapping_add(endpoint.taken_by_peer());
        let heard = || [client.heard_from_peer(), endpoint.heard_from_peer()];
        idle.is_over(now, moved, taken, heard)
    }

    /// Number of bytes relayed in both directions.
    fn moved(&self) -> u64 {
        self.upload.moved() + self.download.moved()
    }

    /// Whether the endpoint has answered: some of its bytes were sent to the client or wait to be.
    pub(super) fn is_answered(&self) -> bool {
        self.download.moved() > 0 || self.download.holds()
    }

    /// Whether data of one peer has not reached the other yet.
    fn is_under_way(&self) -> bool {
        let Self { client, endpoint, upload, download, .. } = self;
        upload.holds() || download.holds() || client.has_unsent() || endpoint.has_unsent()
    }

    /// Whether both peers have received everything and may send more.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.upload.is_over() && !self.download.is_over() && !self.is_under_way()
    }

    /// Number of bytes in this machine's socket buffers: unread by the gateway, or unacknowledged by a peer.
    pub(super) fn waiting(&self) -> u64 {
        self.client.waiting() + self.endpoint.waiting()
    }

    /// Idle timeout in ticks.
    pub(super) fn idle_ticks(&self) -> u32 {
        self.idle.timeout()
    }

    /// Makes both sides see a reset when the relay is dropped: FIN would make half a response look complete.
    pub(super) fn cut(&self) {
        self.client.reset_on_close();
        self.endpoint.reset_on_close();
    }

    /// Makes the other side see a reset, too, after this peer broke the connection.
    fn reset_other(&self, peer: Peer) -> CloseReason {
        match peer {
            Peer::Client => {
                self.endpoint.reset_on_close();
                CloseReason::ClientReset
            }
            Peer::Endpoint => {
                self.client.reset_on_close();
                CloseReason::EndpointReset
            }
        }
    }
}
