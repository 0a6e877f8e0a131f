//! Sources of objects: API servers, folders of manifests, and the snapshot on disk. Each source fills [`crate::api::store`], and
//! distinguishes a failed list from an empty one.

pub mod api_server;
mod api_source;
pub mod connection;
pub mod manifests;
pub mod mass_deletion_guard;
pub mod port_forward;
pub mod snapshot;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::api_server::{Batch, KindStatus};
pub use self::api_source::ApiSource;
use self::manifests::{FieldLines, FileWatch, Loaded, Origins};
use self::mass_deletion_guard::HeldKind;
use self::snapshot::Snapshot;
use crate::api::kinds::{Kind, MultiClusterServices, Services, Slices};
use crate::api::problem::ObjectRef;
use crate::api::store::{Change, ControlPlane, Objects, Store};

/// Sources of one process.
pub struct Sources {
    /// Source of the gateways' own cluster.
    pub local: Source,
    /// Source of the Karmada control plane, if there is one.
    pub karmada: Option<Source>,
}

/// Source of the objects of one control plane.
pub enum Source {
    /// Manifests.
    Files(FileSource),
    /// An API server.
    Api(Box<ApiSource>),
}

/// Watched folder of manifests.
pub struct FileSource {
    watch: FileWatch,
    /// Contents that were read last; `None` before the first read.
    loaded: Option<Arc<Loaded>>,
    lines: Box<Mutex<FieldLineCache>>,
}

/// Lines of the fields with Problems, cached since the text of the files is not kept.
#[derive(Default)]
struct FieldLineCache {
    files: Option<FieldLines>,
    known: HashMap<(ObjectRef, String), Option<u32>>,
}

/// Update of one source, which [`Sources::take`] applies.
#[derive(Debug)]
pub struct SourceUpdate {
    /// Control plane of the source.
    pub plane: ControlPlane,
    /// The update itself.
    pub update: Update,
}

/// Objects or changes that a source has.
#[derive(Debug)]
pub enum Update {
    /// Contents of the folder.
    Files(Arc<Loaded>),
    /// Changes from the API server.
    Batch(Batch),
    /// Lists that the guard held back and now releases.
    Released(Vec<Change>),
    /// Last known state of an API server that is unreachable.
    Away(Box<Snapshot>),
}

impl SourceUpdate {
    /// Time when the update arrived.
    pub fn received(&self) -> Instant {
        match &self.update {
            Update::Batch(batch) => batch.received,
            Update::Files(_) | Update::Released(_) | Update::Away(_) => Instant::now(),
        }
    }
}

impl Sources {
    fn all(&self) -> impl Iterator<Item = &Source> {
        std::iter::once(&self.local).chain(&self.karmada)
    }

    /// API servers among the sources.
    pub fn api_servers(&self) -> impl Iterator<Item = &ApiSource> {
        self.all().filter_map(Source::api_server)
    }

    /// Folders among the sources.
    pub fn folders(&self) -> impl Iterator<Item = &FileSource> {
        self.all().filter_map(|source| match source {
            Source::Files(files) => Some(files),
            Source::Api(_) => None,
        })
    }

    fn api_servers_mut(&mut self) -> impl Iterator<Item = &mut ApiSource> {
        std::iter::once(&mut self.local).chain(&mut self.karmada).filter_map(|source| match source {
            Source::Files(_) => None,
            Source::Api(api) => Some(&mut **api),
        })
    }

    /// Waits for the next update. Writes due snapshots of `objects` meanwhile. Cancel safe. `None` only at the end of the runtime.
    pub async fn next(&mut self, objects: &Objects) -> Option<SourceUpdate> {
        let karmada = async {
            match &mut self.karmada {
                Some(karmada) => karmada.next(objects).await,
                None => std::future::pending().await,
            }
        };
        let (plane, update) = tokio::select! {
            update = self.local.next(objects) => (ControlPlane::Local, update?),
            update = karmada => (ControlPlane::Karmada, update?),
        };
        Some(SourceUpdate { plane, update })
    }

    /// Applies an update to the store. Each change of an API server passes its guard, and then `admit`.
    pub fn take(
        &mut self,
        SourceUpdate { plane, update }: SourceUpdate,
        store: &mut Store,
        admit: impl FnMut(Change) -> Option<Change>,
    ) {
        let source = match plane {
            ControlPlane::Local => Some(&mut self.local),
            ControlPlane::Karmada => self.karmada.as_mut(),
        };
        match (source, update) {
            (Some(Source::Files(files)), Update::Files(loaded)) => {
                store.replace_part(plane, &loaded.objects);
                files.loaded = Some(loaded);
                *files.lines = Mutex::default();
            }
            (Some(Source::Api(api)), update) => api.take(update, store, admit),
            (None | Some(Source::Files(_)), _) => {}
        }
    }

    /// Times of the events that led to the last update. Each is returned once.
    pub fn take_triggers(&mut self) -> impl Iterator<Item = Timestamp> {
        self.api_servers_mut().flat_map(ApiSource::take_triggers)
    }

    /// Whether every source has been listed, or has a snapshot in its place.
    pub fn is_loaded(&self) -> bool {
        self.all().all(|source| match source {
            Source::Files(files) => files.loaded.is_some(),
            Source::Api(api) => api.missing().is_none(),
        })
    }

