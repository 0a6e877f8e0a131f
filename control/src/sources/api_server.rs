//! API server as a source of objects: watches that survive any failure of the server.
//!
//! Kinds of the Gateway API and ServiceImports exist where an administrator has installed their definitions. They are watched while the
//! server has these (`discovery`), and never delay the start or fail it.
//!
//! Each kind has its own task, which lists it once and then watches from there. An interrupted watch continues where it ended.
//! The kind is listed again only if the server has forgotten that version, or permits lists but no watches. Whatever fails, known
//! objects stay until a complete list or a watch event replaces them. The watcher of `kube-runtime` (5.0) is not used: it retries
//! forever if the server rejects a version with HTTP 410 as a watch begins, and streamed lists with a server that has none; it
//! takes a silent watch for dead only 10 s after its requested end, which would be 310 to 610 s here in place of 75 s; it ends the
//! updates of a kind at a single undecodable object, and ignores `Retry-After`.

mod cache;
mod discovery;
mod item;
mod kind_problems;
mod limits;
mod list;
mod page;
mod reflector;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use jiff::Timestamp;
use tokio::task::JoinSet;

use self::cache::{Cache, Start, Subscription, SyncState};
use self::discovery::Discovery;
pub use self::discovery::KindHints;
pub use self::limits::WatchLimits;
use self::reflector::{Reflector, Requirement};
use crate::api::kinds::{
    ControlPlane, Definition, GatewayClasses, Gateways, KINDS, Kind, KindVisitor, Need, Row, ServiceWorks,
    visit_kinds,
};
use crate::api::problem::Problem;
use crate::api::store::Change;
use crate::sources::connection::Connection;

/// Whether the kinds of the Gateway API and ServiceImports are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GatewayApiMode {
    /// Those that the API server has and permits. Where it has none or permits none, nothing is reported.
    #[default]
    Auto,
    /// All. Missing ones are Problems.
    On,
    /// None.
    Off,
}

/// Control plane to watch, and kinds in addition to those without which nothing can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The control plane.
    pub plane: ControlPlane,
    /// Namespaces, for the selectors of pools.
    pub namespaces: bool,
    /// Address pools.
    pub pools: bool,
    /// The kinds of the Gateway API, ServiceImports with their EndpointSlices, and Namespaces for the selectors of Gateways.
    pub gateway_api: GatewayApiMode,
    /// Works that bring Services to members. No selector separates them from the Works of everything else that Karmada
    /// propagates, including Secrets, so the server sends all of these.
    pub service_works: bool,
}

impl Wanted {
    /// Only what is necessary.
    pub const fn of(plane: ControlPlane) -> Self {
        let gateway_api = GatewayApiMode::Off;
        Self { plane, namespaces: false, pools: false, gateway_api, service_works: false }
    }

    fn includes(&self, row: &Row) -> bool {
        row.plane == self.plane
            && match row.resource.kind {
                "Namespace" if self.namespaces => true,
                "AddressPool" => self.pools,
                _ if self.definition(row).is_some() => self.gateway_api != GatewayApiMode::Off,
                "Namespace" => false,
                _ => self.service_works || row.selector != ServiceWorks::ROW.selector,
            }
    }
}

impl Wanted {
    /// The definition without which the kind is not watched.
    fn definition(&self, row: &Row) -> Option<Definition> {
        let of_gateways = || Gateways::ROW.definition.filter(|_| !self.namespaces);
        if row.resource.kind == "Namespace" { of_gateways() } else { row.definition }
    }
}

/// A batch of changes.
#[derive(Debug)]
pub struct Batch {
    /// The changes, each object at most once and in its latest state. Empty if only the Problems changed.
    pub changes: Vec<Change>,
    /// Arrival of the first change.
    pub received: Instant,
    /// Times of the events that changed the slices (their `endpoints.kubernetes.io/last-change-trigger-time`), only for slices
    /// from a watch: a list can contain changes that are days old.
    pub triggered: Vec<Timestamp>,
}

/// Synchronization state of a kind.
#[derive(Clone, Debug)]
pub struct KindStatus {
    /// Kind, as in manifests.
    pub kind: &'static str,
    /// Whether all its objects are known, or known to be absent.
    pub synced: bool,
    /// Time of the last data from the server: a list, an event, a bookmark or the start of a watch.
    pub heard: Option<Instant>,
    /// How often all its objects were listed.
    pub lists: u64,
    /// How often a watch was restarted, for any reason. Each lasts 50 minutes at most.
    pub restarts: u64,
    /// Why it cannot be read; `None` while it can.
    pub error: Option<String>,
    /// Number of kept objects.
    pub objects: usize,
    /// Whether startup waits for it. Other kinds may be unknown while everything else is served.
    pub needed: bool,
}

impl KindStatus {
    fn new(kind: &'static str, needed: bool) -> Self {
        Self { kind, synced: false, heard: None, lists: 0, restarts: 0, error: None, objects: 0, needed }
    }

