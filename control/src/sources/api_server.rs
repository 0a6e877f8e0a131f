//! An API server as the source of objects: watches that survive whatever happens to the server.
//!
//! Each kind is followed by a task of its own: listed once, then watched from there on. A watch that is cut is taken up where
//! it ended; only if the server has forgotten that version, or lists but does not watch, the kind is listed again. Whatever fails, the objects that are
//! known stay until a complete list, or a watch, says otherwise. The watcher of `kube-runtime` is not used: it asks for ever
//! when the server refuses a version by an HTTP 410, it ends a kind's updates at one object that cannot be read, it has no
//! deadline for lists and no way back from streamed lists, and it does not see `Retry-After`.

mod cache;
mod event;
mod item;
mod kind_problems;
mod limits;
mod list;
mod page;
mod reflector;
mod request;
mod streaming;

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tokio::task::JoinSet;

use self::cache::{Cache, Start, Subscription, SyncState};
pub use self::limits::Limits;
use self::reflector::Reflector;
use crate::api::kinds::{
    ControlPlane, Delta, KINDS, Kind, KindVisitor, Need, Row, ServiceWorks, visit_kinds,
};
use crate::api::problem::Problem;
use crate::api::store::Change;
use crate::sources::connection::Connection;

/// Which kinds are watched beside Services, EndpointSlices and Nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Namespaces, for the selectors of pools.
    pub namespaces: bool,
    /// Address pools.
    pub pools: bool,
}

/// Which kinds of a Karmada control plane are watched beside those that MultiClusterServices cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetWanted {
    /// Works that bring Services to members. No selector tells them from the Works of everything else that Karmada propagates,
    /// Secrets included, so all of these are sent.
    pub service_works: bool,
}

/// What happened.
#[derive(Debug)]
pub struct Batch {
    /// Each object at most once, with its latest state. Empty if only the Problems are others than before.
    pub changes: Vec<Change>,
    /// When the first of it arrived.
    pub received: Instant,
    /// When what the changed slices tell of happened (their `endpoints.kubernetes.io/last-change-trigger-time`), where a
    /// watch brought them: what a list brings may have been so for days.
    pub triggered: Vec<Timestamp>,
}

/// How well one kind is known.
#[derive(Clone, Debug)]
pub struct KindStatus {
    /// As in manifests.
    pub kind: &'static str,
    /// Whether all its objects are known, or known not to be there.
    pub synced: bool,
    /// When the server last sent something of it: a list, an event, a bookmark or the start of a watch.
    pub heard: Option<Instant>,
    /// How often all its objects were listed.
    pub lists: u64,
    /// How often a watch was started again, for whatever reason; each lasts for ten minutes at most.
    pub restarts: u64,
    /// Why it cannot be read; none while it can.
    pub error: Option<String>,
    /// How many objects are kept.
    pub objects: usize,
    /// Whether it is waited for. A kind that is not may be unknown while all else is served.
    pub needed: bool,
}

impl KindStatus {
    fn new(kind: &'static str, needed: bool) -> Self {
        Self { kind, synced: false, heard: None, lists: 0, restarts: 0, error: None, objects: 0, needed }
    }

    /// Both as one: it is no better known than the part that is known least.
    fn join(&mut self, other: Self) {
        self.synced &= other.synced;
        self.heard = self.heard.min(other.heard);
        self.lists += other.lists.saturating_sub(1);
        self.restarts += other.restarts;
        self.error = self.error.take().or(other.error);
        self.objects += other.objects;
    }
}

/// The objects of an API server, as they come. Dropping it ends the watches.
pub struct ApiWatch {
    sync: Arc<SyncState>,
    subscriptions: Vec<Arc<dyn Subscription>>,
    tasks: JoinSet<()>,
    /// For the first batch: of a kind that is not watched nothing stays that another configuration left in a snapshot.
    unwatched: Vec<Change>,
}

/// Starts to watch what is wanted of the cluster that the gateways run in, on the current Tokio runtime.
pub fn watch(connection: &Connection, wanted: Wanted) -> ApiWatch {
    watch_with(connection, wanted, Limits::default())
}

/// The same with other limits.
pub fn watch_with(connection: &Connection, wanted: Wanted, limits: Limits) -> ApiWatch {
    let is_wanted = |row: &Row| match row.resource.kind {
        "Namespace" => wanted.namespaces,
        "AddressPool" => wanted.pools,
        _ => true,
    };
    watch_kinds(connection, limits, |row| row.plane == ControlPlane::Local && is_wanted(row))
}

