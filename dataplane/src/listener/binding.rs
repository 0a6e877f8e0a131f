//! Binding of a frontend: through its own sockets, through those of all steered frontends, or none.

use std::net::Shutdown;
use std::sync::Arc;

use socket2::Socket;

use super::sk_lookup::SourceSetLease;
use super::source_filter::FilterLease;
use sheave_model::{FrontendAddr, Protocol};

/// Sockets through which a frontend's packets reach the workers.
#[derive(Debug)]
pub(super) enum Binding {
    /// None: the frontend is closed, or only the workers hold its sockets.
    Nowhere,
    /// Its own sockets, one per worker.
    Sockets { sockets: Vec<Arc<Socket>>, filter: FilterLease },
    /// The sockets of all steered frontends; `None` while new traffic is refused.
    Steered(Option<SourceSetLease>),
}

/// Resources that one frontend occupies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Occupancy {
    /// Number of its own sockets; one per worker if it is open.
    pub(super) sockets: usize,
    /// Whether it is open and steered.
    pub(super) steered: bool,
}

impl Binding {
    /// Resources that the frontend occupies.
    pub(super) fn occupancy(&self) -> Occupancy {
        Occupancy { sockets: self.sockets().len(), steered: matches!(self, Self::Steered(Some(_))) }
    }

    /// Whether the frontend accepts new traffic.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Sockets { .. } | Self::Steered(Some(_)))
    }

    /// The frontend's own sockets.
    pub(super) fn sockets(&self) -> &[Arc<Socket>] {
        match self {
            Self::Sockets { sockets, .. } => sockets,
            Self::Nowhere | Self::Steered(_) => &[],
        }
    }

    /// Whether `socket` is one of the frontend's own.
    pub(super) fn has(&self, socket: &Arc<Socket>) -> bool {
        self.sockets().iter().any(|own| Arc::ptr_eq(own, socket))
    }

    /// Stops accepting new traffic. The workers must have been sent a command to close.
    pub(super) fn close(&mut self, addr: FrontendAddr) {
        let Self::Sockets { sockets, .. } = std::mem::replace(self, Self::Nowhere) else { return };
        for socket in sockets {
            if addr.protocol == Protocol::Tcp {
                // Takes effect at once, even while a worker still references the socket: the kernel leaves LISTEN.
                if let Err(error) = socket.shutdown(Shutdown::Both) {
                    tracing::debug!(frontend = %addr, %error, "listener was not listening");
                }
            }
        }
        tracing::debug!(frontend = %addr, "closed");
    }

    /// Releases its sockets, so that only the workers hold them.
    pub(super) fn release(&mut self) {
        if let Self::Sockets { .. } = self {
            *self = Self::Nowhere;
        }
    }
}