    /// Combines the states of two parts of a kind; the less synchronized part determines the result.
    fn join(&mut self, other: Self) {
        self.synced &= other.synced;
        self.heard = self.heard.min(other.heard);
        self.lists += other.lists.saturating_sub(1);
        self.restarts += other.restarts;
        self.error = self.error.take().or(other.error);
        self.objects += other.objects;
    }
}

/// Stream of the objects of an API server. Dropping it ends the watches.
pub struct ApiWatch {
    pub(super) plane: ControlPlane,
    gateway_api: GatewayApiMode,
    /// Whether there is a GatewayClass of this installation.
    wants_gateways: AtomicBool,
    sync: Arc<SyncState>,
    discovery: Arc<Discovery>,
    subscriptions: Vec<Arc<dyn Subscription>>,
    tasks: JoinSet<()>,
}

/// Starts to watch the wanted kinds of an API server, on the current Tokio runtime.
pub fn watch(connection: &Connection, wanted: Wanted, limits: WatchLimits) -> ApiWatch {
    let kinds = KINDS.iter().filter(|row| wanted.includes(row)).count();
    let discovery = Arc::new(Discovery::new(&limits));
    let watch = ApiWatch {
        plane: wanted.plane,
        gateway_api: wanted.gateway_api,
        wants_gateways: AtomicBool::new(false),
        sync: Arc::new(SyncState::of(kinds)),
        discovery: Arc::clone(&discovery),
        subscriptions: Vec::new(),
        tasks: JoinSet::new(),
    };
    let mut starter = Starter { watch, connection, limits, wanted, discovery, definitions: BTreeMap::new() };
    visit_kinds(&mut starter);
    starter.discover();
    starter.watch
}

/// Starts a watch for each wanted kind.
struct Starter<'a> {
    watch: ApiWatch,
    connection: &'a Connection,
    limits: WatchLimits,
    wanted: Wanted,
    discovery: Arc<Discovery>,
    /// Definitions to look for, by plural.
    definitions: BTreeMap<&'static str, Definition>,
}

impl KindVisitor for Starter<'_> {
    fn visit<K: Kind>(&mut self) {
        let definition = self.wanted.definition(&K::ROW);
        if self.wanted.includes(&K::ROW) {
            let requires = definition.map(|definition| Requirement {
                definition,
                mode: self.wanted.gateway_api,
                discovery: Arc::clone(&self.discovery),
            });
            self.definitions.extend(definition.map(|it| (it.plural, it)));
            self.watch.follow::<K>(self.connection, self.limits, requires);
        }
    }
}

impl Starter<'_> {
    /// Starts to look for definitions, if any kind requires one.
    fn discover(&mut self) {
        let definitions: Vec<_> = std::mem::take(&mut self.definitions).into_values().collect();
        if !definitions.is_empty() {
            let discovery = Arc::clone(&self.discovery);
            self.watch.tasks.spawn(discovery.follow(self.connection.clone(), self.limits, definitions));
        }
    }
}

impl ApiWatch {
    fn follow<K: Kind>(
        &mut self,
        connection: &Connection,
        limits: WatchLimits,
        requires: Option<Requirement>,
    ) {
        let conditional = requires.is_some();
        let kept = Arc::new(Cache::<K>::new(self.sync.clone(), conditional));
        self.subscriptions.push(kept.clone());
        let following = Reflector::new(connection.clone(), limits, kept.clone(), requires).follow();
        self.tasks.spawn(async move {
            let excusing = async {
                // A list in progress is waited for, however long it is: a gateway that takes over must not start without it.
                while conditional && !kept.is_counted() {
                    tokio::time::sleep(limits.spared).await;
                    if kept.is_awaited_in_vain() {
                        kept.excuse();
                    }
                }
                if K::ROW.need == Need::Spared {
                    tokio::time::sleep(limits.spared).await;
                    kept.excuse();
                }
            };
            tokio::join!(following, excusing);
        });
    }

    /// All changes since the last call. The first batch comes after the first complete list of every wanted kind and contains all
    /// objects. Returns `None` if no more changes can come, as when the runtime ends. Cancel safe.
    pub async fn next(&mut self) -> Option<Batch> {
        loop {
            if self.sync.is_synced()
                && let Some(batch) = self.take()
            {
                return Some(batch);
            }
            tokio::select! {
                () = self.sync.arrived.notified() => {}
                _ = self.tasks.join_next() => return None,
            }
        }
    }

    /// Problems of objects that cannot be decoded, and of kinds that are not installed or not permitted; sorted.
    pub fn problems(&self) -> Vec<Problem> {
        let hidden = self.hides_gateway_api();
        let shown = self.subscriptions.iter().filter(|it| !(hidden && it.is_conditional()));
        let mut problems: Vec<Problem> = shown.flat_map(|it| it.problems()).collect();
        if self.wants_gateways.load(Ordering::Relaxed) {
            problems.extend(self.subscriptions.iter().filter_map(|it| it.absence()));
        }
        problems.sort();
        // A missing kind of which two parts are watched has its Problem twice.
        problems.dedup();
        problems
    }

