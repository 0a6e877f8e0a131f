//! How a frontend's packets reach the workers: through its own sockets, through those of all steered frontends, or not at all.

use std::net::Shutdown;
use std::sync::Arc;

use socket2::Socket;

use super::sk_lookup::SourceSetLease;
use super::source_filter::FilterLease;
use sheave_model::{FrontendAddr, Protocol};

/// How packets of a frontend get to the workers.
#[derive(Debug)]
pub(super) enum Binding {
    /// Not at all.
    Nowhere,
    /// Through sockets of its own, one per worker.
    Sockets { sockets: Vec<Arc<Socket>>, filter: FilterLease },
    /// Through the sockets of all steered frontends; `None` while they are refused.
    Steered(Option<SourceSetLease>),
}

/// What one frontend takes of what there is for all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Occupancy {
    /// To itself; of an open frontend one per worker.
    pub(super) sockets: usize,
    /// It is open, and reached through the sockets of all.
    pub(super) steered: bool,
}

impl Binding {
    /// What it takes of what there is for all.
    pub(super) fn occupancy(&self) -> Occupancy {
        Occupancy { sockets: self.sockets().len(), steered: matches!(self, Self::Steered(Some(_))) }
    }

    /// Whether it takes anything new.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Sockets { .. } | Self::Steered(Some(_)))
    }

    /// Its own sockets.
    pub(super) fn sockets(&self) -> &[Arc<Socket>] {
        match self {
            Self::Sockets { sockets, .. } => sockets,
            Self::Nowhere | Self::Steered(_) => &[],
        }
    }

    /// Whether `socket` is one of its own.
    pub(super) fn has(&self, socket: &Arc<Socket>) -> bool {
        self.sockets().iter().any(|own| Arc::ptr_eq(own, socket))
    }

    /// Takes nothing new from now on; the workers have been told.
    pub(super) fn close(&mut self, addr: FrontendAddr) {
        let Self::Sockets { sockets, .. } = std::mem::replace(self, Self::Nowhere) else { return };
        for socket in sockets {
            if addr.protocol == Protocol::Tcp {
                // Takes effect at once, however long the worker holds its reference: the kernel leaves LISTEN.
                if let Err(error) = socket.shutdown(Shutdown::Both) {
                    tracing::debug!(frontend = %addr, %error, "listener was not listening");
                }
            }
        }
        tracing::debug!(frontend = %addr, "closed");
    }

    /// Lets go of its sockets, so that the workers hold them alone.
    pub(super) fn release(&mut self) {
        if let Self::Sockets { .. } = self {
            *self = Self::Nowhere;
        }
    }
}
