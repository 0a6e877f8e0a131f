//! Sources of a gateway's objects: which they are by the configuration, and their state for the status, the log and answers.

use std::fmt;
use std::path::Path;

use sheave_console::views::problem::ProblemView;
use sheave_console::views::status::{SourceView, collect};
use sheave_control::api::problem::Problem;
use sheave_control::api::store::{ControlPlane, Objects};
use sheave_control::sources::api_server::{self, Wanted, WatchLimits};
use sheave_control::sources::connection::Connection;
use sheave_control::sources::{ApiSource, FileSource, Source, Sources, manifests};

use crate::config::{AnnounceMode, Config};

/// Origin of the objects of one control plane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    /// A folder of manifests, or a single file.
    Manifests(&'a Path),
    /// An API server.
    Server(&'a Connection),
}

impl<'a> Origin<'a> {
    /// The manifests, or else the API server, if either is there.
    pub(crate) fn of(manifests: Option<&'a Path>, connection: Option<&'a Connection>) -> Option<Self> {
        manifests.map(Self::Manifests).or_else(|| connection.map(Self::Server))
    }
}

/// Path of the manifests, or URL of the server.
impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifests(path) => path.display().fmt(f),
            Self::Server(connection) => f.write_str(&connection.server()),
        }
    }
}

/// Starts the sources. Reads snapshots, which blocks on the disk. Must be called inside a Tokio runtime.
pub(crate) fn start(local: Origin<'_>, karmada: Option<Origin<'_>>, config: &Config) -> Sources {
    let start = |origin, wanted: Wanted| match origin {
        Origin::Manifests(path) => Source::files(manifests::watch_of(wanted.plane, path)),
        Origin::Server(connection) => {
            let watch = api_server::watch(connection, wanted, WatchLimits::default());
            let source = ApiSource::new(connection, watch, config.mass_deletion_hold);
            Source::api(source.with_snapshot(connection, &config.state_dir, &config.cluster))
        }
    };
    // A gateway needs pools only to know where addresses are announced.
    let pools = config.announce.mode != AnnounceMode::None;
    let gateway_api = config.gateway_api.mode;
    let service_works = config.karmada.service_works;
    let fleet = Wanted { service_works, ..Wanted::of(ControlPlane::Karmada) };
    Sources {
        local: start(local, Wanted { pools, gateway_api, ..Wanted::of(ControlPlane::Local) }),
        karmada: karmada.map(|origin| start(origin, fleet)),
    }
}

/// Problems of the sources themselves, and of objects that they could not read.
pub(crate) fn problems(sources: &Sources) -> Vec<ProblemView> {
    let files = sources.folders().filter_map(FileSource::loaded).flat_map(|loaded| &loaded.problems);
    let watches = sources.api_servers().flat_map(|api| api.watch().problems());
    files.map(ProblemView::from).chain(watches.map(|problem| ProblemView::new(&problem, None))).collect()
}

/// A Problem of an object, with its manifest and the line of the field.
pub(crate) fn place(sources: &Sources, problem: &Problem) -> ProblemView {
    let placed = sources.folders().find_map(|files| {
        let origins = &files.loaded()?.origins;
        ProblemView::in_manifest(problem, origins, |object, field| files.line(origins, object, field))
    });
    placed.unwrap_or_else(|| ProblemView::new(problem, None))
}

/// View of a source for the status.
pub(super) fn view(source: &Source, plane: ControlPlane, objects: &Objects) -> SourceView {
    let api = match source {
        Source::Files(files) => return collect::of_manifests(plane, objects, files.is_listed()),
        Source::Api(api) => api,
    };
    let from_snapshot = api.stands_on_snapshot();
    let mut view = collect::of_api(api.server(), &api.watch().kinds());
    if from_snapshot {
        collect::recount(&mut view.kinds, plane, objects);
    }
    SourceView { from_snapshot, snapshot: api.snapshots().map(collect::of_snapshots), ..view }
}
