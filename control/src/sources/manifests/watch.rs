//! Notices changes of the manifest folder and tells what it says then. Level-triggered: an event only says that it is
//! time to look, so a lost, doubled or misunderstood one costs nothing but time.

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
use super::known_file::Scan;
use super::{FieldLines, Loaded};
use crate::api::store::ControlPlane;

/// How long after the first event of a change the folder is looked at: a program that saves a file does so in several steps.
const SETTLE: Duration = Duration::from_millis(5);
/// After the folder was looked at, it rests for as long as that took, and no longer than this: a burst of changes becomes a
/// few looks, however fast somebody writes.
const LONGEST_REST: Duration = Duration::from_millis(500);
/// How often a file is looked at that may not have been written to its end.
const UNSETTLED: Duration = Duration::from_millis(50);
/// How often the folder is looked at when the kernel does not tell of changes.
const POLL: Duration = Duration::from_secs(2);
/// How often it is looked at although the kernel tells: changes made by other hosts of a network file system, and in
/// the targets of symbolic links, raise no event. It costs one `stat` per file.
const RESYNC: Duration = Duration::from_secs(10);

/// The states of a watched folder, from the first on. Dropping it ends the watching.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    states: watch::Receiver<Option<Arc<Loaded>>>,
}

impl FileWatch {
    /// The lines of fields in its files as they are now.
    pub fn field_lines(&self) -> FieldLines {
        FieldLines::of(&self.path)
    }

    /// Waits for a state that was not given yet and gives the newest. At first that is what the folder says at the
    /// start. `None` means that watching has ended, which only the end of the runtime brings about.
    ///
    /// Cancel safe: no state is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Arc<Loaded>> {
        // The initial value, none, counts as seen.
        self.states.changed().await.ok()?;
        self.states.borrow_and_update().clone()
    }
}

/// Watches a folder of manifests, or a single file, which need not exist yet. Must be called inside a Tokio runtime.
pub fn watch(path: &Path) -> FileWatch {
    watch_of(ControlPlane::Local, path)
}

/// The same for a folder of these manifests.
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
        // Setting a watch looks the folder up, so it waits for a slow file system as the scan does.
        let looking = spawn_blocking(move || {
            // Before the scan, so that what happens during the scan raises an alarm.
            alarm.arm();
            let scan = folder.scan();
            (alarm, folder, scan)
        });
        let (changed, unsettled);
        (alarm, folder, Scan { changed, unsettled }) = match looking.await {
            Ok(looked) => looked,
            Err(error) if error.is_panic() => {
                // A bug in a parser must not end the watching. What was published stays until a scan succeeds.
                tracing::error!(path = %path.display(), %error, "reading the manifests failed");
                (Alarm::new(&path), Folder::new(path.clone(), plane), Scan::default())
            }
            // The runtime ends.
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

/// Says when it is time to look at the folder.
struct Alarm {
    path: PathBuf,
    /// Rung by the watcher. It remembers one ring, which is enough: it means "look".
    bell: Arc<Notify>,
    /// Set when the folder itself came, went or was replaced: a watch stays with the folder that it was set on, even
    /// if that one is deleted and another has its name.
    stale: Arc<AtomicBool>,
    /// Stops watching when dropped.
    watcher: Option<RecommendedWatcher>,
    /// Why the kernel does not tell of changes, to say it once.
    told: Option<String>,
}

impl Alarm {
    fn new(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, bell: Arc::default(), stale: Arc::default(), watcher: None, told: None }
    }

    /// Sets the kernel's watches, unless they are set and still mean the folder.
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
        // The folder above tells when this one comes or is replaced. It may be closed to us: then RESYNC has to do.
        if let Some(parent) = self.path.parent()
            && let Err(error) = watcher.watch(parent, RecursiveMode::NonRecursive)
        {
            tracing::debug!(path = %parent.display(), %error, "cannot watch the folder above the manifests");
        }
        let watched = watcher.watch(&self.path, RecursiveMode::NonRecursive);
        self.watcher = Some(watcher);
        watched
    }

    /// Returns when it is time to look: something has changed, or nothing was looked at for long.
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

/// Whether the event may have changed what the folder says. Reading must not count: we do it ourselves.
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
        // The folder above tells of its other contents, too.
        relevant |= changed.starts_with(path);
    }
    relevant
}

#[cfg(test)]
mod tests;
