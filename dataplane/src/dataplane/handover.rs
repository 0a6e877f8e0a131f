//! One data plane takes over from another: the one hands over copies of its sockets, rests, hands over its flows and lets go; the other
//! is held until then. What is said between the two, and who serves if that fails, is up to their owners.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::FrontendSource;
use socket2::Socket;
use tokio::sync::oneshot;

use super::Dataplane;
use crate::handover::{
    AffinityRecord, ConnectionCount, HandedEndpoint, HandedFlow, HandedFrontend, HandedSocket, HealthRecord,
    SocketRole, source,
};
use crate::paths::FormerPaths;
use crate::udp::local_ports::claim;
use crate::weak_map::ServiceId;
use crate::worker::Command;

/// What takes new traffic, as a process hands it over before it rests.
#[derive(Debug, Default)]
pub struct ListenersToHandOver {
    /// Every socket that takes new traffic.
    pub sockets: Vec<(SocketRole, Arc<Socket>)>,
    /// Frontends that have none of their own.
    pub steered: Vec<HandedFrontend>,
    /// The interfaces by which paths lead, from path 1 on.
    pub interfaces: Vec<String>,
}

/// The same, as the other process gets it.
#[derive(Debug, Default)]
pub struct HandedListeners {
    /// Every socket that takes new traffic.
    pub sockets: Vec<HandedSocket>,
    /// Frontends that have none of their own.
    pub steered: Vec<HandedFrontend>,
    /// The interfaces by which paths lead there, from path 1 on; none if it does not say.
    pub interfaces: Option<Vec<String>>,
}

impl Dataplane {
    /// What takes new traffic. Nothing changes here, but that [dedicated](Self::dedicate) addresses are as any other until
    /// [`Dataplane::resume`]: this process would refuse frontends that only the other one knows.
    pub fn listeners_to_hand_over(&mut self) -> ListenersToHandOver {
        self.listeners.suspend_dedicated();
        let steered = self.listeners.steered().map(HandedFrontend::from).collect();
        let interfaces = self.paths.interfaces().map(str::to_owned).collect();
        ListenersToHandOver { sockets: self.listeners.hand_over(), steered, interfaces }
    }

    /// Stops taking connections and reading datagrams, which wait in the sockets; open connections go on. True once every worker has
    /// said so, within `patience`. Ends with [`Dataplane::resume`] or [`Dataplane::leave`].
    pub fn pause(&self, patience: Duration) -> impl Future<Output = bool> + Send + use<> {
        self.workers.all_reply(Command::Pause, patience)
    }

    /// How many workers have flows to hand over.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The next UDP flows of a worker that [pauses](Dataplane::pause), with copies of their sockets; none after the last, or if it has
    /// failed.
    pub fn next_flows(&self, worker: usize) -> impl Future<Output = Vec<HandedFlow>> + Send + use<> {
        let (reply, flows) = oneshot::channel();
        if let Some(worker) = self.workers.get(worker) {
            worker.send(Command::HandOver(reply));
        }
        async { flows.await.unwrap_or_default() }
    }

    /// Affinity records that were used since `since`, or ever.
    pub fn affinity_records(&self, since: Option<Instant>) -> impl Iterator<Item = AffinityRecord> {
        self.affinity.records(since, Instant::now())
    }

    /// What is known of endpoints that are not as good as new ones.
    pub fn health_records(&self) -> Vec<HealthRecord> {
        self.health.records()
    }

    /// Goes on, since nobody has taken over.
    pub fn resume(&mut self) {
        self.workers.tell_all(|| Command::Resume);
        self.listeners.doubt_filters();
        let active = self.table.load_full();
        for frontend in active.table().frontends() {
            self.reconcile(frontend, active.table().internal_clients());
        }
        self.listeners.resume_dedicated();
    }

