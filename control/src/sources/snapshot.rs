//! Snapshot of the last good input on disk, so that a gateway which starts while the API server is unavailable serves what it
//! served before.
//!
//! The state directory has one file, `snapshot.jsonl`, and another, `karmada.jsonl`, for the objects of a Karmada control plane:
//! either server may be unavailable alone, and each file stands in for its own. Each file has a header line, one object on each
//! line, and a last line with the number of objects and a CRC-32 of everything before it. The CRC protects against torn writes
//! and failing disks: a single flipped bit in an address would otherwise silently send clients elsewhere. It is no signature;
//! whoever may write the state directory decides what is served, which is why only the owner may access the file.
//!
//! A file that is not exactly what this version wrote about this cluster is not used: waiting for the API server is better than
//! serving another cluster's Services.

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

/// The API server and cluster that objects come from. Displays as the text after "cluster".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The API server.
    pub part: ControlPlane,
    /// URL of the API server.
    pub server: String,
    /// Configured name of the cluster.
    pub cluster: String,
    /// See [`crate::sources::connection::Connection::authorities`]. In most clusters Pods reach the API server at the same
    /// address, and few clusters have a configured name. Empty if unknown, as in snapshots of older versions.
    pub authorities: BTreeSet<String>,
}

impl Identity {
    /// Whether both are the same cluster, as far as is known. During the replacement of an authority, both the old and the new
    /// one are trusted.
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

/// Last known objects of an API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The API server and cluster that they come from.
    pub identity: Identity,
    /// Time of the write.
    pub written_at: Timestamp,
    /// Version of Sheave that wrote it.
    pub sheave: String,
    /// The objects. Times have whole seconds, as in the API.
    pub objects: Objects,
}

/// Reason why a snapshot cannot be used or written.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file exists but cannot be read.
    #[error("{} cannot be read: {error}; it is not used, and the gateway waits for the API server", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file is damaged.
    #[error("{} is damaged: {why}; it is not used, and the gateway waits for the API server", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The inconsistency.
        why: String,
    },
    /// Another version of Sheave wrote it in a different format.
    #[error(
        "{} has format {found}, and this version knows format {} alone; it is not used, and the gateway waits for the \
         API server", path.display(), format::VERSION
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
    },
    /// The file is about another cluster.
    #[error(
        "{} is from cluster {found}, and this gateway serves cluster {expected}; it is not used, and the gateway waits for \
         the API server", path.display()
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// Cluster of the file.
        found: Box<Identity>,
        /// Expected cluster.
        expected: Box<Identity>,
    },
    /// The file cannot be written. The previous file is unchanged.
    #[error("{} cannot be written: {error}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl SnapshotError {
    /// Advice on how to make the next attempt succeed, as part of a sentence; `dir` is the state directory.
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

/// Path of the snapshot in the state directory `dir`.
pub fn path(dir: &Path, part: ControlPlane) -> PathBuf {
    dir.join(folder::name(part))
}

/// Writes the snapshot into `dir`, replacing the previous one, and returns the time of the write. It is written completely and
/// synced to disk, or not at all. `dir` is created if only the last part of its path is missing. Blocking.
///
/// # Errors
/// [`SnapshotError::Unwritable`] if open(2), write(2), fsync(2) or rename(2) fails.
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

/// Reads the snapshot in `dir`, if there is one. Blocking.
///
/// # Errors
/// If the file cannot be used, or is not about `identity`. It is never used in part.
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
