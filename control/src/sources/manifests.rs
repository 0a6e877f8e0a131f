//! A folder of manifests as the source of objects: the same YAML that `kubectl` takes, read once or watched.
//!
//! Every `.yaml`, `.yml` and `.json` file directly in the folder counts, in the order of its name, whatever number of
//! documents and lists it holds. A mistake costs as little as possible: it is a [`FileProblem`] that says where it is,
//! everything else is used, and a file that was good before stays in effect as it was.

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

/// What a folder of manifests says.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Whether the folder could be listed at least once. Until then there are no objects because nothing is known of
    /// them, not because there are none.
    pub listed: bool,
    /// The objects in effect. From load to load, equal ones keep their `Arc`.
    pub objects: Objects,
    /// What is wrong with the files, by file and document.
    pub problems: Vec<FileProblem>,
    /// Where each object comes from, to place the Problems that the projection finds later.
    pub origins: Origins,
    /// How many objects are of kinds that we have no use for.
    pub passed_over: usize,
}

/// How often a file that is being written is read again before its text is taken for what it is. Without a pause: this
/// is for commands that run once, and who runs one while writing its input gets some state of it either way.
const TRIES: usize = 100;

/// Reads the folder, or the single file, once. A folder that cannot be listed is a Problem, too.
pub fn load(path: &Path) -> Loaded {
    load_of(ControlPlane::Local, path)
}

/// The same for a folder of these manifests.
pub fn load_of(plane: ControlPlane, path: &Path) -> Loaded {
    let mut folder = folder::Folder::new(path.to_owned(), plane);
    for _ in 0..TRIES {
        if !folder.scan().unsettled {
            break;
        }
    }
    folder.loaded()
}
