//! Replacing one file of a directory as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::api::store::ControlPlane;

/// Who serves what is nobody else's business.
const FILE_MODE: u32 = 0o600;
/// As the file's, for a directory.
const DIR_MODE: u32 = 0o700;

/// The file's name.
pub(super) fn name(part: ControlPlane) -> &'static str {
    match part {
        ControlPlane::Local => "snapshot.jsonl",
        ControlPlane::Karmada => "karmada.jsonl",
    }
}

/// What files begin with that are being written. One writer must not take the other's for leftovers.
fn temporary(part: ControlPlane) -> &'static str {
    match part {
        ControlPlane::Local => ".snapshot-",
        ControlPlane::Karmada => ".karmada-",
    }
}

/// A file under a name of its own until it is complete; removed if it does not get that far.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    /// The name is random: in containers every gateway has process number 1, and during a roll-out two of them may share
    /// the directory.
    fn create(dir: &Path, part: ControlPlane) -> io::Result<Self> {
        let path = dir.join(format!("{}{:016x}", temporary(part), fastrand::u64(..)));
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing under this name any more.
        fs::remove_file(&self.path).ok();
    }
}

/// The file for reading. What is no regular file is refused: opening a FIFO would wait for somebody to write into it, and
/// devices have no end.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}

/// Puts what `fill` writes in place of the file, and returns once that would survive a power failure: the file's
/// contents are on the disk before its name is, and its name before this returns (rename(2), fsync(2)).
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

/// Only the last part of the path is made: where more is missing, a mount or a correct path is missing.
fn ensure(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Err(error) if !dir.is_dir() => Err(error),
        _ => Ok(()),
    }
}

/// Removes what a process left that was killed while it wrote. Another one that writes at this moment fails for once and
/// tries again.
pub(super) fn remove_leftovers(dir: &Path, part: ControlPlane) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(temporary(part).as_bytes()) {
            // What cannot be removed is in nobody's way.
            fs::remove_file(entry.path()).ok();
        }
    }
}
