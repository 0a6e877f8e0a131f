//! What holds for every projection and its Problems, whatever the objects are.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use sheave_control::api::problem::Problem;
use sheave_control::api::store::{ControlPlane, Dirty, Objects};
use sheave_control::projection::{Options, Projector};
use sheave_control::sources::manifests;
use sheave_model::{Candidate, Frontend, FrontendKind, Route};
use tempfile::TempDir;

/// Bytes of a message, at most.
pub(crate) const LONGEST_MESSAGE: usize = 1024;

/// A folder that is gone with the process, in memory if there is such a place: a disk would be most of the work.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn scratch() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

/// A manifest file that is written anew for each input.
pub(crate) struct Manifest {
    path: PathBuf,
    _folder: TempDir,
}

impl Manifest {
    /// `name` says by its ending how the file is read.
    ///
    /// # Errors
    /// If there is no temporary folder.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let folder = scratch()?;
        Ok(Self { path: folder.path().join(name), _folder: folder })
    }

    /// Reads and projects `bytes` as a gateway would, and checks what has to hold.
    ///
    /// # Panics
    /// If it does not hold, or the file cannot be written.
    pub(crate) fn check(&self, of: ControlPlane, bytes: &[u8]) {
        std::fs::write(&self.path, bytes).expect("the temporary folder can be written");
        let loaded = manifests::load_of(of, &self.path);
        assert!(loaded.listed);
        loaded.problems.iter().for_each(|told| check_problem(&told.problem));
        check(&loaded.objects);
    }
}

/// Projects the objects as a gateway would, and checks what has to hold.
///
/// # Panics
/// If it does not hold.
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

/// What ends in conditions, Events and the log is short.
fn check_problem(problem: &Problem) {
    assert!(!problem.message.is_empty() && problem.message.len() <= LONGEST_MESSAGE, "{problem}");
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
