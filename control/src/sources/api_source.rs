//! API server behind its guard against lists that lack nearly everything, with a snapshot that replaces it while it is
//! unreachable.

use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Resource as _;
use tokio::time::sleep_until;

use super::Update;
use super::api_server::ApiWatch;
use super::connection::Connection;
use super::mass_deletion_guard::{HeldKind, MassDeletionGuard};
use super::snapshot::{self, Identity, Snapshot, SnapshotWriter};
use crate::api::kinds::{Kind, KindVisitor, object_key, visit_kinds};
use crate::api::objects::Collection as _;
use crate::api::store::{Change, ControlPlane, Delta, Objects, Store};
use crate::time::wait_until;

/// How long to wait for the server before it counts as unreachable. A refused connection counts at once.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the process waits at its end for the disk.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Source of one API server's objects.
pub struct ApiSource {
    server: Arc<str>,
    watch: ApiWatch,
    guard: MassDeletionGuard,
    /// Writer of the snapshot, if there is one.
    snapshots: Option<SnapshotWriter>,
    stand_in: StandIn,
    /// Times of the events that led to the last update.
    triggers: Vec<Timestamp>,
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

impl ApiSource {
    /// Source without a snapshot. Lists that lack most known objects are held back for `hold`.
    pub fn new(connection: &Connection, watch: ApiWatch, hold: Duration) -> Self {
        Self {
            server: connection.server(),
            watch,
            guard: MassDeletionGuard::new(hold),
            snapshots: None,
            stand_in: StandIn::Awaited { since: Instant::now(), stored: None },
            triggers: Vec::new(),
        }
    }

    /// Adds the snapshot of this `cluster` in `directory`, which is read at once. That blocks on the disk.
    #[must_use]
    pub fn with_snapshot(self, connection: &Connection, directory: &Path, cluster: &str) -> Self {
        let identity = Identity {
            part: self.watch.plane,
            server: self.server.as_ref().to_owned(),
            cluster: cluster.to_owned(),
            authorities: connection.authorities().as_ref().clone(),
        };
        let mut stored = snapshot::read(directory, &identity).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            None
        });
        if let Some(stored) = &mut stored {
            visit_kinds(&mut UnwatchedKinds { watch: &self.watch, stored: &mut stored.objects });
        }
        let written = stored.as_ref().map(|stored| stored.written_at);
        let stand_in = StandIn::Awaited { since: Instant::now(), stored: stored.map(Box::new) };
        Self { snapshots: Some(SnapshotWriter::new(directory, identity, written)), stand_in, ..self }
    }

    /// URL of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Watches of the server.
    pub fn watch(&self) -> &ApiWatch {
        &self.watch
    }

    /// Writer of the snapshot, if there is one.
    pub fn snapshots(&self) -> Option<&SnapshotWriter> {
        self.snapshots.as_ref()
    }

    /// Whether the objects are those of a snapshot.
    pub fn stands_on_snapshot(&self) -> bool {
        matches!(self.stand_in, StandIn::Snapshot)
    }

    pub(super) fn is_listed(&self) -> bool {
        matches!(self.stand_in, StandIn::Over)
    }

    pub(super) fn set_mass_deletion_hold(&mut self, hold: Duration) {
        self.guard.set_hold(hold);
    }

    pub(super) fn held_lists(&self) -> Vec<HeldKind> {
        self.guard.holding()
    }

    pub(super) fn missing(&self) -> Option<&'static str> {
        match (&self.stand_in, self.watch.plane) {
            (StandIn::Snapshot | StandIn::Over, _) => None,
            (_, ControlPlane::Local) => {
                Some("objects have not been listed from the API server yet; see /api/status")
            }
            (_, ControlPlane::Karmada) => {
                Some("objects have not been listed from the Karmada API server yet; see /api/status")
            }
        }
    }

    /// Waits for the next update, and writes the snapshot of `objects` when due. Cancel safe.
    pub(super) async fn next(&mut self, objects: &Objects) -> Option<Update> {
        loop {
            let due = self.guard.due();
            let failure = self.watch.first_failure();
            tokio::select! {
                batch = self.watch.next() => return batch.map(Update::Batch),
                () = wait_until(due) => return Some(Update::Released(self.guard.release(Instant::now()))),
                writer = snapshot_due(&mut self.snapshots) => writer.start(objects),
                stored = away(&mut self.stand_in, failure) => return Some(Update::Away(stored)),
            }
        }
    }

    pub(super) fn take(
        &mut self,
        update: Update,
        store: &mut Store,
        mut admit: impl FnMut(Change) -> Option<Change>,
    ) {
        self.triggers.clear();
        match update {
            Update::Batch(batch) => {
                if self.stands_on_snapshot() {
                    tracing::info!(
                        server = %self.server,
                        "the API server answers again: the snapshot is no longer used"
                    );
                }
                let before = mem::replace(&mut self.stand_in, StandIn::Over);
                self.triggers = batch.triggered;
                for change in stored_kinds(before).into_iter().chain(batch.changes) {
                    let guarded = self.guard.admit(change, store.objects(), Instant::now());
                    admit(guarded).into_iter().for_each(|change| store.apply(change));
                }
                if !store.is_clean() {
                    self.snapshots.iter_mut().for_each(SnapshotWriter::changed);
                }
            }
            Update::Released(changes) => {
                changes.into_iter().filter_map(admit).for_each(|change| store.apply(change));
                self.snapshots.iter_mut().for_each(SnapshotWriter::changed);
            }
            Update::Away(stored) => {
                tracing::warn!(
                    server = %self.server, written = %stored.written_at,
                    "the API server does not answer: serving its last known objects from the snapshot"
                );
                store.replace_part(self.watch.plane, &stored.objects);
            }
            Update::Files(_) => {}
        }
    }

    pub(super) fn take_triggers(&mut self) -> impl Iterator<Item = Timestamp> + use<'_> {
        self.triggers.drain(..)
    }

    pub(super) async fn finish(&mut self, objects: &Objects) {
        if self.is_listed()
            && let Some(snapshots) = &mut self.snapshots
            && tokio::time::timeout(LAST_WRITE, snapshots.flush(objects)).await.is_err()
        {
            tracing::warn!("the snapshot was not written in time; the previous one is kept");
        }
    }
}

