//! Folder of manifests as a source of objects: the same YAML that `kubectl` accepts, read once or watched.
//!
//! Every `.yaml`, `.yml` and `.json` file directly in the folder is read, in the order of the names, with any number of documents
//! and lists. A mistake has the smallest possible effect: it becomes a [`FileProblem`] with its location, everything else is
//! used, and a file that was valid before stays in effect unchanged.

mod document;
mod field_lines;
mod folder;
mod known_file;
mod line;
mod manifest;
mod origin;
mod raw;
mod watch;

use std::path::Path;

pub use self::field_lines::FieldLines;
pub use self::origin::{FILE, FileProblem, Origin, Origins};
pub use self::raw::{RawManifests, RawObject};
pub use self::watch::{FileWatch, watch, watch_of};
use crate::api::store::{ControlPlane, Objects};

/// Contents of a folder of manifests.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Whether the folder was listed at least once. Until then an empty set of objects means that they are unknown, not that
    /// there are none.
    pub listed: bool,
    /// The objects in effect. Across loads, equal objects keep their `Arc`.
    pub objects: Objects,
    /// Problems of the files, by file and document.
    pub problems: Vec<FileProblem>,
    /// Origins of the objects, for the locations of Problems that the projection finds later.
    pub origins: Origins,
    /// Number of objects of kinds that are not used.
    pub passed_over: usize,
}

/// How often a file that is being written is read again before its text is used as it is. There is no pause: this is for commands
/// that run once, and running one while its input is being written gives an arbitrary state in any case.
const TRIES: usize = 100;

/// Reads the folder, or the single file, once. A folder that cannot be listed becomes a Problem, too.
pub fn load(path: &Path) -> Loaded {
    load_of(ControlPlane::Local, path)
}

/// Like [`load`], for manifests of this API server.
pub fn load_of(plane: ControlPlane, path: &Path) -> Loaded {
    let mut folder = folder::Folder::new(path.to_owned(), plane);
    for _ in 0..TRIES {
        if !folder.scan().unsettled {
            break;
        }
    }
    folder.loaded()
}
