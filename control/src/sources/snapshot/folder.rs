//! Atomic replacement of a file in a directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::api::store::ControlPlane;

/// Mode of the file: its contents are only for the owner.
const FILE_MODE: u32 = 0o600;
/// Mode of the directory, for the same reason.
const DIR_MODE: u32 = 0o700;

/// Name of the file.
pub(super) fn name(part: ControlPlane) -> &'static str {
    match part {
        ControlPlane::Local => "snapshot.jsonl",
        ControlPlane::Karmada => "karmada.jsonl",
    }
}

/// Prefix of files that are being written. It differs for each file, because writers remove leftovers of their own.
fn temporary(part: ControlPlane) -> &'static str {
    match part {
        ControlPlane::Local => ".snapshot-",
        ControlPlane::Karmada => ".karmada-",
    }
}

/// A file with a temporary name, which is removed unless it is renamed.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    /// Creates a file with a random name: in containers every gateway has process ID 1, and during a rollout two of them may
    /// share the directory.
    fn create(dir: &Path, part: ControlPlane) -> io::Result<Self> {
        let path = dir.join(format!("{}{:016x}", temporary(part), fastrand::u64(..)));
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is no file with this name.
        fs::remove_file(&self.path).ok();
    }
}

/// Opens the file for reading. Anything but a regular file is refused: opening a FIFO would wait for a writer, and devices have
/// no end.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}

/// Replaces the file by what `fill` writes, and returns once that would survive a power failure: the contents are synced before
/// the rename, and the rename before this function returns (rename(2), fsync(2)).
pub(super) fn replace(
    dir: &Path,
    part: ControlPlane,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    ensure(dir)?;
    let temporary = Temporary::create(dir, part)?;
    fill(&temporary.file)?;
    temporary.file.sync_all()?;
    fs::rename(&temporary.path, dir.join(name(part)))?;
    File::open(dir)?.sync_all()
}

/// Creates only the last part of the path: if more is missing, a mount is missing or the path is wrong.
fn ensure(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Err(error) if !dir.is_dir() => Err(error),
        _ => Ok(()),
    }
}

/// Removes files of a process that was killed during a write. A process that is writing at the same moment fails once and tries
/// again.
pub(super) fn remove_leftovers(dir: &Path, part: ControlPlane) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(temporary(part).as_bytes()) {
            // Files that cannot be removed do no harm.
            fs::remove_file(entry.path()).ok();
        }
    }
}
