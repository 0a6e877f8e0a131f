//! Schedule of snapshot writes: soon after the first sync, then at most every ten seconds and less often if a write takes long,
//! never two at once, and only after changes. A failed write affects nothing else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::{Identity, SnapshotError, folder};
use crate::api::store::Objects;

/// Delay from the first change to the first write: a gateway that has just started is settling, and the burst of its first lists
/// need not be written piece by piece.
const FIRST: Duration = Duration::from_secs(1);
/// Shortest pause after a write. Losing ten seconds of changes costs little in a restart without an API server, and ten thousand
/// Services are some ten megabytes, which should not be written for each change.
const EVERY: Duration = Duration::from_secs(10);

/// Pause after a write, in multiples of its duration. Half a second for a large cluster's thirty megabytes results in twenty, so
/// that constant changes use at most a fortieth of a core and of the disk's throughput.
const SHARE: u32 = 40;
/// Longest pause: even on a slow disk the snapshot should not be hours old.
const LONGEST: Duration = Duration::from_secs(120);

/// Result of the blocking part of a write.
type Written = Result<Timestamp, SnapshotError>;

/// Keeps the snapshot up to date with a store, outside of the loop that owns the store.
///
/// The loop reports changes with [`changed`](Self::changed), which costs nothing, waits for [`due`](Self::due) among its other
/// events, and then calls [`start`](Self::start). Only that copies the objects' handles: at most once in ten seconds, and not for
/// each change.
#[derive(Debug)]
pub struct SnapshotWriter {
    dir: PathBuf,
    identity: Identity,
    /// Whether there are changes that are neither in the snapshot nor in the one being written.
    changed: bool,
    /// Earliest start of the next write; `None` before the first change.
    not_before: Option<Instant>,
    writing: Option<JoinHandle<Written>>,
    /// Start of the current write.
    began: Instant,
    /// Whether leftovers of a killed process were removed, which the first write does.
    tidied: bool,
    last_written: Option<Timestamp>,
    error: Option<String>,
}

impl SnapshotWriter {
    /// A writer for the state directory `dir`. `last_written` is known from reading the snapshot. It does not touch the directory
    /// yet.
    pub fn new(dir: &Path, identity: Identity, last_written: Option<Timestamp>) -> Self {
        Self {
            dir: dir.to_owned(),
            identity,
            changed: false,
            not_before: None,
            writing: None,
            began: Instant::now(),
            tidied: false,
            last_written,
            error: None,
        }
    }

    /// Reports a relevant change of the objects (`Store::take_dirty` returned something). Must not be called before every kind
    /// has been listed, because an incomplete set of objects is no good input.
    pub fn changed(&mut self) {
        self.changed = true;
        self.not_before.get_or_insert_with(|| Instant::now() + FIRST);
    }

    /// Waits until [`start`](Self::start) should be called; forever if nothing changes.
    ///
    /// Cancel safe. It must be polled for the end of a write to be noticed.
    pub async fn due(&mut self) {
        self.finish().await;
        match self.not_before {
            Some(not_before) if self.changed => sleep_until(not_before).await,
            _ => std::future::pending().await,
        }
    }

    /// Starts writing `objects` on the blocking pool, unless a write is in progress. Must be called within a Tokio runtime.
    pub fn start(&mut self, objects: &Objects) {
        if self.writing.is_some() {
            return;
        }
        self.changed = false;
        self.began = Instant::now();
        let (dir, identity, objects) = (self.dir.clone(), self.identity.clone(), objects.clone());
        let tidy = !std::mem::replace(&mut self.tidied, true);
        self.writing = Some(spawn_blocking(move || {
            if tidy {
                folder::remove_leftovers(&dir, identity.part);
            }
            super::write(&dir, &identity, &objects)
        }));
    }

    /// Writes outstanding changes, and returns when they are on disk or have failed. For the end of the process; if the disk
    /// hangs, the caller has to give up.
    ///
    /// Cancel safe: a write in progress continues.
    pub async fn flush(&mut self, objects: &Objects) {
        self.finish().await;
        if self.changed {
            self.start(objects);
            self.finish().await;
        }
    }

    /// Time of the snapshot on disk, if there is one.
    pub fn last_written(&self) -> Option<Timestamp> {
        self.last_written
    }

    /// Why the latest objects could not be written; `None` after a success.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Path of the snapshot.
    pub fn path(&self) -> PathBuf {
        super::path(&self.dir, self.identity.part)
    }

    /// Waits for the write in progress, if any, and records its result. Cancel safe: the handle is dropped only after it has
    /// completed.
    async fn finish(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let outcome = match writing.await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(error)) => Err(error),
            // A panic is a bug, but clients should not notice it.
            Err(error) => {
                Err(SnapshotError::Unwritable { path: self.path(), error: std::io::Error::other(error) })
            }
        };
        self.writing = None;
        self.not_before = Some(Instant::now() + pause_after(self.began.elapsed()));
        match outcome {
            Ok(written) => self.succeeded(written),
            Err(error) => self.failed(&error),
        }
    }

    fn succeeded(&mut self, written: Timestamp) {
        self.last_written = Some(written);
        if self.error.take().is_some() {
            tracing::info!(path = %self.path().display(), "the snapshot of the last good input is written again");
        }
    }

    /// Logs each reason once, not for each attempt.
    fn failed(&mut self, error: &SnapshotError) {
        self.changed = true;
        let advice = error.advice(&self.dir);
        let error = error.to_string();
        if self.error.as_ref() != Some(&error) {
            tracing::warn!(
                dir = %self.dir.display(),
                "{error}; traffic is forwarded all the same, but after a restart without the API server only as an older \
                 snapshot has it, or not at all: {advice}, or set `stateDir` in the config to another directory; tried \
                 again every {EVERY:?}"
            );
        }
        self.error = Some(error);
    }
}

/// Pause after a write of this duration.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(SHARE).clamp(EVERY, LONGEST)
}

#[cfg(test)]
mod tests;