    /// Lets go of all that another process has taken over, without closing it. Open connections go on;
    /// [`Dataplane::drain`] ends them. No table may be applied any more.
    pub fn leave(&mut self) {
        self.workers.tell_all(|| Command::Leave);
        self.listeners.leave();
        // If the other process ends, the next one can have it.
        claim::give_up();
    }

    /// How many connections and flows each Service with limits has here.
    pub fn connection_counts(&self) -> Vec<ConnectionCount> {
        let count = |((source, namespace, name), open): (ServiceId, u32)| ConnectionCount {
            namespace: namespace.to_string(),
            name: name.to_string(),
            of_fleet: source == FrontendSource::MultiClusterService,
            open,
        };
        self.table.load().limiters().counts().into_iter().map(count).collect()
    }

    /// Counts what these Services still have in the other process against their limits, until it is [forgotten](Self::forget_elsewhere)
    /// or another number comes. Those of single clients are not counted.
    pub fn count_elsewhere(&self, counts: &[ConnectionCount]) {
        let table = self.table.load();
        for ConnectionCount { namespace, name, of_fleet, open } in counts {
            let service = (source(*of_fleet), namespace.as_str().into(), name.as_str().into());
            table.limiters().count_elsewhere(&service, *open);
        }
    }

    /// The other process has nothing left.
    pub fn forget_elsewhere(&self) {
        self.table.load().limiters().forget_elsewhere();
    }

    /// Opens frontends with these sockets from now on. To be called before the first table is applied.
    pub fn take_over(&mut self, listeners: HandedListeners) {
        let HandedListeners { sockets, steered, interfaces } = listeners;
        self.former_paths = FormerPaths::new(interfaces.as_deref(), &self.paths);
        self.listeners.take_over(sockets, steered.into_iter().map(Into::into));
    }

    /// Serves these flows of the other process, on the worker of the same index. To be called after the table was applied, which has
    /// their frontends.
    pub fn take_over_flows(&self, worker: usize, mut flows: Vec<HandedFlow>) {
        flows.retain_mut(|flow| self.is_here(&mut flow.record.endpoint));
        if let Some(worker) = self.workers.get(worker) {
            worker.send(Command::TakeOver(flows));
        }
    }

    /// Keeps an affinity record of the other process.
    pub fn take_over_affinity(&self, mut record: AffinityRecord) {
        if self.is_here(&mut record.endpoint) {
            self.affinity.restore(&record, Instant::now());
        }
    }

    /// Takes endpoints for as good as the other process did. To be called after the table was applied, which has them.
    pub fn take_over_health(&mut self, mut records: Vec<HealthRecord>) {
        records.retain_mut(|record| self.is_here(&mut record.endpoint));
        self.health.restore(records);
        self.apply_health();
    }

    /// Names the endpoint as this process does; false if no path leads to it.
    fn is_here(&self, endpoint: &mut HandedEndpoint) -> bool {
        let here = self.former_paths.endpoint(*endpoint);
        *endpoint = here.unwrap_or(*endpoint);
        here.is_some()
    }

    /// Begins to serve, if it was [held](super::Options::held). What the other process had and the table has not is closed.
    pub fn serve(&mut self) {
        self.workers.serve();
        self.listeners.forget_former();
    }
}

/// Claims the local ports that UDP flows share, by a lock on a file in this directory, unless the process that is taken over from has
/// handed over its claim: one process of a network namespace can have it. Where it is refused, each flow has a port for itself, and
/// [`Dataplane::retry`] tries again. To be called before [`Dataplane::start`]; a process that does not call it shares ports.
pub fn claim_local_ports(directory: &Path) {
    claim::take(directory);
}

/// The claim on the local ports that UDP flows share; none if another process has it.
///
/// # Errors
/// As fcntl(2).
pub fn local_ports_claim() -> io::Result<Option<OwnedFd>> {
    claim::copy()
}

/// Has the claim of the process that is taken over from. To be called before [`Dataplane::start`].
pub fn take_over_local_ports(claim: OwnedFd) {
    claim::take_over(claim);
}
