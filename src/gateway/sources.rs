//! Sources of objects: folders of manifests or API servers, of the gateway's own cluster and of a Karmada control plane. They fill the
//! store.

mod api;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sheave_console::views::problem::ProblemView;
use sheave_console::views::status::{GuardView, KindView, SourceView, collect};
use sheave_control::api::problem::{ObjectRef, Problem};
use sheave_control::api::store::ControlPlane;
use sheave_control::api::store::Store;
use sheave_control::projection::Role;
use sheave_control::sources::manifests::{FieldLines, FileWatch, Loaded};

pub(crate) use self::api::ApiSource;
use self::api::ApiUpdate;

/// All sources.
pub(crate) struct Sources {
    local: SourceAdapter,
    /// Source of the Karmada control plane, if there is one.
    karmada: Option<SourceAdapter>,
}

/// One source.
pub(crate) enum SourceAdapter {
    /// Manifests.
    Files(FileSource),
    /// An API server.
    Api(Box<ApiSource>),
}

/// A watched folder of manifests.
pub(crate) struct FileSource {
    watch: FileWatch,
    /// Contents that were read last; `None` before the first read.
    loaded: Option<Arc<Loaded>>,
    lines: Box<Mutex<Lines>>,
}

/// Lines of the fields with Problems, cached since the text of the files is not kept.
#[derive(Default)]
struct Lines {
    files: Option<FieldLines>,
    known: HashMap<(ObjectRef, String), Option<u32>>,
}

impl FileSource {
    /// A Problem of an object of these manifests, with its line.
    fn place(&self, problem: &Problem) -> Option<ProblemView> {
        let origins = &self.loaded.as_ref()?.origins;
        ProblemView::in_manifest(problem, origins, |object, field| {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let Lines { files, known } = &mut *lines;
            let place = (object.clone(), field.to_owned());
            let files = files.get_or_insert_with(|| self.watch.field_lines());
            *known.entry(place).or_insert_with(|| files.line(origins, object, field))
        })
    }
}

/// An update of one source, which [`Sources::take`] applies.
pub(crate) struct SourceUpdate {
    /// Source of the update.
    pub(super) part: ControlPlane,
    pub(super) update: Update,
}

pub(super) enum Update {
    /// Contents of the folder.
    Files(Arc<Loaded>),
    /// Update of the API server or the snapshot.
    Api(ApiUpdate),
}

impl SourceUpdate {
    /// Time when the update arrived.
    pub(super) fn received(&self) -> Instant {
        match &self.update {
            Update::Api(ApiUpdate::Batch(batch)) => batch.received,
            Update::Files(_) | Update::Api(_) => Instant::now(),
        }
    }
}

impl Sources {
    /// Combines the sources.
    pub(crate) fn new(local: SourceAdapter, karmada: Option<SourceAdapter>) -> Self {
        Self { local, karmada }
    }

    /// Role in allocating addresses that follows from the local source.
    pub(super) fn role(&self) -> Role {
        match self.local {
            SourceAdapter::Files(_) => Role::Standalone,
            SourceAdapter::Api(_) => Role::Gateway,
        }
    }

    fn sources(&self) -> impl Iterator<Item = &SourceAdapter> {
        std::iter::once(&self.local).chain(&self.karmada)
    }

    /// Waits for the next update. Cancel safe. `None` only at the end of the runtime.
    pub(crate) async fn next(&mut self, store: &Store) -> Option<SourceUpdate> {
        let of = |part| move |update| SourceUpdate { part, update };
        let Some(karmada) = &mut self.karmada else {
            return self.local.next(store).await.map(of(ControlPlane::Local));
        };
        tokio::select! {
            update = self.local.next(store) => update.map(of(ControlPlane::Local)),
            update = karmada.next(store) => update.map(of(ControlPlane::Karmada)),
        }
    }

    /// Applies an update to the store.
    pub(crate) fn take(&mut self, SourceUpdate { part, update }: SourceUpdate, store: &mut Store) {
        let source = match part {
            ControlPlane::Local => Some(&mut self.local),
            ControlPlane::Karmada => self.karmada.as_mut(),
        };
        match (source, update) {
            (Some(SourceAdapter::Files(files)), Update::Files(loaded)) => {
                store.replace_part(part, &loaded.objects);
                files.loaded = Some(loaded);
                *files.lines = Mutex::default();
            }
            (Some(SourceAdapter::Api(api)), Update::Api(update)) => api.take(update, store),
            (None, _)
            | (Some(SourceAdapter::Files(_)), Update::Api(_))
            | (Some(SourceAdapter::Api(_)), Update::Files(_)) => {}
        }
    }

    /// Marks the last update as applied, for latency metrics.
    pub(super) fn mark_applied(&mut self) {
        for source in std::iter::once(&mut self.local).chain(&mut self.karmada) {
            if let SourceAdapter::Api(api) = source {
                api.mark_applied();
            }
        }
    }

