//! What holds for every projection, whatever the objects are. It must not know how the objects came to be.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use sheave_control::projection::{Options, Projector};
use sheave_control::source::files;
use sheave_control::store::{Dirty, Objects};
use sheave_dataplane::model::{Candidate, Frontend, FrontendKind, Route};
use tempfile::TempDir;

/// A manifest file that is written anew for each input.
pub struct Manifest {
    path: PathBuf,
    _folder: TempDir,
}

impl Manifest {
    /// `name` says by its ending how the file is read.
    ///
    /// # Errors
    /// If there is no temporary folder.
    pub fn new(name: &str) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self { path: folder.path().join(name), _folder: folder })
    }

    /// Reads and projects `bytes` as a gateway would, and checks what has to hold.
    ///
    /// # Panics
    /// If it does not hold, or the file cannot be written.
    pub fn check(&self, bytes: &[u8]) {
        std::fs::write(&self.path, bytes).expect("the temporary folder can be written");
        check(&self.path);
    }
}

fn check(path: &Path) {
    let loaded = files::load(path);
    assert!(loaded.listed);
    assert!(loaded.problems.iter().all(|told| !told.problem.message.is_empty()));
    let frontends = project(&loaded.objects);
    assert_eq!(frontends, project(&loaded.objects), "the same objects give the same table");
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
        ..Options::default()
    };
    let projection = Projector::new(options).project(objects, &Dirty::Everything);
    assert!(projection.problem_changes.came.iter().all(|problem| !problem.message.is_empty()));
    projection.table.frontends().iter().map(|frontend| Frontend::clone(frontend)).collect()
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
