//! State of a manifest file over time: its last accepted contents, and when a new text is accepted.
//!
//! A program that writes a file in place (`> a.yaml`, `cp`) empties it first and then fills it piece by piece, and any piece of a
//! manifest may parse as a complete one. So a file that looks truncated (shorter, fewer objects or a mistake) takes effect once it has
//! been quiet for [`SETTLE`]. A file that was replaced by another one (renamed over it, as editors do) or deleted is what its author
//! intends. But `git` and `tar` delete a file before they write it again, so losses of that kind wait for [`REPLACED`]. All other
//! changes take effect at once.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::manifest::{self, ManifestFile, PlacedObject};
use super::origin::{FileProblem, Origin};
use crate::api::store::{Change, ControlPlane};

/// Result of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct FileScan {
    /// Whether a file was added, removed or changed in content.
    pub(super) changed: bool,
    /// Whether some file is, or may be, in the middle of a write. Its last state is kept, and the folder must be scanned again.
    pub(super) unsettled: bool,
}

impl FileScan {
    pub(super) const UNCHANGED: Self = Self { changed: false, unsettled: false };
    pub(super) const CHANGED: Self = Self { changed: true, unsettled: false };
    pub(super) const UNSETTLED: Self = Self { changed: false, unsettled: true };
}

/// A file that was written this shortly before it was read may be written again without a change of its time stamp or size (time
/// stamps have the granularity of the timer tick, or of a second on network file systems), so it is read again.
const RACY: Duration = Duration::from_secs(2);

/// How long a file that lost something in an in-place write must stay unchanged before that is accepted. The pauses of a program
/// that writes as it works are shorter, and a longer delay of deletions would be noticeable.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// How long a loss is doubted for a file that was deleted or replaced by another file.
pub(super) const REPLACED: Duration = Duration::from_millis(50);

/// A file as last read.
#[derive(Debug, Default)]
pub(super) struct KnownFile {
    /// Stamp of the file; `None` while it must be read again even if it looks unchanged.
    pub(super) stamp: Option<Stamp>,
    content: Option<u64>,
    /// State that is not accepted yet (a stamp, or `None` for a missing file), and since when the file has been in it.
    doubted: Option<(Option<Stamp>, Instant)>,
    /// Device and inode of the last accepted file.
    inode: Option<(u64, u64)>,
    /// Length of the text that `objects` come from.
    length: usize,
    /// The objects in effect: those of the last text of which every document was valid or, if there was none, of the last text
    /// that lost no object.
    pub(super) objects: Vec<PlacedObject>,
    /// Whether `objects` come from a text of which every document was valid.
    good: bool,
    pub(super) passed_over: usize,
    pub(super) problems: Vec<FileProblem>,
}

/// Properties that distinguish states of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn inode(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether a later write is certain to change the stamp.
    fn is_old(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(0));
        changed + RACY < now
    }
}

impl KnownFile {
    /// Stamp of the file, if it is still doubted at this time.
    pub(super) fn doubted_at(&self, now: Instant) -> Option<Stamp> {
        self.doubted.filter(|(stamp, since)| !self.is_quiet(*stamp, *since, now))?.0
    }

    /// Records that the file is missing. Returns whether that is accepted.
    pub(super) fn is_gone(&mut self, now: Instant) -> bool {
        self.is_settled(None, now)
    }

    /// Records that the file exists.
    pub(super) fn is_there(&mut self) {
        self.doubted = self.doubted.filter(|(stamp, _)| stamp.is_some());
    }

    /// Whether the file was missing at the last scan, which is still doubted.
    pub(super) fn seems_gone(&self) -> bool {
        self.doubted.is_some_and(|(stamp, _)| stamp.is_none())
    }

    pub(super) fn take_text(
        &mut self,
        (name, plane): (&Arc<str>, ControlPlane),
        text: &str,
        stamp: Stamp,
        now: Instant,
    ) -> FileScan {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let content = hasher.finish();
        let known = self.content == Some(content);
        let manifest = if known { ManifestFile::default() } else { manifest::parse(name, text, plane) };
        if !known && self.doubts(&manifest, text) && !self.is_settled(Some(stamp), now) {
            return FileScan::UNSETTLED;
        }
        self.stamp = stamp.is_old().then_some(stamp);
        (self.content, self.doubted, self.inode) = (Some(content), None, Some(stamp.inode()));
        if known {
            return FileScan::UNCHANGED;
        }
        self.believe(manifest, text.len());
        FileScan::CHANGED
    }

    /// Whether the text may be the start of a write that replaces the contents in effect.
    fn doubts(&self, manifest: &ManifestFile, text: &str) -> bool {
        let fewer = manifest.objects.len() < self.objects.len();
        !self.objects.is_empty() && (text.len() < self.length || fewer || manifest.refused)
    }

    /// Records a state of the file. Returns whether it has been in this state for long enough.
    fn is_settled(&mut self, stamp: Option<Stamp>, now: Instant) -> bool {
        let same = self.doubted.filter(|(doubted, _)| *doubted == stamp);
        let (_, since) = *self.doubted.insert(same.unwrap_or((stamp, now)));
        self.is_quiet(stamp, since, now)
    }

    fn is_quiet(&self, stamp: Option<Stamp>, since: Instant, now: Instant) -> bool {
        let in_place = stamp.is_some_and(|stamp| self.inode == Some(stamp.inode()));
        now.saturating_duration_since(since) >= if in_place { SETTLE } else { REPLACED }
    }

    fn believe(&mut self, manifest: ManifestFile, length: usize) {
        let ManifestFile { objects, problems, refused, passed_over } = manifest;
        self.problems = problems;
        if refused && (self.good || self.loses(&objects)) {
            for told in &mut self.problems {
                told.problem.message += "; the last good state of the file stays in effect";
            }
            return;
        }
        self.objects = keep_identity(&self.objects, objects);
        self.good = !refused;
        self.length = length;
        self.passed_over = passed_over;
    }

    /// Whether an object in effect is missing from `objects`.
    fn loses(&self, objects: &[PlacedObject]) -> bool {
        let left: HashSet<_> = objects.iter().map(|placed| &placed.reference).collect();
        self.objects.iter().any(|placed| !left.contains(&placed.reference))
    }

    pub(super) fn take_failure(&mut self, name: &Arc<str>, message: String) -> FileScan {
        let origin = Origin { file: name.clone(), document: None, line: None };
        let problems = vec![FileProblem { origin, problem: manifest::file_problem(name, message) }];
        (self.stamp, self.content, self.doubted) = (None, None, None);
        if self.problems == problems {
            return FileScan::UNCHANGED;
        }
        self.problems = problems;
        FileScan::CHANGED
    }
}

/// The new objects, except that equal old ones keep their `Arc`, which makes later comparisons cheap.
fn keep_identity(old: &[PlacedObject], mut new: Vec<PlacedObject>) -> Vec<PlacedObject> {
    let old: HashMap<_, _> = old.iter().map(|placed| (&placed.reference, &placed.object)).collect();
    for placed in &mut new {
        if let Some(object) = old.get(&placed.reference).filter(|object| ***object == placed.object) {
            placed.object = Change::clone(object);
        }
    }
    new
}
