//! What workers tell of endpoints. On the way of a healthy connection it costs one relaxed load: nothing is looked up while
//! no endpoint is in doubt, and of one in doubt only the first answer is told.
//!
//! It must not know what becomes of it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use sheave_model::{EndpointAddr, FrontendAddr, Protocol};
use tokio::sync::mpsc;

use crate::pick::ActiveTable;

/// Reports that may wait. What does not fit is lost: that many failures say enough.
const WAITING: usize = 1024;

/// An endpoint of one protocol.
pub(super) type EndpointKey = (Protocol, EndpointAddr);

/// Endpoints in doubt, each with whether the next answer of it is worth telling.
pub(super) type Doubts = HashMap<EndpointKey, Arc<AtomicBool>, foldhash::fast::RandomState>;

/// What happened to an endpoint.
#[derive(Debug)]
pub(super) enum Report {
    /// It could not be reached for a client of this frontend.
    Failed(EndpointKey, FrontendAddr, io::Error),
    /// One in doubt answered.
    Answered(EndpointKey),
}

/// The workers' end. Shared by all of them.
#[derive(Debug)]
pub(crate) struct Reports {
    sender: mpsc::Sender<Report>,
    any_doubt: AtomicBool,
    doubts: ArcSwap<Doubts>,
}

impl Reports {
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<Report>) {
        let (sender, inbox) = mpsc::channel(WAITING);
        (Arc::new(Self { sender, any_doubt: AtomicBool::new(false), doubts: ArcSwap::default() }), inbox)
    }

    /// For tests of workers, whose reports nobody reads.
    #[cfg(test)]
    pub(crate) fn unheard() -> Arc<Self> {
        Self::new().0
    }

    /// An endpoint could not be reached, by no fault of this machine. It counts only where health decides anything.
    pub(crate) fn failed(
        &self,
        table: &ActiveTable,
        frontend: FrontendAddr,
        endpoint: EndpointAddr,
        error: io::Error,
    ) {
        if table.get(frontend).is_some_and(|frontend| frontend.spec().failover.is_some()) {
            self.sender.try_send(Report::Failed((frontend.protocol, endpoint), frontend, error)).ok();
        }
    }

    /// An endpoint answered.
    pub(crate) fn answered(&self, protocol: Protocol, endpoint: EndpointAddr) {
        if self.any_doubt.load(Ordering::Relaxed) {
            self.clear_doubt((protocol, endpoint));
        }
    }

    #[cold]
    fn clear_doubt(&self, key: EndpointKey) {
        let doubts = self.doubts.load();
        let Some(untold) = doubts.get(&key) else { return };
        if untold.load(Ordering::Relaxed)
            && untold.swap(false, Ordering::Relaxed)
            && self.sender.try_send(Report::Answered(key)).is_err()
        {
            untold.store(true, Ordering::Relaxed);
        }
    }

    /// Says which endpoints are in doubt from now on.
    pub(super) fn doubt(&self, doubts: Doubts) {
        self.any_doubt.store(!doubts.is_empty(), Ordering::Relaxed);
        self.doubts.store(Arc::new(doubts));
    }
}