/// Objects of the snapshot for the start, if the server has listed everything necessary before the snapshot was needed. Of kinds that may
/// fail alone and were not listed yet, their last known state is better than none. Of the others, the guard has to know what there was:
/// a server that lists nothing may do so at a start as well.
fn stored_kinds(stand_in: StandIn) -> Vec<Change> {
    let StandIn::Awaited { stored: Some(stored), .. } = stand_in else { return Vec::new() };
    let mut kinds = StoredKinds { stored: &stored.objects, known: Vec::new() };
    visit_kinds(&mut kinds);
    kinds.known
}

/// Collects the stored objects of each kind.
struct StoredKinds<'a> {
    stored: &'a Objects,
    known: Vec<Change>,
}

impl KindVisitor for StoredKinds<'_> {
    fn visit<K: Kind>(&mut self) {
        let objects: Vec<_> = K::all(self.stored).cloned().collect();
        if !objects.is_empty() {
            self.known.push(K::change(Delta::All(objects)));
        }
    }
}

/// Removes the stored objects of kinds that are not watched, because the configuration no longer asks for them. No list of the server
/// would ever replace them, and an empty one in its place would look like a mass deletion to the guard.
struct UnwatchedKinds<'a> {
    watch: &'a ApiWatch,
    stored: &'a mut Objects,
}

impl KindVisitor for UnwatchedKinds<'_> {
    fn visit<K: Kind>(&mut self) {
        if self.watch.watches::<K>() {
            return;
        }
        let unwatched: Vec<_> = K::all(self.stored).cloned().collect();
        for object in &unwatched {
            if let Some(owner) = K::owner(object) {
                K::collection_mut(self.stored).remove(&owner, &object_key(object.meta()));
            }
        }
    }
}

/// Waits until the snapshot should be written. Cancel safe.
async fn snapshot_due(snapshots: &mut Option<SnapshotWriter>) -> &mut SnapshotWriter {
    let Some(snapshots) = snapshots else { return std::future::pending().await };
    snapshots.due().await;
    snapshots
}

/// Waits until the server counts as unreachable, if there is a snapshot, and returns the snapshot. Cancel safe.
async fn away(stand_in: &mut StandIn, failure: impl Future<Output = ()>) -> Box<Snapshot> {
    let StandIn::Awaited { since, stored: Some(_) } = stand_in else { return std::future::pending().await };
    tokio::select! {
        () = failure => {}
        () = sleep_until((*since + PATIENCE).into()) => {}
    }
    match mem::replace(stand_in, StandIn::Snapshot) {
        StandIn::Awaited { stored: Some(stored), .. } => stored,
        StandIn::Awaited { stored: None, .. } | StandIn::Snapshot | StandIn::Over => {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests;