/// Starts to watch what a Karmada API server has of MultiClusterServices, on the current Tokio runtime.
pub fn watch_fleet(connection: &Connection, wanted: FleetWanted) -> ApiWatch {
    watch_fleet_with(connection, wanted, Limits::default())
}

/// The same with other limits.
pub fn watch_fleet_with(connection: &Connection, wanted: FleetWanted, limits: Limits) -> ApiWatch {
    let is_wanted = |row: &Row| wanted.service_works || row.selector != ServiceWorks::ROW.selector;
    let mut watch =
        watch_kinds(connection, limits, |row| row.plane == ControlPlane::Karmada && is_wanted(row));
    if !wanted.service_works {
        watch.unwatched.push(ServiceWorks::change(Delta::All(Vec::new())));
    }
    watch
}

fn watch_kinds(connection: &Connection, limits: Limits, is_wanted: impl Fn(&Row) -> bool) -> ApiWatch {
    let kinds = KINDS.iter().filter(|row| is_wanted(row)).count();
    let watch = ApiWatch {
        sync: Arc::new(SyncState::of(kinds)),
        subscriptions: Vec::new(),
        tasks: JoinSet::new(),
        unwatched: Vec::new(),
    };
    let mut starter = Starter { watch, connection, limits, is_wanted };
    visit_kinds(&mut starter);
    starter.watch
}

/// Starts a watch for each kind that is wanted.
struct Starter<'a, F> {
    watch: ApiWatch,
    connection: &'a Connection,
    limits: Limits,
    is_wanted: F,
}

impl<F: Fn(&Row) -> bool> KindVisitor for Starter<'_, F> {
    fn visit<K: Kind>(&mut self) {
        if (self.is_wanted)(&K::ROW) {
            self.watch.follow::<K>(self.connection, self.limits);
        }
    }
}

impl ApiWatch {
    fn follow<K: Kind>(&mut self, connection: &Connection, limits: Limits) {
        let kept = Arc::new(Cache::<K>::new(self.sync.clone()));
        self.subscriptions.push(kept.clone());
        let following = Reflector::new(connection.clone(), limits, kept.clone()).follow();
        self.tasks.spawn(async move {
            let excusing = async {
                if K::ROW.need == Need::Spared {
                    tokio::time::sleep(limits.spared).await;
                    kept.excuse();
                }
            };
            tokio::join!(following, excusing);
        });
    }

    /// What happened since the last call, all of it at once. The first batch comes after the first full list of every wanted
    /// kind and holds them all. Cancel safe. None if nothing can come any more, as when the runtime ends.
    pub async fn next(&mut self) -> Option<Batch> {
        loop {
            if self.sync.is_synced()
                && let Some(mut batch) = self.take()
            {
                batch.changes.append(&mut self.unwatched);
                return Some(batch);
            }
            tokio::select! {
                () = self.sync.arrived.notified() => {}
                _ = self.tasks.join_next() => return None,
            }
        }
    }

    /// Objects that could not be read, kinds that are not installed or that we may not read; sorted.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> =
            self.subscriptions.iter().flat_map(|subscription| subscription.problems()).collect();
        problems.sort();
        // A kind of which two parts are followed is missing twice.
        problems.dedup();
        problems
    }

    /// How well each wanted kind is known.
    pub fn kinds(&self) -> Vec<KindStatus> {
        let mut kinds: Vec<KindStatus> = Vec::new();
        for status in self.subscriptions.iter().map(|subscription| subscription.status()) {
            match kinds.iter_mut().find(|known| known.kind == status.kind) {
                Some(known) => known.join(status),
                None => kinds.push(status),
            }
        }
        kinds
    }

    /// Ends as soon as something has failed before everything was known: whoever has a snapshot then better serves from it.
    /// Once everything is known it never ends. The future stands on its own, to be waited for beside [`Self::next`].
    pub fn first_failure(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut start = self.sync.start.subscribe();
        async move {
            if start.wait_for(|start| *start == Start::Failed).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn take(&self) -> Option<Batch> {
        // Anything that came is older than this.
        let mut batch = Batch { changes: Vec::new(), received: Instant::now(), triggered: Vec::new() };
        let mut any = false;
        for subscription in &self.subscriptions {
            any |= subscription.take(&mut batch);
        }
        any.then_some(batch)
    }
}

#[cfg(test)]
mod tests;
