//! When the snapshot is written: soon after the first sync, then at most every ten seconds, more seldom where it takes long,
//! never twice at once, and only if something changed. Whether it can be written stops nobody.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::{Identity, SnapshotError, folder};
use crate::api::store::Objects;

/// From the first change to the first write: a gateway that has just started is settling, and the burst of its first lists
/// need not be written piece by piece.
const FIRST: Duration = Duration::from_secs(1);
/// From the end of one write to the next: losing ten seconds of changes costs little after a restart without an API
/// server, and ten thousand Services are some ten megabytes, which a disk should not take with each of them.
const EVERY: Duration = Duration::from_secs(10);

/// So many times as long as a write took passes until the next: half a second for a large cluster's thirty megabytes becomes
/// twenty, so that whatever changes all the time takes no more than a fortieth of a core, and of what the disk can do.
const SHARE: u32 = 40;
/// No pause is longer: on a slow disk as well the snapshot should not be of another hour.
const LONGEST: Duration = Duration::from_secs(120);

/// What the blocking part of a write answers.
type Written = Result<Timestamp, SnapshotError>;

/// Keeps the snapshot in step with a store, off the loop that owns the store.
///
/// The loop says when something [`changed`](Self::changed), which costs nothing, waits for [`due`](Self::due) beside its
/// other events, and then [`start`](Self::start)s a write. Only that copies the objects' handles: once in ten seconds at
/// most, not with each change.
#[derive(Debug)]
pub struct SnapshotWriter {
    dir: PathBuf,
    identity: Identity,
    /// Not in the snapshot yet, nor in the one that is being written.
    changed: bool,
    /// No write starts earlier; none before the first change.
    not_before: Option<Instant>,
    writing: Option<JoinHandle<Written>>,
    /// When that began.
    began: Instant,
    /// The first write looks for what a killed process has left.
    tidied: bool,
    last_written: Option<Timestamp>,
    error: Option<String>,
}

impl SnapshotWriter {
    /// For the state directory `dir`, of which `last_written` is known from reading the snapshot. Touches nothing yet.
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

    /// The objects differ from before in a way that counts (`Store::take_dirty` has something). Not to be called before
    /// every kind has been listed: half of the objects are no good input.
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

    /// Starts writing `objects` on the blocking pool, unless a write still runs. Must be called inside a Tokio runtime.
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

    /// Writes what is not written yet, and returns when it is on the disk or has failed. For the end of the process; a
    /// hung disk is the caller's to lose patience with.
    ///
    /// Cancel safe: a write that runs goes on.
    pub async fn flush(&mut self, objects: &Objects) {
        self.finish().await;
        if self.changed {
            self.start(objects);
            self.finish().await;
        }
    }

    /// When the snapshot on the disk was written, if there is one.
    pub fn last_written(&self) -> Option<Timestamp> {
        self.last_written
    }

    /// Why the newest objects could not be written; `None` again once they could.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Where the snapshot is.
    pub fn path(&self) -> PathBuf {
        super::path(&self.dir, self.identity.part)
    }

    /// Waits for the write that runs, if any, and takes note of its outcome. Cancel safe: the handle is let go only after
    /// it has answered.
    async fn finish(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let outcome = match writing.await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(error)) => Err(error),
            // A panic is a bug, but none that clients should notice.
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

    /// Said once for each reason, not with each try.
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

/// From the end of a write that took so long to the next.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(SHARE).clamp(EVERY, LONGEST)
}

#[cfg(test)]
mod tests;
