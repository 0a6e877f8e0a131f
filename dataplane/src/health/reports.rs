//! Reports of workers about endpoints. A healthy connection costs one relaxed load: nothing is looked up while there is no suspect,
//! and only the first success of a suspect is reported.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use sheave_model::{EndpointAddr, FrontendAddr, ServicePort};
use tokio::sync::mpsc;

use super::success_watch::SuccessWatch;
use super::suspect::FailureMoment;
use crate::select::{ActiveFrontend, ActiveTable};

/// Length of the queue of reports. Reports beyond it are lost: that many failures suffice.
const WAITING: usize = 1024;

/// An endpoint of one Service port. Each Service judges endpoints by its own connections and its own check, so the annotations,
/// EndpointSlices or clients of one Service do not affect the endpoints of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EndpointKey {
    pub(super) service: ServicePort,
    pub(super) addr: EndpointAddr,
}

/// Suspects by address, each with its watch.
pub(super) type Suspects =
    HashMap<EndpointAddr, Vec<(ServicePort, Arc<SuccessWatch>)>, foldhash::fast::RandomState>;

/// Source address of a failed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectedFrom {
    /// The gateway's address, so the client is not the cause.
    Gateway,
    /// The client's own address.
    Client,
    /// The gateway's address, but what the client sent may be the cause.
    ByClient,
}

/// Event of an endpoint.
#[derive(Debug)]
pub(super) enum Report {
    /// A client of this frontend could not be connected to the endpoint, which this Service port judges.
    Failed {
        key: EndpointKey,
        frontend: FrontendAddr,
        from: ConnectedFrom,
        error: Arc<io::Error>,
        moment: FailureMoment,
    },
    /// A suspect answered.
    Answered(EndpointKey),
}

/// Handle with which all workers report.
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

    /// A handle whose reports are dropped, for tests of workers.
    #[cfg(test)]
    pub(crate) fn ignored() -> Arc<Self> {
        Self::new().0
    }

    /// Reports a failure to reach an endpoint that this machine did not cause. Omitted if the endpoint is already known to be
    /// unhealthy, unless a client tries it.
    pub(crate) fn failed(
        &self,
        table: &ActiveTable,
        active: &ActiveFrontend,
        addr: EndpointAddr,
        from: ConnectedFrom,
        error: io::Error,
        at: Instant,
    ) {
        let frontend = active.spec().addr;
        let (health, suspects, error) = (table.health(), self.suspects.load(), Arc::new(error));
        for service in active.judges(addr) {
            if health.is_unhealthy(service, addr) && health.trial(service, addr).is_none() {
                continue;
            }
            let mut of_addr = suspects.get(&addr).into_iter().flatten();
            let watch = of_addr.find(|(of, _)| of == service).map(|(_, watch)| watch.state());
            let moment = FailureMoment { at, watch };
            let key = EndpointKey { service: service.clone(), addr };
            let error = Arc::clone(&error);
            self.sender.try_send(Report::Failed { key, frontend, from, error, moment }).ok();
        }
    }

    /// Reports that an endpoint answered a client of the frontend that `active` looks up, only if need be.
    pub(crate) fn answered<'t>(
        &self,
        endpoint: EndpointAddr,
        active: impl FnOnce() -> Option<&'t Arc<ActiveFrontend>>,
    ) {
        if self.any_suspect.load(Ordering::Relaxed)
            && let Some(active) = active()
        {
            self.report_success(active, endpoint);
        }
    }

    #[cold]
    fn report_success(&self, active: &ActiveFrontend, addr: EndpointAddr) {
        let suspects = self.suspects.load();
        let waiting = suspects.get(&addr).into_iter().flatten();
        for (service, watch) in waiting.filter(|(_, watch)| watch.is_armed()) {
            if active.is_judge(service, addr) && watch.succeeded() {
                let key = EndpointKey { service: service.clone(), addr };
                if self.sender.try_send(Report::Answered(key)).is_err() {
                    watch.arm();
                }
            }
        }
    }

    pub(super) fn set_suspects(&self, suspects: Suspects) {
        self.any_suspect.store(!suspects.is_empty(), Ordering::Relaxed);
        self.suspects.store(Arc::new(suspects));
    }
}
