//! The time between a request to end and the drain: the gateway says that it is not ready, and serves on until whoever routes to
//! it has noticed. A SYN in that time meets an open port.

use std::time::{Duration, Instant};

use super::EventLoop;

/// How far a process is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// It takes new connections, but nobody should send any.
    LameDuck,
    /// It takes nothing new, and open connections finish.
    Draining,
}

impl Phase {
    /// What probes are told.
    pub(super) fn not_ready(self) -> Option<&'static str> {
        match self {
            Self::Serving => None,
            Self::LameDuck => Some("about to drain"),
            Self::Draining => Some("draining"),
        }
    }
}

impl EventLoop {
    /// Withdraws readiness; gives when to drain, and `None` for at once. To a gateway that was never ready nobody sends anything.
    pub(super) fn withdraw(&mut self, lame_duck: Duration) -> Option<Instant> {
        if lame_duck.is_zero() || self.missing().is_some() {
            return None;
        }
        self.enter(Phase::LameDuck);
        tracing::info!(time = ?lame_duck, "not ready any more: serving on until load balancers have noticed");
        Some(Instant::now() + lame_duck)
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.health.drain();
    }
}
