//! Lame duck: the time between a request to stop and the drain. The gateway reports to probes and the controller that it is not ready,
//! and keeps serving until load balancers have noticed. A SYN in that time meets an open port.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{Frontend, RoutingTable};

use super::EventLoop;
use crate::takeover::predecessor::Lifeline;

/// Phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// Accepts new connections, but clients should no longer send any.
    LameDuck,
    /// Accepts nothing new, and lets open connections finish.
    Draining,
}

impl Phase {
    /// Reason for a failing readiness probe, if any.
    pub(super) fn not_ready(self) -> Option<&'static str> {
        match self {
            Self::Serving => None,
            Self::LameDuck => Some("about to drain"),
            Self::Draining => Some("draining"),
        }
    }
}

impl EventLoop {
    /// Withdraws readiness. Returns when to drain; `None` = at once, as for a gateway that was never ready, which gets no traffic. A
    /// predecessor that watches this process gets time to come back.
    pub(super) fn withdraw(&mut self, lame_duck: Duration) -> Option<Instant> {
        let watched = self.lifeline.take().is_some_and(|it| it.is_watched());
        self.dataplane.forget_elsewhere();
        let lame_duck = if watched { lame_duck.max(Lifeline::RETURN) } else { lame_duck };
        if lame_duck.is_zero() || self.missing().is_some() {
            return None;
        }
        self.enter(Phase::LameDuck);
        self.announcing.leave();
        tracing::info!(time = ?lame_duck, "not ready any more: serving on until load balancers have noticed");
        Some(Instant::now() + lame_duck)
    }

    /// Table to apply. A lame duck keeps serving at former addresses of a Service by the Service's other addresses: the controller has
    /// published other gateways' addresses by then, which some clients do not know yet.
    pub(super) fn with_former_addresses(&self, table: &Arc<RoutingTable>) -> Arc<RoutingTable> {
        if self.phase != Phase::LameDuck {
            return Arc::clone(table);
        }
        let before = self.dataplane.table();
        let of_service = |it: &Frontend| (it.service.clone(), it.kind, it.addr.ip.is_ipv4());
        let others: HashMap<_, _> = table.frontends().iter().map(|it| (of_service(it), it)).collect();
        let former = before.table().frontends().iter().filter(|it| table.get(it.addr).is_none());
        let kept = former.filter_map(|former| {
            let other = others.get(&of_service(former))?;
            Some(Arc::new(Frontend { addr: former.addr, ..Frontend::clone(other) }))
        });
        let frontends = table.frontends().iter().cloned().chain(kept).collect();
        let internal = Arc::clone(table.internal_clients());
        Arc::new(RoutingTable::new(table.generation(), frontends, internal))
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.health.drain();
        self.report.send_modify(|report| report.draining = true);
    }
}
