//! The last good input on disk, so that a gateway which starts while the API server is away serves what it served before.
//!
//! One file, `snapshot.jsonl`, in the state directory, and beside it `karmada.jsonl` with what a Karmada control plane said:
//! either server may be away alone, and each file stands in for its own. In each a header line, one object per line, and a last line with the number
//! of objects and a CRC-32 of all before it. The CRC is against torn writes and failing disks: a single flipped bit in an
//! address would otherwise send clients somewhere else without anybody noticing. It is no signature; who may write the
//! state directory may decide what is served, which is why the file is for its owner alone.
//!
//! Whatever is not exactly what this version wrote about this cluster is not used: a gateway that waits for the API
//! server is better than one that serves another cluster's Services.

mod folder;
mod format;
mod writer;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use thiserror::Error;

pub use self::writer::SnapshotWriter;
use crate::api::store::{ControlPlane, Objects};

/// Which API server and cluster objects are from. Prints as it stands behind "cluster".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Which of the objects.
    pub part: ControlPlane,
    /// The API server's URL.
    pub server: String,
    /// The cluster's name, as configured.
    pub cluster: String,
    /// As [`crate::sources::connection::Connection::authorities`]: in every cluster Pods know the API server by much the same address, and
    /// few clusters are given a name. Empty where none are known, as in snapshots of older versions.
    pub authorities: BTreeSet<String>,
}

impl Identity {
    /// Whether both are of the same cluster, as far as is known. While an authority is replaced, old and new are trusted.
    fn agrees(&self, other: &Self) -> bool {
        let unknown = self.authorities.is_empty() || other.authorities.is_empty();
        (self.part, &self.server, &self.cluster) == (other.part, &other.server, &other.cluster)
            && (unknown || !self.authorities.is_disjoint(&other.authorities))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.cluster, self.server)?;
        let mut authorities = self.authorities.iter();
        match authorities.next() {
            Some(first) => {
                write!(f, " (certificate authority {first}")?;
                authorities.try_for_each(|other| write!(f, ", {other}"))?;
                f.write_str(")")
            }
            None => Ok(()),
        }
    }
}

/// What the API server said last.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Where it is from.
    pub identity: Identity,
    /// When it was written.
    pub written_at: Timestamp,
    /// The version of Sheave that wrote it.
    pub sheave: String,
    /// The objects. Times have whole seconds, as the API has them.
    pub objects: Objects,
}

/// Why there is no snapshot to use, or none could be kept.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file is there but cannot be read.
    #[error("{} cannot be read: {error}; it is not used, and the gateway waits for the API server", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not what was written.
    #[error("{} is damaged: {why}; it is not used, and the gateway waits for the API server", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
    /// Another version of Sheave wrote it in a format of its own.
    #[error(
        "{} has format {found}, and this version knows format {} alone; it is not used, and the gateway waits for the \
         API server", path.display(), format::VERSION
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It is about another cluster.
    #[error(
        "{} is from cluster {found}, and this gateway serves cluster {expected}; it is not used, and the gateway waits for \
         the API server", path.display()
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// What it is about.
        found: Box<Identity>,
        /// What it should be about.
        expected: Box<Identity>,
    },
    /// The state directory does not take it. The file that was there before is as it was.
    #[error("{} cannot be written: {error}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl SnapshotError {
    /// What lets the next try succeed, as part of a sentence; `dir` is the state directory.
    fn advice(&self, dir: &Path) -> String {
        match self {
            Self::Unwritable { error, .. }
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                format!("free space for it in {}", dir.display())
            }
            Self::Unwritable { path, error } if error.kind() == io::ErrorKind::IsADirectory => {
                format!("remove the directory {}", path.display())
            }
            _ => format!("make {} writable", dir.display()),
        }
    }
}

/// Where the snapshot is in the state directory `dir`.
pub fn path(dir: &Path, part: ControlPlane) -> PathBuf {
    dir.join(folder::name(part))
}

/// Writes the snapshot into `dir`, in place of the one there, and answers when that was. It is either there as a whole
/// and on the disk, or not at all. `dir` is made if only the last part of its path is missing. Blocks on the disk.
///
/// # Errors
/// [`SnapshotError::Unwritable`]: as open(2), write(2), fsync(2) and rename(2).
pub fn write(dir: &Path, identity: &Identity, objects: &Objects) -> Result<Timestamp, SnapshotError> {
    let written_at = Timestamp::now();
    let header = format::Header::new(identity, written_at);
    folder::replace(dir, identity.part, |file| {
        let mut out = BufWriter::new(file);
        format::encode(&header, objects, identity.part, &mut out)?;
        out.into_inner().map(drop).map_err(io::IntoInnerError::into_error)
    })
    .map_err(|error| SnapshotError::Unwritable { path: path(dir, identity.part), error })?;
    Ok(written_at)
}

/// Reads the snapshot in `dir`, if there is one and it is about `identity`. Blocks on the disk.
///
/// # Errors
/// If it cannot be used: it is never used in part.
pub fn read(dir: &Path, identity: &Identity) -> Result<Option<Snapshot>, SnapshotError> {
    let path = path(dir, identity.part);
    let file = match folder::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SnapshotError::Unreadable { path, error }),
    };
    format::decode(BufReader::new(file), identity).map(Some).map_err(|error| error.at(path))
}

#[cfg(test)]
mod tests;