    /// Synchronization state of each wanted kind.
    pub fn kinds(&self) -> Vec<KindStatus> {
        let hidden = self.hides_gateway_api();
        let mut kinds: Vec<KindStatus> = Vec::new();
        for subscription in &self.subscriptions {
            let mut status = subscription.status();
            if self.wants_gateways.load(Ordering::Relaxed) {
                status.error = status.error.or_else(|| Some(subscription.absence()?.message));
            }
            // Of another purpose, or part of a kind that is known without it.
            let is_unused = subscription.is_built_in() && (subscription.is_absent() || status.lists == 0);
            if subscription.is_conditional() && (hidden || is_unused) {
                continue;
            }
            match kinds.iter_mut().find(|known| known.kind == status.kind) {
                Some(known) => known.join(status),
                None => kinds.push(status),
            }
        }
        kinds
    }

    /// Says whether there is a GatewayClass of this installation: a missing kind of the Gateway API is then a Problem.
    pub fn set_gateways_wanted(&self, wanted: bool) {
        self.wants_gateways.store(wanted, Ordering::Relaxed);
    }

    /// Whether no kind of the Gateway API, and no ServiceImport, is awaited any more: each was listed once, or the server does not have
    /// or permit it. Always true if none is watched.
    pub fn gateway_api_is_listed(&self) -> bool {
        !self.subscriptions.iter().filter(|it| it.is_conditional()).any(|it| is_awaited(&**it))
    }

    /// Whether an object of the kind that no batch has contained does not exist, as opposed to kinds that cannot be read.
    pub fn knows_all<K: Kind>(&self) -> bool {
        self.of::<K>().all(|it| it.is_taken() || it.is_absent())
    }

    /// Whether Gateways and their classes are followed, and each kind that [`Self::gateway_api_is_listed`] asks for is listed.
    pub fn reads_gateways(&self) -> bool {
        let necessary = [GatewayClasses::ROW.resource.kind, Gateways::ROW.resource.kind];
        let followed = self.subscriptions.iter().filter(|it| it.is_followed()).map(|it| it.status().kind);
        followed.filter(|kind| necessary.contains(kind)).count() == necessary.len()
            && self.gateway_api_is_listed()
    }

    /// Whether a list of the kind is among the batches so far.
    pub fn has_listed<K: Kind>(&self) -> bool {
        self.of::<K>().any(|it| it.is_taken())
    }

    /// Whether the server may have objects of the kind that no batch has contained yet. Of a kind that it lacks, or has refused for a
    /// while, nothing is expected.
    pub fn awaits<K: Kind>(&self) -> bool {
        self.of::<K>().any(|it| is_awaited(&**it))
    }

    /// Whether the configuration asks for the kind. The server may lack it.
    pub(super) fn watches<K: Kind>(&self) -> bool {
        // Two kinds of Works share the name of a line.
        self.of::<K>().any(|it| it.row().selector == K::ROW.selector)
    }

    fn of<K: Kind>(&self) -> impl Iterator<Item = &Arc<dyn Subscription>> {
        self.subscriptions.iter().filter(|it| it.row().line == K::ROW.line)
    }

    /// Where to tell it which kinds the controller reads.
    pub fn hints(&self) -> KindHints {
        self.discovery.hints.clone()
    }

    /// Plurals of the kinds that are read, once it is known which there are.
    pub fn read_kinds(&self) -> Option<BTreeSet<&'static str>> {
        let followed =
            || self.subscriptions.iter().filter(|it| it.is_followed()).map(|it| it.row().resource.plural);
        self.gateway_api_is_listed().then(|| followed().collect())
    }

    /// Whether to report nothing about the Gateway API, because it is not known to be wanted: no kind of it could ever be read.
    fn hides_gateway_api(&self) -> bool {
        let own = self.subscriptions.iter().filter(|it| it.is_conditional() && !it.is_built_in());
        self.gateway_api == GatewayApiMode::Auto && own.map(|it| it.status().lists).all(|lists| lists == 0)
    }

    /// Whether objects of the kind cannot be read at present.
    pub fn fails<K: Kind>(&self) -> bool {
        let kind = K::ROW.resource.kind;
        self.kinds().iter().any(|status| status.kind == kind && status.error.is_some())
    }

    /// Completes as soon as something fails before everything is known, so that a gateway with a snapshot can serve from that.
    /// Once everything is known, it never completes. The future does not borrow from `self`, so it can be awaited concurrently
    /// with [`Self::next`].
    pub fn first_failure(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut start = self.sync.start.subscribe();
        async move {
            if start.wait_for(|start| *start == Start::Failed).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn take(&self) -> Option<Batch> {
        // All changes arrived before this.
        let mut batch = Batch { changes: Vec::new(), received: Instant::now(), triggered: Vec::new() };
        let mut any = false;
        for subscription in &self.subscriptions {
            any |= subscription.take(&mut batch);
        }
        any.then_some(batch)
    }
}

/// Whether the kind may be listed soon.
fn is_awaited(kind: &dyn Subscription) -> bool {
    !kind.is_taken() && !kind.is_absent() && !kind.is_refused()
}

#[cfg(test)]
pub(crate) mod tests;
