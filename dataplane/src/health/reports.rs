//! Reports of workers about endpoints. A healthy connection costs one relaxed load: while there is no suspect nothing is
//! looked up, and of a suspect only the first success is reported.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use sheave_model::{EndpointAddr, FrontendAddr, Protocol};
use tokio::sync::mpsc;

use crate::select::ActiveTable;

/// The queue of reports. What does not fit is lost: that many failures are enough.
const WAITING: usize = 1024;

/// An endpoint of one protocol.
pub(super) type EndpointKey = (Protocol, EndpointAddr);

/// Suspects, each with a flag: report its next success.
pub(super) type Suspects = HashMap<EndpointKey, Arc<AtomicBool>, foldhash::fast::RandomState>;

/// What happened to an endpoint.
#[derive(Debug)]
pub(super) enum Report {
    /// A client of this frontend could not be connected to it.
    Failed(EndpointKey, FrontendAddr, io::Error),
    /// A suspect answered.
    Answered(EndpointKey),
}

/// The handle that workers report with. Shared by all of them.
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

    /// A connection to an endpoint failed, not because of this machine. Counts only for frontends with failover rules.
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

    /// Publishes the suspects.
    pub(super) fn set_suspects(&self, suspects: Suspects) {
        self.any_suspect.store(!suspects.is_empty(), Ordering::Relaxed);
        self.suspects.store(Arc::new(suspects));
    }
}
