//! Watch of the manifest folder that publishes its contents after changes. Level-triggered: an event only triggers a scan, so a
//! lost, duplicated or misunderstood event costs nothing but time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::folder::Folder;
use super::known_file::FileScan;
use super::{FieldLines, Loaded};
use crate::api::store::ControlPlane;

/// Delay of a scan after the first event of a change, because a program saves a file in several steps.
const SETTLE: Duration = Duration::from_millis(5);
/// Longest rest after a scan, which otherwise takes as long as the scan itself, so that a burst of changes results in few scans.
const LONGEST_REST: Duration = Duration::from_millis(500);
/// Interval of scans while a file may not be written completely.
const UNSETTLED: Duration = Duration::from_millis(50);
/// Interval of scans if the kernel does not report changes.
const POLL: Duration = Duration::from_secs(2);
/// Interval of scans even if the kernel reports changes: changes by other hosts on a network file system, and in the targets of
/// symbolic links, cause no event. It costs one `stat` for each file.
const RESYNC: Duration = Duration::from_secs(10);

/// States of a watched folder, starting with the current one. Dropping it ends the watch.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    states: watch::Receiver<Option<Arc<Loaded>>>,
}

impl FileWatch {
    /// Lines of fields in the current files.
    pub fn field_lines(&self) -> FieldLines {
        FieldLines::of(&self.path)
    }

    /// Waits for a new state and returns the latest. The first one is the state at the start. `None` means that the watch has
    /// ended, which happens only with the runtime.
    ///
    /// Cancel safe: dropping the future loses no state.
    pub async fn next(&mut self) -> Option<Arc<Loaded>> {
        // The initial value, `None`, counts as seen.
        self.states.changed().await.ok()?;
        self.states.borrow_and_update().clone()
    }
}

/// Watches a folder of manifests, or a single file, which need not exist yet. Must be called within a Tokio runtime.
pub fn watch(path: &Path) -> FileWatch {
    watch_of(ControlPlane::Local, path)
}

/// Like [`watch()`], for manifests of this API server.
pub fn watch_of(plane: ControlPlane, path: &Path) -> FileWatch {
    let (sender, states) = watch::channel(None);
    tokio::spawn(follow(path.to_owned(), plane, sender));
    FileWatch { path: path.to_owned(), states }
}

async fn follow(path: PathBuf, plane: ControlPlane, states: watch::Sender<Option<Arc<Loaded>>>) {
    let mut alarm = Alarm::new(&path);
    let mut folder = Folder::new(path.clone(), plane);
    loop {
        let began = Instant::now();
        // Setting a watch resolves the path, so it can block on a slow file system like the scan.
        let looking = spawn_blocking(move || {
            // Before the scan, so that changes during the scan raise the alarm.
            alarm.arm();
            let scan = folder.scan();
            (alarm, folder, scan)
        });
        let (changed, unsettled);
        (alarm, folder, FileScan { changed, unsettled }) = match looking.await {
            Ok(looked) => looked,
            Err(error) if error.is_panic() => {
                // A bug in a parser must not end the watch. The published state stays until a scan succeeds.
                tracing::error!(path = %path.display(), %error, "reading the manifests failed");
                (Alarm::new(&path), Folder::new(path.clone(), plane), FileScan::default())
            }
            // The runtime is shutting down.
            Err(_) => return,
        };
        if changed {
            states.send_replace(Some(Arc::new(folder.loaded())));
        }
        let rest = began.elapsed().min(LONGEST_REST);
        let due = async {
            sleep(rest).await;
            alarm.raised(unsettled).await;
        };
        tokio::select! {
            () = states.closed() => return,
            () = due => {}
        }
    }
}

/// Signals when to scan the folder.
struct Alarm {
    path: PathBuf,
    /// Notified by the watcher. It stores one notification, which is enough to trigger a scan.
    bell: Arc<Notify>,
    /// Set when the folder itself was created, deleted or replaced: a watch stays with the original folder, even if that is
    /// deleted and another one has its name.
    stale: Arc<AtomicBool>,
    /// Stops the watch when dropped.
    watcher: Option<RecommendedWatcher>,
    /// Why the kernel does not report changes, to log it once.
    told: Option<String>,
}

impl Alarm {
    fn new(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, bell: Arc::default(), stale: Arc::default(), watcher: None, told: None }
    }

    /// Sets the kernel's watches, unless they are set and still refer to the folder.
    fn arm(&mut self) {
        let stale = self.stale.swap(false, Ordering::AcqRel);
        if self.watcher.is_some() && self.told.is_none() && !stale {
            return;
        }
        self.watcher = None;
        match self.set() {
            Ok(()) => {
                if self.told.take().is_some() {
                    tracing::info!(path = %self.path.display(), "changes are told by the kernel again");
                }
            }
            Err(error) => {
                let reason = error.to_string();
                if self.told.as_ref() != Some(&reason) {
                    let path = self.path.display();
                    tracing::warn!(%path, reason, "cannot watch the manifests; looking every {POLL:?}");
                }
                self.told = Some(reason);
            }
        }
    }

    fn set(&mut self) -> notify::Result<()> {
        let (path, bell, stale) = (self.path.clone(), self.bell.clone(), self.stale.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let relevant = match &event {
                Ok(event) => concerns(event, &path, &stale),
                Err(_) => true,
            };
            if event.is_err() {
                stale.store(true, Ordering::Release);
            }
            if relevant {
                bell.notify_one();
            }
        })?;
        // The parent folder reports when this one is created or replaced. If it is not accessible, RESYNC has to suffice.
        if let Some(parent) = self.path.parent()
            && let Err(error) = watcher.watch(parent, RecursiveMode::NonRecursive)
        {
            tracing::debug!(path = %parent.display(), %error, "cannot watch the folder above the manifests");
        }
        let watched = watcher.watch(&self.path, RecursiveMode::NonRecursive);
        self.watcher = Some(watcher);
        watched
    }

    /// Returns when it is time to scan: something has changed, or the last scan was long ago.
    async fn raised(&self, unsettled: bool) {
        let kernel_tells = self.watcher.is_some() && self.told.is_none();
        let patience = match (unsettled, kernel_tells) {
            (true, _) => UNSETTLED,
            (false, false) => POLL,
            (false, true) => RESYNC,
        };
        if timeout(patience, self.bell.notified()).await.is_ok() {
            sleep(SETTLE).await;
        }
    }
}

/// Whether the event may have changed the contents of the folder. Reads do not count, because the scan itself causes them.
fn concerns(event: &Event, path: &Path, stale: &AtomicBool) -> bool {
    let read_only =
        matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write));
    if read_only {
        return false;
    }
    if event.need_rescan() {
        return true;
    }
    let mut relevant = false;
    for changed in &event.paths {
        if changed == path {
            stale.store(true, Ordering::Release);
        }
        // The parent folder reports its other contents, too.
        relevant |= changed.starts_with(path);
    }
    relevant
}

#[cfg(test)]
mod tests;
