//! Both directions of one connection until it ends: half-close is kept, and a reset on one side becomes a reset on the
//! other.
//!
//! It must not know how the endpoint was chosen, or who tells it of events.

use std::io;

use super::counters::{CloseReason, TcpCounters};
use super::direction::{Advanced, Broken, Direction, RelayBuffers, Side};
use super::stream::Stream;
use crate::sys::epoll::Happened;

/// One of the two parties of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Client,
    Endpoint,
}

/// How far a relay got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Relayed {
    /// It waits for an event.
    Waits,
    /// There is more to move, but others come first.
    ItsTurnEnds,
    /// Both streams may be closed.
    Ended(CloseReason),
}

/// A connection between a client and an endpoint. Dropping it closes both sockets.
#[derive(Debug)]
pub(super) struct Relay {
    client: Stream,
    endpoint: Stream,
    upload: Direction,
    download: Direction,
    quiet: Quiet,
}

impl Relay {
    /// `upload` is the way from client to endpoint, with what it may hold already.
    pub(super) fn new(client: Stream, endpoint: Stream, upload: Direction) -> Self {
        Self { client, endpoint, upload, download: Direction::new(), quiet: Quiet::new() }
    }

    /// Takes note of an event.
    pub(super) fn note(&mut self, peer: Peer, happened: Happened) {
        match peer {
            Peer::Client => self.client.note(happened),
            Peer::Endpoint => self.endpoint.note(happened),
        }
    }

    /// Moves what can be moved now, both ways, until both have ended or one side breaks.
    pub(super) fn advance(&mut self, buffers: &RelayBuffers, counters: &TcpCounters) -> Relayed {
        let before = (self.upload.moved(), self.download.moved());
        let outcome = self.advance_both(buffers);
        counters.add_bytes(self.upload.moved() - before.0, self.download.moved() - before.1);
        match outcome {
            Ok(relayed) => relayed,
            Err((peer, error)) => {
                tracing::debug!(%error, ?peer, "connection broke");
                Relayed::Ended(self.reset_other(peer))
            }
        }
    }

    fn advance_both(&mut self, buffers: &RelayBuffers) -> Result<Relayed, (Peer, io::Error)> {
        let mut its_turn_ends = false;
        for (from, to) in [(Peer::Client, Peer::Endpoint), (Peer::Endpoint, Peer::Client)] {
            match self.advance_from(from, buffers) {
                Ok(advanced) => its_turn_ends |= advanced == Advanced::ItsTurnEnds,
                Err(Broken { side: Side::From, error }) => return Err((from, error)),
                Err(Broken { side: Side::To, error }) => {
                    self.deliver_last_bytes(to, buffers);
                    return Err((to, error));
                }
            }
        }
        let Self { client, endpoint, upload, download, .. } = self;
        // A direction that reads finds a reset by itself.
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
        Ok(match its_turn_ends {
            _ if upload.is_over() && download.is_over() => Relayed::Ended(CloseReason::Finished),
            true => Relayed::ItsTurnEnds,
            false => Relayed::Waits,
        })
    }

    /// Advances the direction in which this peer sends, unless it is over.
    fn advance_from(&mut self, sender: Peer, buffers: &RelayBuffers) -> Result<Advanced, Broken> {
        let Self { client, endpoint, upload, download, .. } = self;
        match sender {
            Peer::Client if upload.is_over() => Ok(Advanced::Over),
            Peer::Client => upload.advance(client, endpoint, buffers, download.is_over()),
            Peer::Endpoint if download.is_over() => Ok(Advanced::Over),
            Peer::Endpoint => download.advance(endpoint, client, buffers, upload.is_over()),
        }
    }

    /// A write has shown that this peer is gone. What it had sent before can still be read, and the other side gets as much
    /// of that as it takes now: an HTTP server may refuse a request before it was sent whole.
    fn deliver_last_bytes(&mut self, gone: Peer, buffers: &RelayBuffers) {
        let Self { client, endpoint, upload, download, .. } = self;
        let (direction, from, to) = match gone {
            Peer::Client => (upload, client, endpoint),
            Peer::Endpoint => (download, endpoint, client),
        };
        // No FIN: a reset follows. The queue is finite, since nothing arrives any more.
        while matches!(direction.advance(from, to, buffers, true), Ok(Advanced::ItsTurnEnds)) {}
    }

    /// Looks whether the connection has been quiet for `allowed` looks in a row; then it is over.
    pub(super) fn look(&mut self, allowed: u32) -> Relayed {
        self.client.age();
        self.endpoint.age();
        if self.quiet.look(self.upload.moved() + self.download.moved()) < allowed {
            return Relayed::Waits;
        }
        if self.upload.holds() || self.download.holds() {
            self.cut();
        }
        Relayed::Ended(CloseReason::Idle)
    }

    /// Lets both sides see a reset when the relay is dropped: FIN would make half an answer look like a whole one.
    pub(super) fn cut(&self) {
        self.client.reset_on_close();
        self.endpoint.reset_on_close();
    }

    /// This peer broke the connection: the other one shall see a reset too, not an orderly end.
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

/// Notices quiet by comparing byte counts at each look.
#[derive(Debug)]
struct Quiet {
    moved: u64,
    looks: u32,
}

impl Quiet {
    /// The first look finds a change: it comes at any time after the beginning.
    fn new() -> Self {
        Self { moved: u64::MAX, looks: 0 }
    }

    /// Looks in a row at which nothing had moved since the one before.
    fn look(&mut self, moved: u64) -> u32 {
        self.looks = if moved == self.moved { self.looks + 1 } else { 0 };
        self.moved = moved;
        self.looks
    }
}
