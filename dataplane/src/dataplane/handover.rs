//! Handover between data planes. The old one hands over copies of its sockets, pauses, hands over its flows and leaves; the new one is
//! held until then. Their owners define the protocol between the processes, and which one serves if a handover fails.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{EndpointAddr, FrontendAddr, FrontendSource};
use socket2::Socket;
use tokio::sync::oneshot;

use super::Dataplane;
use crate::handover::{
    AffinityRecord, ConnectionCount, HandedFlow, HandedSocket, HealthRecord, SocketRole, source,
};
use crate::limits::service::LimiterId;
use crate::paths::FormerPaths;
use crate::udp::local_ports::claim;
use crate::worker::Command;

/// Listeners that a process hands over before it pauses.
#[derive(Debug, Default)]
pub struct ListenersToHandOver {
    /// Every socket that receives new traffic.
    pub sockets: Vec<(SocketRole, Arc<Socket>)>,
    /// Frontends without their own sockets.
    pub steered: Vec<FrontendAddr>,
    /// Interfaces of the paths, from path 1 on.
    pub interfaces: Vec<String>,
}

/// Listeners that the other process receives.
#[derive(Debug, Default)]
pub struct HandedListeners {
    /// Every socket that receives new traffic.
    pub sockets: Vec<HandedSocket>,
    /// Frontends without their own sockets.
    pub steered: Vec<FrontendAddr>,
    /// Interfaces of the other process's paths, from path 1 on; `None` if it does not report them.
    pub interfaces: Option<Vec<String>>,
}

impl Dataplane {
    /// Returns the listeners to hand over. [Dedicated](Self::dedicate) addresses are not guarded from then on until
    /// [`Dataplane::resume`], because this process would refuse frontends that only the other one has.
    pub fn listeners_to_hand_over(&mut self) -> ListenersToHandOver {
        self.listeners.suspend_dedicated();
        let steered = self.listeners.steered().collect();
        let interfaces = self.paths.interfaces().map(str::to_owned).collect();
        ListenersToHandOver { sockets: self.listeners.hand_over(), steered, interfaces }
    }

    /// Stops accepting connections and reading datagrams, which wait in the sockets; open connections continue. Returns whether every
    /// worker confirmed it within `patience`. Ends with [`Dataplane::resume`] or [`Dataplane::leave`].
    pub fn pause(&self, patience: Duration) -> impl Future<Output = bool> + Send + use<> {
        self.workers.all_reply(Command::Pause, patience)
    }

    /// Number of workers, each of which may have flows to hand over.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The next UDP flows of a [paused](Dataplane::pause) worker, with copies of their sockets; empty after the last, or if the worker
    /// has failed.
    pub fn next_flows(&self, worker: usize) -> impl Future<Output = Vec<HandedFlow>> + Send + use<> {
        let (reply, flows) = oneshot::channel();
        if let Some(worker) = self.workers.get(worker) {
            worker.send(Command::HandOver(reply));
        }
        async { flows.await.unwrap_or_default() }
    }

    /// Unexpired affinity records, or only those used since `since`.
    pub fn affinity_records(&self, since: Option<Instant>) -> impl Iterator<Item = AffinityRecord> {
        self.affinity.records(since, Instant::now())
    }

    /// Records of endpoints whose health differs from that of a new endpoint.
    pub fn health_records(&self) -> Vec<HealthRecord> {
        self.health.records()
    }

    /// Resumes serving after a pause: the other process did not take over.
    pub fn resume(&mut self) {
        self.workers.tell_all(|| Command::Resume);
        self.listeners.doubt_filters();
        let active = self.table.load_full();
        for frontend in active.table().frontends() {
            self.reconcile(frontend, active.table().internal_clients());
        }
        self.listeners.resume_dedicated();
    }

    /// Releases everything that another process has taken over, without closing it. Open connections continue; [`Dataplane::drain`]
    /// ends them. No table may be applied any more.
    pub fn leave(&mut self) {
        self.workers.tell_all(|| Command::Leave);
        self.listeners.leave();
        // Its rules stay, and the other process adopts them.
        self.kernel.leave();
        // If the other process ends, the next one can claim the ports.
        claim::give_up();
    }

