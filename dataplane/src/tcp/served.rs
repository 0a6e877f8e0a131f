//! What a connection has with it while it is relayed, and how its end is told.
//!
//! It must not know how bytes are moved.

use std::sync::Arc;

use super::counters::{CloseReason, TcpCounters};
use super::relays::Story;
use crate::model::{ClientAddr, FrontendAddr};
use crate::pick::Picked;
use crate::worker::Live;

/// A connection that counts for its frontend, its endpoint and its worker until it is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    pub(super) frontend: FrontendAddr,
    pub(super) peer: ClientAddr,
    pub(super) ending: Ending,
    pub(super) _picked: Picked,
    pub(super) _live: Live,
}

impl Story for Served {
    fn counters(&self) -> &TcpCounters {
        &self.ending.counters
    }

    fn end(self, reason: CloseReason) {
        tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, reason = reason.label(), "closed");
        self.ending.by(reason);
    }
}

/// Counts a connection's end when it is dropped.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) counters: Arc<TcpCounters>,
    reason: CloseReason,
}

impl Ending {
    /// Unless told otherwise, it was aborted.
    pub(super) fn of(counters: &Arc<TcpCounters>) -> Self {
        Self { counters: Arc::clone(counters), reason: CloseReason::Aborted }
    }

    /// It ends for this reason.
    pub(super) fn by(mut self, reason: CloseReason) {
        self.reason = reason;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.counters.add_closed(self.reason);
    }
}
