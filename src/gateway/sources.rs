//! From sources to the store: folders of manifests, or API servers with what keeps their objects through an outage. One source
//! is of the cluster that this runs in, and another may be of a Karmada control plane. It must not know what is made of the
//! objects.

mod api;

use std::sync::Arc;
use std::time::Instant;

use sheave_control::api::problem::{ObjectRef, Problem};
use sheave_control::api::store::ControlPlane;
use sheave_control::api::store::Store;
use sheave_control::projection::Role;
use sheave_control::sources::manifests::{FileWatch, Loaded, Origin};

pub(crate) use self::api::ApiSource;
use self::api::ApiUpdate;
use crate::views::problem::ProblemView;
use crate::views::status::{GuardView, SourceView, collect};

/// Where objects come from.
pub(crate) struct Sources {
    local: SourceAdapter,
    /// Of a Karmada control plane, if there is one.
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
    /// What it said last. None before the first time.
    loaded: Option<Arc<Loaded>>,
}

/// What a source has to say; [`Sources::take`] makes something of it.
pub(crate) struct SourceUpdate {
    /// Of which source.
    pub(super) part: ControlPlane,
    pub(super) said: Update,
}

pub(super) enum Update {
    /// The folder.
    Files(Arc<Loaded>),
    /// The API server, or what stands in for it.
    Api(ApiUpdate),
}

impl SourceUpdate {
    /// When it came.
    pub(super) fn received(&self) -> Instant {
        match &self.said {
            Update::Api(ApiUpdate::Batch(batch)) => batch.received,
            Update::Files(_) | Update::Api(_) => Instant::now(),
        }
    }
}

impl Sources {
    /// What there is to take in.
    pub(crate) fn new(local: SourceAdapter, karmada: Option<SourceAdapter>) -> Self {
        Self { local, karmada }
    }

    /// Who decides about addresses, if the objects come from here.
    pub(super) fn role(&self) -> Role {
        match self.local {
            SourceAdapter::Files(_) => Role::Standalone,
            SourceAdapter::Api(_) => Role::Gateway,
        }
    }

    fn sources(&self) -> impl Iterator<Item = &SourceAdapter> {
        std::iter::once(&self.local).chain(&self.karmada)
    }

    /// Waits for something new. Cancel safe. None only at the end of the runtime.
    pub(crate) async fn next(&mut self, store: &Store) -> Option<SourceUpdate> {
        let news = |part| move |said| SourceUpdate { part, said };
        let Some(karmada) = &mut self.karmada else {
            return self.local.next(store).await.map(news(ControlPlane::Local));
        };
        tokio::select! {
            said = self.local.next(store) => said.map(news(ControlPlane::Local)),
            said = karmada.next(store) => said.map(news(ControlPlane::Karmada)),
        }
    }

    /// Takes it into the store.
    pub(crate) fn take(&mut self, SourceUpdate { part, said }: SourceUpdate, store: &mut Store) {
        let source = match part {
            ControlPlane::Local => Some(&mut self.local),
            ControlPlane::Karmada => self.karmada.as_mut(),
        };
        match (source, said) {
            (Some(SourceAdapter::Files(files)), Update::Files(loaded)) => {
                store.replace_part(part, &loaded.objects);
                files.loaded = Some(loaded);
            }
            (Some(SourceAdapter::Api(api)), Update::Api(news)) => api.take(news, store),
            (None, _)
            | (Some(SourceAdapter::Files(_)), Update::Api(_))
            | (Some(SourceAdapter::Api(_)), Update::Files(_)) => {}
        }
    }

    /// What was taken in last is in force now.
    pub(super) fn in_force(&mut self) {
        for source in std::iter::once(&mut self.local).chain(&mut self.karmada) {
            if let SourceAdapter::Api(api) = source {
                api.in_force();
            }
        }
    }

    /// Whether every source has said something.
    pub(super) fn has_spoken(&self) -> bool {
        self.sources().all(|source| match source {
            SourceAdapter::Files(files) => files.loaded.is_some(),
            SourceAdapter::Api(api) => api.missing().is_none(),
        })
    }

    /// What keeps it from saying what is there, if anything does.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        self.sources().find_map(SourceAdapter::missing)
    }

    /// Whether some objects are read from files.
    pub(super) fn reads_files(&self) -> bool {
        self.sources().any(|source| matches!(source, SourceAdapter::Files(_)))
    }

    /// What is wrong with the sources themselves, or with objects that they could not read.
    pub(crate) fn problems(&self) -> Vec<ProblemView> {
        self.sources().flat_map(SourceAdapter::problems).collect()
    }

    /// A Problem of an object, with the manifest that the object is from.
    pub(crate) fn place(&self, problem: &Problem) -> ProblemView {
        ProblemView::new(problem, self.sources().find_map(|source| source.origin(&problem.object)))
    }

    /// What the status says of it.
    pub(super) fn view(&self, store: &Store) -> SourceView {
        self.local.view(ControlPlane::Local, store)
    }

    /// The same of the Karmada control plane, if there is one.
    pub(super) fn karmada_view(&self, store: &Store) -> Option<SourceView> {
        Some(self.karmada.as_ref()?.view(ControlPlane::Karmada, store))
    }

    /// Lists that it doubts.
    pub(super) fn doubts(&self) -> Vec<GuardView> {
        let doubts = |source| match source {
            &SourceAdapter::Files(_) => Vec::new(),
            SourceAdapter::Api(api) => api.doubts(),
        };
        self.sources().flat_map(doubts).collect()
    }

    /// Leaves behind what the next process starts from.
    pub(crate) async fn finish(&mut self, store: &Store) {
        for source in std::iter::once(&mut self.local).chain(&mut self.karmada) {
            if let SourceAdapter::Api(api) = source {
                api.finish(store.objects()).await;
            }
        }
    }
}

impl SourceAdapter {
    /// A folder, or a single file.
    pub(crate) fn files(watch: FileWatch) -> Self {
        Self::Files(FileSource { watch, loaded: None })
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
                Some("the manifest folder could not be listed yet; see the problems in /api/routes")
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

    fn origin(&self, object: &ObjectRef) -> Option<&Origin> {
        match self {
            Self::Files(files) => files.loaded.as_ref()?.origins.of(object),
            Self::Api(_) => None,
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