    /// Number of connections and flows of each Service with limits.
    pub fn connection_counts(&self) -> Vec<ConnectionCount> {
        let count = |(LimiterId { service: (source, namespace, name), settings_of }, open)| ConnectionCount {
            namespace: String::from(&*namespace),
            name: String::from(&*name),
            of_fleet: source == FrontendSource::MultiClusterService,
            of_gateway: source == FrontendSource::Gateway,
            settings_of: settings_of.as_deref().map(str::to_owned),
            open,
        };
        self.table.load().limiters().counts().into_iter().map(count).collect()
    }

    /// Counts the connections that these Services still have in the other process against their limits, until they are
    /// [forgotten](Self::forget_elsewhere) or the number is updated. Limits per client do not include them.
    pub fn count_elsewhere(&self, counts: &[ConnectionCount]) {
        let table = self.table.load();
        for ConnectionCount { namespace, name, of_fleet, of_gateway, settings_of, open } in counts {
            let source = source(*of_fleet, *of_gateway);
            let service = (source, namespace.as_str().into(), name.as_str().into());
            let settings_of = settings_of.as_deref().map(Into::into);
            table.limiters().count_elsewhere(&LimiterId { service, settings_of }, *open);
        }
    }

    /// Forgets the connections of the other process, which has none left.
    pub fn forget_elsewhere(&self) {
        self.table.load().limiters().forget_elsewhere();
    }

    /// Uses these sockets for frontends that are opened from now on. Must be called before the first table is applied.
    pub fn take_over(&mut self, listeners: HandedListeners) {
        let HandedListeners { sockets, steered, interfaces } = listeners;
        self.former_paths = FormerPaths::new(interfaces.as_deref(), &self.paths);
        self.listeners.take_over(sockets, steered);
    }

    /// Serves these flows of the other process, on the worker with the same index. Must be called after a table with their frontends
    /// was applied.
    pub fn take_over_flows(&self, worker: usize, mut flows: Vec<HandedFlow>) {
        flows.retain_mut(|flow| self.is_here(&mut flow.record.endpoint));
        if let Some(worker) = self.workers.get(worker) {
            worker.send(Command::TakeOver(flows));
        }
    }

    /// Restores an affinity record of the other process.
    pub fn take_over_affinity(&self, mut record: AffinityRecord) {
        if self.is_here(&mut record.endpoint) {
            self.affinity.restore(&record, Instant::now());
        }
    }

    /// Restores the health records of the other process. Must be called after a table with the endpoints was applied.
    pub fn take_over_health(&mut self, mut records: Vec<HealthRecord>) {
        records.retain_mut(|record| self.is_here(&mut record.endpoint));
        self.health.restore(records);
        self.apply_health();
    }

    /// Renumbers the endpoint's path for this process; returns false if it has no such path.
    fn is_here(&self, endpoint: &mut EndpointAddr) -> bool {
        let here = self.former_paths.endpoint(*endpoint);
        *endpoint = here.unwrap_or(*endpoint);
        here.is_some()
    }

    /// Starts to serve, if it was [held](super::Options::held). Closes the listeners of the other process that the table does not need.
    pub fn serve(&mut self) {
        self.workers.serve();
        self.listeners.forget_former();
        self.kernel.serve();
    }
}

/// Claims the local ports that UDP flows share, with a lock on a file in this directory, unless the previous process has handed over
/// its claim: only one process of a network namespace can hold it. If it is refused, each flow takes a port of its own, and
/// [`Dataplane::retry`] tries again. Must be called before [`Dataplane::start`]; a process that does not call it shares ports.
pub fn claim_local_ports(directory: &Path) {
    claim::take(directory);
}

/// A copy of the claim on the local ports that UDP flows share; `None` if this process does not hold it.
///
/// # Errors
/// Returns an error if fcntl(2) fails.
pub fn local_ports_claim() -> io::Result<Option<OwnedFd>> {
    claim::copy()
}

/// Takes over the claim of the previous process. Must be called before [`Dataplane::start`].
pub fn take_over_local_ports(claim: OwnedFd) {
    claim::take_over(claim);
}
