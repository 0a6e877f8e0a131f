//! State of a manifest file over time: its last accepted contents, and when a new text is accepted.
//!
//! A program that writes a file in place (`> a.yaml`, `cp`) empties it first and then fills it piece by piece, and any piece of a
//! manifest may parse as a complete one. So a file that looks truncated (fewer objects, a mistake, or shorter and with another
//! end) is doubted: it takes effect once it has been unchanged for [`SETTLE`]. A file that was replaced by another one (renamed
//! over it, as editors do) or deleted is what its author intends. But `git` and `tar` delete a file before they write it again,
//! so losses of that kind are doubted for [`REPLACED`]. All other changes take effect at once.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::manifest::{self, ManifestFile, Placed};
use super::origin::{FileProblem, Origin};
use crate::api::store::{Change, ControlPlane};

/// Result of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct Scan {
    /// Whether a file was added, removed or changed in content.
    pub(super) changed: bool,
    /// Whether some file is, or may be, in the middle of a write. Its last state is kept, and the folder must be scanned again.
    pub(super) unsettled: bool,
}

impl Scan {
    pub(super) const UNCHANGED: Self = Self { changed: false, unsettled: false };
    pub(super) const CHANGED: Self = Self { changed: true, unsettled: false };
    pub(super) const UNSETTLED: Self = Self { changed: false, unsettled: true };
}

/// A file that was written this shortly before it was read may be written again without a change of its time stamp or size (time
/// stamps have the granularity of the timer tick, or of a second on network file systems), so it is read again.
const RACY: Duration = Duration::from_secs(2);

/// Number of bytes at a file's end that are compared to detect a truncated text: about two endpoints of a slice.
const END: usize = 64;

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
    /// Stamp and contents of the last read, if they are doubted.
    doubted: Option<Doubted>,
    /// Since when the file is missing, while that is doubted.
    gone: Option<Instant>,
    /// Device and inode of the last accepted file.
    inode: Option<(u64, u64)>,
    /// Length and last bytes of the text that `objects` come from.
    length: usize,
    end: Box<[u8]>,
    /// The objects in effect: those of the last text of which every document was valid or, if there was none, of the last text
    /// that lost no object.
    pub(super) objects: Vec<Placed>,
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

/// A state of a file that is not accepted yet.
#[derive(Clone, Copy, Debug)]
struct Doubted {
    content: u64,
    stamp: Stamp,
    since: Instant,
    /// How long it is doubted.
    time: Duration,
}

impl Doubted {
    fn is_settled(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= self.time
    }
}

impl KnownFile {
    /// Stamp of the file, if it is still doubted at this time.
    pub(super) fn doubted_at(&self, now: Instant) -> Option<Stamp> {
        self.doubted.filter(|doubted| !doubted.is_settled(now)).map(|doubted| doubted.stamp)
    }

    /// Records that the file is missing. Returns whether that is accepted.
    pub(super) fn is_gone(&mut self, now: Instant) -> bool {
        now.saturating_duration_since(*self.gone.get_or_insert(now)) >= REPLACED
    }

    /// Records that the file exists.
    pub(super) fn is_there(&mut self) {
        self.gone = None;
    }

    /// Whether the file was missing at the last scan, which is still doubted.
    pub(super) fn seems_gone(&self) -> bool {
        self.gone.is_some()
    }

    pub(super) fn take_text(
        &mut self,
        (name, plane): (&Arc<str>, ControlPlane),
        text: &str,
        stamp: Stamp,
        now: Instant,
    ) -> Scan {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let content = hasher.finish();
        let known = self.content == Some(content);
        let manifest = if known { ManifestFile::default() } else { manifest::parse(name, text, plane) };
        if !known && self.doubts(&manifest, text) && !self.is_settled(content, stamp, now) {
            return Scan::UNSETTLED;
        }
        self.stamp = stamp.is_old().then_some(stamp);
        (self.content, self.doubted, self.inode) = (Some(content), None, Some(stamp.inode()));
        if known {
            return Scan::UNCHANGED;
        }
        self.believe(manifest, text.as_bytes());
        Scan::CHANGED
    }

    /// Whether the text may be the start of a write that replaces the contents in effect.
    fn doubts(&self, manifest: &ManifestFile, text: &str) -> bool {
        let cut_off = text.len() < self.length && !text.as_bytes().ends_with(&self.end);
        let fewer = manifest.objects.len() < self.objects.len();
        !self.objects.is_empty() && (cut_off || fewer || manifest.refused)
    }

    /// Whether the file has been in this state for long enough.
    fn is_settled(&mut self, content: u64, stamp: Stamp, now: Instant) -> bool {
        let same = self.doubted.filter(|it| it.content == content && it.stamp == stamp);
        let time = if self.inode == Some(stamp.inode()) { SETTLE } else { REPLACED };
        self.doubted.insert(same.unwrap_or(Doubted { content, stamp, since: now, time })).is_settled(now)
    }

    fn believe(&mut self, manifest: ManifestFile, text: &[u8]) {
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
        self.length = text.len();
        self.end = text.last_chunk::<END>().map_or(text, <[u8; END]>::as_slice).into();
        self.passed_over = passed_over;
    }

    /// Whether an object in effect is missing from `objects`.
    fn loses(&self, objects: &[Placed]) -> bool {
        let left: HashSet<_> = objects.iter().map(|placed| &placed.reference).collect();
        self.objects.iter().any(|placed| !left.contains(&placed.reference))
    }

    pub(super) fn take_failure(&mut self, name: &Arc<str>, message: String) -> Scan {
        let origin = Origin { file: name.clone(), document: None, line: None };
        let problems = vec![FileProblem { origin, problem: manifest::file_problem(name, message) }];
        (self.stamp, self.content, self.doubted) = (None, None, None);
        if self.problems == problems {
            return Scan::UNCHANGED;
        }
        self.problems = problems;
        Scan::CHANGED
    }
}

/// The new objects, except that equal old ones keep their `Arc`, which makes later comparisons cheap.
fn keep_identity(old: &[Placed], mut new: Vec<Placed>) -> Vec<Placed> {
    let old: HashMap<_, _> = old.iter().map(|placed| (&placed.reference, &placed.object)).collect();
    for placed in &mut new {
        if let Some(object) = old.get(&placed.reference).filter(|object| ***object == placed.object) {
            placed.object = Change::clone(object);
        }
    }
    new
}