    /// Whether every source has been listed, or has a snapshot in its place.
    pub(super) fn is_loaded(&self) -> bool {
        self.sources().all(|source| match source {
            SourceAdapter::Files(files) => files.loaded.is_some(),
            SourceAdapter::Api(api) => api.missing().is_none(),
        })
    }

    /// Whether a snapshot replaces an API server.
    pub(super) fn stands_on_snapshot(&self) -> bool {
        self.sources().any(|source| match source {
            SourceAdapter::Files(_) => false,
            SourceAdapter::Api(api) => api.stands_on_snapshot(),
        })
    }

    /// Whether the API server of the gateway's own cluster is unreachable.
    pub(super) fn is_cut_off(&self, store: &Store) -> bool {
        let needed = |kind: &KindView| ["Service", "EndpointSlice"].contains(&kind.kind.as_str());
        match &self.local {
            SourceAdapter::Files(_) => false,
            SourceAdapter::Api(api) => {
                let kinds = api.view(store.objects()).kinds;
                api.stands_on_snapshot() || kinds.iter().any(|kind| needed(kind) && kind.error.is_some())
            }
        }
    }

    /// Sets how long lists that lack most known objects are held back.
    pub(super) fn set_mass_deletion_hold(&mut self, hold: Duration) {
        for source in std::iter::once(&mut self.local).chain(&mut self.karmada) {
            if let SourceAdapter::Api(api) = source {
                api.set_mass_deletion_hold(hold);
            }
        }
    }

    /// Reason why the sources are not loaded yet, if any.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        self.sources().find_map(SourceAdapter::missing)
    }

    /// Whether some objects are read from files.
    pub(super) fn reads_files(&self) -> bool {
        self.sources().any(|source| matches!(source, SourceAdapter::Files(_)))
    }

    /// Problems of the sources themselves, and of objects that they could not read.
    pub(crate) fn problems(&self) -> Vec<ProblemView> {
        self.sources().flat_map(SourceAdapter::problems).collect()
    }

    /// A Problem of an object, with its manifest and the line of the field.
    pub(crate) fn place(&self, problem: &Problem) -> ProblemView {
        let placed = self.sources().find_map(|source| match source {
            SourceAdapter::Files(files) => files.place(problem),
            SourceAdapter::Api(_) => None,
        });
        placed.unwrap_or_else(|| ProblemView::new(problem, None))
    }

    /// View of the local source for the status.
    pub(super) fn view(&self, store: &Store) -> SourceView {
        self.local.view(ControlPlane::Local, store)
    }

    /// View of the Karmada source for the status, if there is one.
    pub(super) fn karmada_view(&self, store: &Store) -> Option<SourceView> {
        Some(self.karmada.as_ref()?.view(ControlPlane::Karmada, store))
    }

    /// Lists that the guard holds back.
    pub(super) fn held_lists(&self) -> Vec<GuardView> {
        let held_lists = |source| match source {
            &SourceAdapter::Files(_) => Vec::new(),
            SourceAdapter::Api(api) => api.held_lists(),
        };
        self.sources().flat_map(held_lists).collect()
    }

    /// Writes the snapshots that the next process starts from.
    pub(crate) async fn finish(&mut self, store: &Store) {
        for source in std::iter::once(&mut self.local).chain(&mut self.karmada) {
            if let SourceAdapter::Api(api) = source {
                api.finish(store.objects()).await;
            }
        }
    }
}

impl SourceAdapter {
    /// Source for a folder or a single file.
    pub(crate) fn files(watch: FileWatch) -> Self {
        Self::Files(FileSource { watch, loaded: None, lines: Box::default() })
    }

    async fn next(&mut self, store: &Store) -> Option<Update> {
        match self {
            Self::Files(files) => files.watch.next().await.map(Update::Files),
            Self::Api(api) => api.next(store.objects()).await.map(Update::Api),
        }
    }

    fn missing(&self) -> Option<&'static str> {
        match self {
            Self::Files(FileSource { loaded: None, .. }) => Some("no objects have been read yet"),
            Self::Files(FileSource { loaded: Some(loaded), .. }) if !loaded.listed => {
                Some("the manifest folder cannot be listed; see the problems in /api/routes")
            }
            Self::Files(_) => None,
            Self::Api(api) => api.missing(),
        }
    }

    fn problems(&self) -> Vec<ProblemView> {
        match self {
            Self::Files(files) => {
                files.loaded.iter().flat_map(|loaded| &loaded.problems).map(ProblemView::from).collect()
            }
            Self::Api(api) => api.problems().iter().map(|problem| ProblemView::new(problem, None)).collect(),
        }
    }

    fn view(&self, part: ControlPlane, store: &Store) -> SourceView {
        match self {
            Self::Files(files) => {
                let listed = files.loaded.as_ref().is_some_and(|loaded| loaded.listed);
                collect::of_manifests(part, store.objects(), listed)
            }
            Self::Api(api) => api.view(store.objects()),
        }
    }
}
