//! From a source to the store: a folder of manifests, or an API server with what keeps its objects through an outage. It
//! must not know what is made of the objects.

mod api;

use std::sync::Arc;
use std::time::Instant;

use sheave_control::problem::{ObjectRef, Problem};
use sheave_control::projection::Placement;
use sheave_control::source::files::{FileWatch, Loaded, Origin};
use sheave_control::store::Store;

pub(crate) use self::api::ApiIntake;
use self::api::ApiNews;
use crate::routes::ProblemView;
use crate::status::{GuardView, SourceView, facts};

/// Where objects come from.
pub(crate) enum Intake {
    /// Manifests.
    Files(FilesIntake),
    /// An API server.
    Api(Box<ApiIntake>),
}

/// A watched folder of manifests.
pub(crate) struct FilesIntake {
    watch: FileWatch,
    /// What it said last. None before the first time.
    loaded: Option<Arc<Loaded>>,
}

/// What a source has to say; [`Intake::take`] makes something of it.
pub(crate) enum News {
    /// The folder.
    Files(Arc<Loaded>),
    /// The API server, or what stands in for it.
    Api(ApiNews),
}

impl News {
    /// When it came.
    pub(super) fn received(&self) -> Instant {
        match self {
            Self::Api(ApiNews::Batch(batch)) => batch.received,
            Self::Files(_) | Self::Api(_) => Instant::now(),
        }
    }
}

impl Intake {
    /// Who decides about addresses, if the objects come from here.
    pub(super) fn placement(&self) -> Placement {
        match self {
            Self::Files(_) => Placement::Alone,
            Self::Api(_) => Placement::Published,
        }
    }

    /// A folder, or a single file.
    pub(crate) fn files(watch: FileWatch) -> Self {
        Self::Files(FilesIntake { watch, loaded: None })
    }

    /// Waits for something new. Cancel safe. None only at the end of the runtime.
    pub(crate) async fn next(&mut self, store: &Store) -> Option<News> {
        match self {
            Self::Files(files) => files.watch.next().await.map(News::Files),
            Self::Api(api) => api.next(store.objects()).await.map(News::Api),
        }
    }

    /// Takes it into the store.
    pub(crate) fn take(&mut self, news: News, store: &mut Store) {
        match (self, news) {
            (Self::Files(files), News::Files(loaded)) => {
                store.replace(loaded.objects.clone());
                files.loaded = Some(loaded);
            }
            (Self::Api(api), News::Api(news)) => api.take(news, store),
            (Self::Files(_), News::Api(_)) | (Self::Api(_), News::Files(_)) => {}
        }
    }

    /// What was taken in last is in force now.
    pub(super) fn in_force(&mut self) {
        match self {
            Self::Files(_) => {}
            Self::Api(api) => api.in_force(),
        }
    }

    /// What keeps it from saying what is there, if anything does.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        match self {
            Self::Files(FilesIntake { loaded: None, .. }) => Some("no objects have been read yet"),
            Self::Files(FilesIntake { loaded: Some(loaded), .. }) if !loaded.listed => {
                Some("the manifest folder could not be listed yet; see the problems in /api/routes")
            }
            Self::Files(_) => None,
            Self::Api(api) => api.missing(),
        }
    }

    /// What is wrong with the source itself, or with objects that it could not read.
    pub(crate) fn problems(&self) -> Vec<ProblemView> {
        match self {
            Self::Files(files) => {
                files.loaded.iter().flat_map(|loaded| &loaded.problems).map(ProblemView::from).collect()
            }
            Self::Api(api) => api.problems().iter().map(|problem| ProblemView::new(problem, None)).collect(),
        }
    }

    /// A Problem of an object, with the manifest that the object is from.
    pub(crate) fn place(&self, problem: &Problem) -> ProblemView {
        ProblemView::new(problem, self.origin(&problem.object))
    }

    fn origin(&self, object: &ObjectRef) -> Option<&Origin> {
        match self {
            Self::Files(files) => files.loaded.as_ref()?.origins.of(object),
            Self::Api(_) => None,
        }
    }

    /// What the status says of it.
    pub(super) fn view(&self, store: &Store) -> SourceView {
        match self {
            Self::Files(files) => {
                let listed = files.loaded.as_ref().is_some_and(|loaded| loaded.listed);
                facts::of_manifests(store.objects(), listed)
            }
            Self::Api(api) => api.view(store.objects()),
        }
    }

    /// Lists that it doubts.
    pub(super) fn doubts(&self) -> Vec<GuardView> {
        match self {
            Self::Files(_) => Vec::new(),
            Self::Api(api) => api.doubts(),
        }
    }

    /// Leaves behind what the next process starts from.
    pub(crate) async fn finish(&mut self, store: &Store) {
        match self {
            Self::Files(_) => {}
            Self::Api(api) => api.finish(store.objects()).await,
        }
    }
}
