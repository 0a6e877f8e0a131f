//! Invariants of every projection and its Problems, whatever the objects are.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use sheave_control::api::problem::Problem;
use sheave_control::api::store::{ControlPlane, Dirty, Objects};
use sheave_control::projection::{Options, Projector};
use sheave_control::sources::manifests;
use sheave_model::{Candidate, Frontend, FrontendKind, Route};
use tempfile::TempDir;

/// Maximum length of a message in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

/// A temporary folder, in memory if possible, since most of the work would otherwise be for the disk.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn scratch() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

/// Manifest file that is rewritten for each input.
pub(crate) struct Manifest {
    path: PathBuf,
    _folder: TempDir,
}

impl Manifest {
    /// Creates the file; the extension of `name` decides how it is read.
    ///
    /// # Errors
    /// If there is no temporary folder.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let folder = scratch()?;
        Ok(Self { path: folder.path().join(name), _folder: folder })
    }

    /// Reads and projects `bytes` like a gateway, and checks the invariants.
    ///
    /// # Panics
    /// If one is violated, or the file cannot be written.
    pub(crate) fn check(&self, of: ControlPlane, bytes: &[u8]) {
        std::fs::write(&self.path, bytes).expect("the temporary folder can be written");
        let loaded = manifests::load_of(of, &self.path);
        assert!(loaded.listed);
        loaded.problems.iter().for_each(|told| check_problem(&told.problem));
        check(&loaded.objects);
    }
}

/// Projects the objects like a gateway, and checks the invariants.
///
/// # Panics
/// If one is violated.
pub(crate) fn check(objects: &Objects) {
    let frontends = project(objects);
    assert_eq!(frontends, project(objects), "the same objects give the same table");
    for frontend in &frontends {
        check_route(frontend, &frontend.external);
        check_route(frontend, &frontend.internal);
    }
}

fn project(objects: &Objects) -> Vec<Frontend> {
    let options = Options {
        node: "gw-1".to_owned(),
        handle_unclassified: true,
        frontends: [
            FrontendKind::LoadBalancer,
            FrontendKind::ExternalIp,
            FrontendKind::NodePort,
            FrontendKind::ClusterIp,
        ]
        .into(),
        external_ips_allow: vec!["0.0.0.0/0".parse().expect("a CIDR"), "::/0".parse().expect("a CIDR")],
        accept_proxy_allow: vec!["0.0.0.0/0".parse().expect("a CIDR"), "::/0".parse().expect("a CIDR")],
        ..Options::default()
    };
    let projection = Projector::new(options).project(objects, &Dirty::Everything);
    projection.problem_changes.came.iter().for_each(|problem| check_problem(problem));
    projection.table.frontends().iter().map(|frontend| Frontend::clone(frontend)).collect()
}

/// Checks that a message is short, since it goes into conditions, Events and the log.
fn check_problem(problem: &Problem) {
    assert!(!problem.message.is_empty() && problem.message.len() <= MAX_MESSAGE_BYTES, "{problem}");
}

fn check_route(frontend: &Frontend, route: &Route) {
    let Route::Forward(candidates) = route else { return };
    assert!(!candidates.is_empty(), "forwarding needs an endpoint");
    let distinct: BTreeSet<Candidate> = candidates.iter().copied().collect();
    assert_eq!(distinct.len(), candidates.len(), "no endpoint is chosen twice");
    let states: BTreeSet<String> =
        candidates.iter().map(|candidate| format!("{:?}", frontend.endpoint(*candidate).state)).collect();
    assert_eq!(states.len(), 1, "terminating endpoints are chosen only where none is ready");
}