    /// Reason why the sources are not loaded yet, if any.
    pub fn missing(&self) -> Option<&'static str> {
        self.all().find_map(|source| match source {
            Source::Files(files) => files.missing(),
            Source::Api(api) => api.missing(),
        })
    }

    /// Whether a snapshot replaces an API server.
    pub fn stands_on_snapshot(&self) -> bool {
        self.api_servers().any(ApiSource::stands_on_snapshot)
    }

    /// Whether Services or endpoints, or the MultiClusterServices of a Karmada control plane, can no longer be read.
    pub fn is_cut_off(&self) -> bool {
        self.api_servers().any(|api| {
            let watch = api.watch();
            api.stands_on_snapshot()
                || watch.fails::<Services>()
                || watch.fails::<Slices>()
                || watch.fails::<MultiClusterServices>()
        })
    }

    /// Sets how long lists that lack most known objects are held back.
    pub fn set_mass_deletion_hold(&mut self, hold: Duration) {
        self.api_servers_mut().for_each(|api| api.set_mass_deletion_hold(hold));
    }

    /// Lists that the guards hold back.
    pub fn held_lists(&self) -> Vec<HeldKind> {
        self.api_servers().flat_map(ApiSource::held_lists).collect()
    }

    /// Writes the snapshots that the next process starts from.
    pub async fn finish(&mut self, objects: &Objects) {
        for api in self.api_servers_mut() {
            api.finish(objects).await;
        }
    }
}

impl Source {
    /// Source for a folder or a single file.
    pub fn files(watch: FileWatch) -> Self {
        Self::Files(FileSource { watch, loaded: None, lines: Box::default() })
    }

    /// Source for an API server.
    pub fn api(source: ApiSource) -> Self {
        Self::Api(Box::new(source))
    }

    /// The API server, if it is one.
    pub fn api_server(&self) -> Option<&ApiSource> {
        match self {
            Self::Files(_) => None,
            Self::Api(api) => Some(api),
        }
    }

    /// Whether all objects come from the source itself, not from a snapshot.
    pub fn is_listed(&self) -> bool {
        match self {
            Self::Files(files) => files.is_listed(),
            Self::Api(api) => api.is_listed(),
        }
    }

    /// Whether no kind of the Gateway API is awaited any more. Some may be unreadable.
    pub fn gateway_api_is_listed(&self) -> bool {
        match self {
            Self::Files(files) => files.is_listed(),
            Self::Api(api) => api.is_listed() && api.watch().gateway_api_is_listed(),
        }
    }

    /// Whether the kind was listed by the source itself, and its objects were taken.
    pub fn has_listed<K: Kind>(&self) -> bool {
        match self {
            Self::Files(files) => files.is_listed(),
            Self::Api(api) => api.is_listed() && api.watch().has_listed::<K>(),
        }
    }

    /// Whether an object of the kind that is not in the store does not exist.
    pub fn knows_all<K: Kind>(&self) -> bool {
        match self {
            Self::Files(files) => files.is_listed(),
            Self::Api(api) => api.is_listed() && api.watch().knows_all::<K>(),
        }
    }

    /// Whether there may be objects of the kind that are not known yet.
    pub fn awaits<K: Kind>(&self) -> bool {
        match self {
            Self::Files(files) => !files.is_listed(),
            Self::Api(api) => !api.is_listed() || api.watch().awaits::<K>(),
        }
    }

    /// Whether Gateways are read, and each kind of the Gateway API that exists beside them.
    pub fn reads_gateways(&self) -> bool {
        match self {
            Self::Files(files) => files.is_listed(),
            Self::Api(api) => api.is_listed() && api.watch().reads_gateways(),
        }
    }

    /// When an API server was last heard about a kind.
    pub fn heard(&self, kind: &str) -> Option<Instant> {
        self.kinds().into_iter().find(|status| status.kind == kind)?.heard
    }

    /// Plurals of the kinds that are read from an API server, once it is known which there are.
    pub fn read_kinds(&self) -> Option<BTreeSet<&'static str>> {
        self.api_server().filter(|api| api.is_listed())?.watch().read_kinds()
    }

    /// Synchronization state of each kind of an API server.
    pub fn kinds(&self) -> Vec<KindStatus> {
        self.api_server().map(|api| api.watch().kinds()).unwrap_or_default()
    }

    async fn next(&mut self, objects: &Objects) -> Option<Update> {
        match self {
            Self::Files(files) => files.watch.next().await.map(Update::Files),
            Self::Api(api) => api.next(objects).await,
        }
    }
}

impl FileSource {
    /// Whether the folder could be listed.
    pub fn is_listed(&self) -> bool {
        self.loaded().is_some_and(|loaded| loaded.listed)
    }

    /// Contents that were read last, if any.
    pub fn loaded(&self) -> Option<&Loaded> {
        self.loaded.as_deref()
    }

    /// Line of a field in the manifest of the object.
    pub fn line(&self, origins: &Origins, object: &ObjectRef, field: &str) -> Option<u32> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let FieldLineCache { files, known } = &mut *lines;
        let files = files.get_or_insert_with(|| self.watch.field_lines());
        *known.entry((object.clone(), field.to_owned())).or_insert_with(|| files.line(origins, object, field))
    }

    fn missing(&self) -> Option<&'static str> {
        match self.loaded() {
            None => Some("no objects have been read yet"),
            Some(loaded) if !loaded.listed => {
                Some("the manifest folder cannot be listed; see the problems in /api/routes")
            }
            Some(_) => None,
        }
    }
}
