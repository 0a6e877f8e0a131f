//! API server as a source, with a snapshot that replaces it while it is unreachable, and a guard against lists that lack nearly
//! everything.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use sheave_console::http::metrics::families::PROGRAMMING_SECONDS;
use sheave_console::views::status::{GuardView, SourceView, collect};
use sheave_control::api::problem::Problem;
use sheave_control::api::store::{Change, ControlPlane, Delta, Objects, Store};
use sheave_control::sources::api_server::{self, ApiWatch, Batch, FleetWanted, Wanted};
use sheave_control::sources::connection::Connection;
use sheave_control::sources::mass_deletion_guard::Guard;
use sheave_control::sources::snapshot::{self, Identity, Snapshot, SnapshotWriter};
use sheave_control::time::wait_until;
use tokio::time::sleep_until;

use crate::config::{AnnounceMode, Config};

/// How long to wait for the server before it counts as unreachable. A refused connection counts at once.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the process waits at its end for the disk.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Source of one API server's objects.
pub(crate) struct ApiSource {
    part: ControlPlane,
    server: String,
    watch: ApiWatch,
    guard: Guard,
    snapshots: SnapshotWriter,
    stand_in: StandIn,
    /// Timestamps of the changes that were applied last.
    triggered: Vec<Timestamp>,
}

/// State of the replacement for the server, until it has listed everything.
enum StandIn {
    /// The server is awaited; a snapshot may be in stock.
    Awaited { since: Instant, stored: Option<Box<Snapshot>> },
    /// The snapshot is served.
    Snapshot,
    /// The server has listed everything.
    Over,
}

/// Updates of an API source.
pub(crate) enum ApiUpdate {
    /// Changes from the server.
    Batch(Batch),
    /// Lists that the guard held back and now releases.
    Released(Vec<Change>),
    /// The server is unreachable; this is its last known state.
    Away(Box<Snapshot>),
}

impl ApiSource {
    /// Watches the objects of the gateway's own cluster. Reads the snapshot, which blocks on the disk. Must be called inside a Tokio
    /// runtime.
    pub(crate) fn start(connection: &Connection, config: &Config) -> Self {
        // A gateway needs pools only to know where addresses are announced.
        let wanted = Wanted { namespaces: false, pools: config.announce.mode != AnnounceMode::None };
        Self::of(ControlPlane::Local, api_server::watch(connection, wanted), connection, config)
    }

    /// Watches the objects of a Karmada control plane.
    pub(crate) fn karmada(connection: &Connection, config: &Config) -> Self {
        let wanted = FleetWanted { service_works: config.karmada.service_works };
        Self::of(ControlPlane::Karmada, api_server::watch_fleet(connection, wanted), connection, config)
    }

    fn of(part: ControlPlane, watch: ApiWatch, connection: &Connection, config: &Config) -> Self {
        let server = connection.server().as_ref().to_owned();
        let authorities = connection.authorities().as_ref().clone();
        let identity =
            Identity { part, server: server.clone(), cluster: config.cluster.clone(), authorities };
        let stored = match snapshot::read(&config.state_dir, &identity) {
            Ok(stored) => stored,
            Err(error) => {
                tracing::warn!("{error}");
                None
            }
        };
        let written = stored.as_ref().map(|stored| stored.written_at);
        Self {
            part,
            server,
            watch,
            guard: Guard::new(config.mass_deletion_hold),
            snapshots: SnapshotWriter::new(&config.state_dir, identity, written),
            stand_in: StandIn::Awaited { since: Instant::now(), stored: stored.map(Box::new) },
            triggered: Vec::new(),
        }
    }

    pub(super) fn set_mass_deletion_hold(&mut self, hold: Duration) {
        self.guard.set_hold(hold);
    }

    /// Waits for the next update, and writes the snapshot of `objects` when due. Cancel safe.
    pub(super) async fn next(&mut self, objects: &Objects) -> Option<ApiUpdate> {
        loop {
            let due = self.guard.due();
            let failure = self.watch.first_failure();
            tokio::select! {
                batch = self.watch.next() => return batch.map(ApiUpdate::Batch),
                () = wait_until(due) => return Some(ApiUpdate::Released(self.guard.release(Instant::now()))),
                () = self.snapshots.due() => self.snapshots.start(objects),
                stored = away(&mut self.stand_in, failure) => return Some(ApiUpdate::Away(stored)),
            }
        }
    }

