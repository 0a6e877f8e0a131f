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

use crate::select::ActiveTable;

/// Reports that may wait. What does not fit is lost: that many failures say enough.
const WAITING: usize = 1024;

/// An endpoint of one protocol.
pub(super) type EndpointKey = (Protocol, EndpointAddr);

/// Endpoints in doubt, each with whether the next answer of it is worth telling.
pub(super) type Suspects = HashMap<EndpointKey, Arc<AtomicBool>, foldhash::fast::RandomState>;

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
    any_suspect: AtomicBool,
    suspects: ArcSwap<Suspects>,
}

impl Reports {
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<Report>) {
        let (sender, inbox) = mpsc::channel(WAITING);
        (Arc::new(Self { sender, any_suspect: AtomicBool::new(false), suspects: ArcSwap::default() }), inbox)
    }

    /// For tests of workers whose reports nobody reads.
    #[cfg(test)]
    pub(crate) fn ignored() -> Arc<Self> {
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
        if self.any_suspect.load(Ordering::Relaxed) {
            self.report_success((protocol, endpoint));
        }
    }

    #[cold]
    fn report_success(&self, key: EndpointKey) {
        let suspects = self.suspects.load();
        let Some(report_next) = suspects.get(&key) else { return };
        if report_next.load(Ordering::Relaxed)
            && report_next.swap(false, Ordering::Relaxed)
            && self.sender.try_send(Report::Answered(key)).is_err()
        {
            report_next.store(true, Ordering::Relaxed);
        }
    }

    /// Says which endpoints are in doubt from now on.
    pub(super) fn watch(&self, suspects: Suspects) {
        self.any_suspect.store(!suspects.is_empty(), Ordering::Relaxed);
        self.suspects.store(Arc::new(suspects));
    }
}
