//! Folders of manifests, read and projected as in a gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sheave_control::api::problem::Problem;
use sheave_control::api::store::{ControlPlane, Objects, ServiceKey, Store};
use sheave_control::projection::{Projection, Projector};
use sheave_control::sources::manifests::{self, FieldLines, FileProblem, Loaded};
use sheave_dataplane::KernelPathErrors;
use sheave_dataplane::select::ActiveTable;
use sheave_model::RoutingTable;

use crate::arguments::Folders;
use crate::exit::Exit;
use crate::options::Options;
use crate::stdout::complain;
use crate::views::explain::{self, Answer, Basis, Question};
use crate::views::problem::ProblemView;
use crate::views::routes::RoutesView;

/// Contents of the folders.
pub(crate) struct Manifests {
    /// Contents by folder; the gateways' own cluster is first.
    folders: Vec<(PathBuf, ControlPlane, Loaded)>,
}

impl Manifests {
    pub(crate) fn load(folders: Folders<'_>) -> Self {
        let given = [(folders.local, ControlPlane::Local), (folders.karmada, ControlPlane::Karmada)];
        let load = |(path, of): (Option<&Path>, ControlPlane)| {
            path.map(|path| (path.to_owned(), of, manifests::load_of(of, path)))
        };
        Self { folders: given.into_iter().filter_map(load).collect() }
    }

    /// Reads folders, and reports the errors if a folder cannot be listed at all.
    pub(crate) fn read(folders: Folders<'_>) -> Result<Self, Exit> {
        let manifests = Self::load(folders);
        if manifests.folders.iter().all(|(_, _, loaded)| loaded.listed) {
            return Ok(manifests);
        }
        manifests.unlisted().for_each(|problem| complain(&problem.to_string()));
        Err(Exit::Data)
    }

    /// Adds addresses that load balancers have elsewhere, where the manifests have none.
    pub(crate) fn keeping_addresses(mut self, published: &BTreeMap<ServiceKey, Vec<IpAddr>>) -> Self {
        self.folders.iter_mut().for_each(|(_, _, loaded)| loaded.objects.keep_addresses(published));
        self
    }

    /// Number of objects.
    pub(crate) fn count(&self) -> usize {
        self.folders.iter().map(|(_, _, loaded)| loaded.origins.count()).sum()
    }

    /// Problems of folders that cannot be listed at all.
    fn unlisted(&self) -> impl Iterator<Item = &FileProblem> {
        let unlisted = self.folders.iter().filter(|(_, _, loaded)| !loaded.listed);
        unlisted.flat_map(|(_, _, loaded)| &loaded.problems)
    }

    /// Messages about folders without any relevant object.
    fn nothing_found(&self) -> Vec<String> {
        let empty = self.folders.iter().filter(|(_, _, loaded)| {
            loaded.listed && loaded.problems.is_empty() && loaded.objects == Objects::default()
        });
        let sentence = |(path, _, loaded): &(PathBuf, ControlPlane, Loaded)| match loaded.passed_over {
            0 => format!(
                "nothing was found in {}: manifests are the .yaml, .yml and .json files directly in it",
                path.display()
            ),
            count => format!(
                "nothing of a kind that Sheave reads was found in {}: {count} object{} of other kinds",
                path.display(),
                if count == 1 { "" } else { "s" }
            ),
        };
        empty.map(sentence).collect()
    }
}

/// Projection of manifests with this configuration.
pub(crate) struct ManifestProjection {
    manifests: Manifests,
    store: Store,
    projector: Projector,
    projection: Projection,
}

impl ManifestProjection {
    /// Reads and projects folders, and reports the errors if a folder cannot be listed at all.
    pub(crate) fn read(folders: Folders<'_>, config: &Options) -> Result<Self, Exit> {
        Manifests::read(folders).map(|manifests| Self::new(manifests, config))
    }

    /// Projects manifests.
    pub(crate) fn new(manifests: Manifests, config: &Options) -> Self {
        let mut store = Store::default();
        for (_, of, loaded) in &manifests.folders {
            store.replace_part(*of, &loaded.objects);
        }
        let dirty = store.take_dirty();
        let mut projector = Projector::new(config.projection.clone());
        projector.set_now(jiff::Timestamp::now());
        let projection = projector.project(store.objects(), &dirty);
        Self { manifests, store, projector, projection }
    }