    pub(super) fn take(&mut self, update: ApiUpdate, store: &mut Store) {
        self.triggered.clear();
        match update {
            ApiUpdate::Batch(batch) => {
                if matches!(self.stand_in, StandIn::Snapshot) {
                    tracing::info!(
                        server = self.server,
                        "the API server answers again: the snapshot is no longer used"
                    );
                }
                let before = std::mem::replace(&mut self.stand_in, StandIn::Over);
                self.triggered = batch.triggered;
                for change in stored_clusters(before, &batch.changes).into_iter().chain(batch.changes) {
                    let admitted = self.guard.admit(change, store.objects(), Instant::now());
                    store.apply(admitted);
                }
                if !store.is_clean() {
                    self.snapshots.changed();
                }
            }
            ApiUpdate::Released(changes) => {
                changes.into_iter().for_each(|change| store.apply(change));
                self.snapshots.changed();
            }
            ApiUpdate::Away(stored) => {
                tracing::warn!(
                    server = self.server, written = %stored.written_at,
                    "the API server does not answer: serving its last known objects from the snapshot"
                );
                store.replace_part(self.part, &stored.objects);
            }
        }
    }

    /// Records the latency of the last update.
    pub(super) fn mark_applied(&mut self) {
        let now = Timestamp::now();
        for triggered in self.triggered.drain(..) {
            let took = now.duration_since(triggered).as_secs_f64();
            metrics::histogram!(PROGRAMMING_SECONDS.name).record(took.max(0.0));
        }
    }

    pub(super) fn missing(&self) -> Option<&'static str> {
        match (&self.stand_in, self.part) {
            (StandIn::Snapshot | StandIn::Over, _) => None,
            (_, ControlPlane::Local) => {
                Some("objects have not been listed from the API server yet; see /api/status")
            }
            (_, ControlPlane::Karmada) => {
                Some("objects have not been listed from the Karmada API server yet; see /api/status")
            }
        }
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        self.watch.problems()
    }

    /// Whether the objects are those of a snapshot.
    pub(super) fn stands_on_snapshot(&self) -> bool {
        matches!(self.stand_in, StandIn::Snapshot)
    }

    pub(super) fn view(&self, objects: &Objects) -> SourceView {
        let from_snapshot = self.stands_on_snapshot();
        let mut view = collect::of_api(&self.server, &self.watch.kinds());
        if from_snapshot {
            collect::recount(&mut view.kinds, self.part, objects);
        }
        SourceView { from_snapshot, snapshot: Some(collect::of_snapshots(&self.snapshots)), ..view }
    }

    pub(super) fn held_lists(&self) -> Vec<GuardView> {
        collect::of_guard(&self.guard.holding())
    }

    pub(super) async fn finish(&mut self, objects: &Objects) {
        if matches!(self.stand_in, StandIn::Over)
            && tokio::time::timeout(LAST_WRITE, self.snapshots.flush(objects)).await.is_err()
        {
            tracing::warn!("the snapshot was not written in time; the previous one is kept");
        }
    }
}

/// Clusters of the snapshot, if the server has listed everything but clusters before the snapshot was needed. They come from another
/// API, and their last known state is better than none.
fn stored_clusters(stand_in: StandIn, changes: &[Change]) -> Option<Change> {
    let StandIn::Awaited { stored: Some(stored), .. } = stand_in else { return None };
    let listed = changes.iter().any(|change| matches!(change, Change::Clusters(_)));
    let clusters: Vec<_> = stored.objects.fleet.clusters.into_values().collect();
    (!listed && !clusters.is_empty()).then_some(Change::Clusters(Delta::All(clusters)))
}

/// Waits until the server counts as unreachable, if there is a snapshot, and returns the snapshot. Cancel safe.
async fn away(stand_in: &mut StandIn, failure: impl Future<Output = ()>) -> Box<Snapshot> {
    let StandIn::Awaited { since, stored: Some(_) } = stand_in else { return std::future::pending().await };
    tokio::select! {
        () = failure => {}
        () = sleep_until((*since + PATIENCE).into()) => {}
    }
    match std::mem::replace(stand_in, StandIn::Snapshot) {
        StandIn::Awaited { stored: Some(stored), .. } => stored,
        StandIn::Awaited { stored: None, .. } | StandIn::Snapshot | StandIn::Over => {
            std::future::pending().await
        }
    }
}