    fn places(&self) -> ProblemPositions<'_> {
        ProblemPositions::of(self.manifests.folders.iter().map(|(path, _, loaded)| (path.as_path(), loaded)))
    }

    /// The routing table, its Problems and the load balancers that are not served.
    pub(crate) fn routes(&self, config: &Options) -> RoutesView {
        let Projection { table, health_checks, .. } = &self.projection;
        let mut places = self.places();
        let view = RoutesView::new(table, &config.projection.node, places.problems(&self.projection));
        let unserved = self.projector.unserved(self.store.objects());
        let not_served = unserved.iter().map(|note| places.place(note)).collect();
        view.publishing(self.projector.statuses(), health_checks, |_| false)
            .with_gateways(&self.projector, self.store.objects(), &BTreeSet::new())
            .noting(not_served, self.manifests.nothing_found())
    }

    /// Projects the same manifests anew, with addresses that load balancers have elsewhere where the manifests have none.
    pub(crate) fn projected_anew(
        self,
        published: &BTreeMap<ServiceKey, Vec<IpAddr>>,
        config: &Options,
    ) -> Self {
        Self::new(self.manifests.keeping_addresses(published), config)
    }

    /// The routing table.
    pub(crate) fn table(&self) -> &Arc<RoutingTable> {
        &self.projection.table
    }

    /// The objects of the manifests.
    pub(crate) fn objects(&self) -> &Objects {
        self.store.objects()
    }

    /// The Problems of files and of the projection.
    pub(crate) fn problems(&self) -> Vec<ProblemView> {
        self.places().problems(&self.projection)
    }

    /// Messages about folders without any relevant object.
    pub(crate) fn nothing_found(&self) -> Vec<String> {
        self.manifests.nothing_found()
    }

    /// Explains where a client goes, and why.
    pub(crate) fn explain(&self, question: &Question) -> Answer {
        let basis = Basis {
            projector: &self.projector,
            objects: self.store.objects(),
            active: &ActiveTable::compile(Arc::clone(&self.projection.table), &ActiveTable::default()),
            affinity: None,
            problems: &self.problems(),
            closed: &BTreeMap::new(),
            obstacle: None,
            no_client_addresses: None,
            no_kernel_path: &KernelPathErrors::NONE,
            announcements: None,
            now: Instant::now(),
        };
        explain::explain(question, basis)
    }
}

/// Looks up where in the manifests a Problem is.
pub(crate) struct ProblemPositions<'a> {
    folders: Vec<(&'a Path, &'a Loaded, FieldLines)>,
}

impl<'a> ProblemPositions<'a> {
    /// Looks up Problems in these folders or single files.
    pub(crate) fn of(folders: impl IntoIterator<Item = (&'a Path, &'a Loaded)>) -> Self {
        let folders = folders.into_iter();
        Self { folders: folders.map(|(path, loaded)| (path, loaded, FieldLines::of(path))).collect() }
    }

    /// The Problems of files and of the projection.
    pub(crate) fn problems(&mut self, projection: &Projection) -> Vec<ProblemView> {
        let of_files = self.folders.iter().flat_map(|(path, loaded, _)| {
            loaded.problems.iter().map(|problem| ProblemView::from(problem).within(path))
        });
        let mut problems: Vec<ProblemView> = of_files.collect();
        // The projection is the first one, so every Problem counts as new.
        problems.extend(projection.problem_changes.came.iter().map(|problem| self.place(problem)));
        problems
    }

    /// A Problem with the line of its field, if its object is in a file.
    fn place(&mut self, problem: &Problem) -> ProblemView {
        let placed = self.folders.iter_mut().find_map(|(path, loaded, lines)| {
            let line_of = |object: &_, field: &_| lines.line(&loaded.origins, object, field);
            Some(ProblemView::in_manifest(problem, &loaded.origins, line_of)?.within(path))
        });
        placed.unwrap_or_else(|| ProblemView::new(problem, None))
    }
}
