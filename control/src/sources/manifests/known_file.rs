//! One manifest file over time: what it last said, and when a new text of it is believed.
//!
//! Whoever writes a file in place (`> a.yaml`, `cp`) empties it first and fills it bit by bit, and any bit of a manifest
//! may read as a whole one. So a file that looks cut off (fewer objects, a mistake, or shorter and with another end) is
//! doubted: it takes effect when it has stayed as it is for [`SETTLE`]. One that was replaced by another file (renamed over it, as
//! editors do) or deleted is what its author wants it to be; but `git` and `tar` delete a file first and then write it anew, so
//! what is lost that way is doubted for [`REPLACED`]. All other changes take effect at once.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::manifest::{self, ManifestFile, Placed};
use super::origin::{FileProblem, Origin};
use crate::api::store::{Change, ControlPlane};

/// What a scan found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct Scan {
    /// Something came, went or says something else.
    pub(super) changed: bool,
    /// Some file is being written, or may be: its last state is kept, and the folder must be scanned again.
    pub(super) unsettled: bool,
}

impl Scan {
    pub(super) const UNCHANGED: Self = Self { changed: false, unsettled: false };
    pub(super) const CHANGED: Self = Self { changed: true, unsettled: false };
    pub(super) const UNSETTLED: Self = Self { changed: false, unsettled: true };
}

/// A file that was written so shortly before it was read may be written again without its time stamp or size changing
/// (time stamps have the granularity of the timer tick, on network file systems of a second), so it is read again.
const RACY: Duration = Duration::from_secs(2);

/// How many bytes of a file's end tell whether another text ends like it: about two endpoints of a slice.
const END: usize = 64;

/// How long a file that lost something by being written in place must stay as it is until that is believed: the pauses
/// of a command that writes as it works are shorter, and for taking something away nobody waits for longer.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// The same for one that was deleted, or replaced by another file.
pub(super) const REPLACED: Duration = Duration::from_millis(50);

/// A file as last read.
#[derive(Debug, Default)]
pub(super) struct KnownFile {
    /// Unset while the file has to be read again even if it looks the same.
    pub(super) stamp: Option<Stamp>,
    content: Option<u64>,
    /// What was read last, if it is doubted.
    doubted: Option<Doubted>,
    /// Since when it is not there, while that is doubted.
    gone: Option<Instant>,
    /// Device and inode of the file that was last believed.
    inode: Option<(u64, u64)>,
    /// The length of the text that `objects` come from, and its last bytes.
    length: usize,
    end: Box<[u8]>,
    /// What is in effect: what the file said when last every document of it could be taken or, if that was never so,
    /// what could be taken of it when last that was not less than before.
    pub(super) objects: Vec<Placed>,
    /// Whether `objects` come from a text of which every document could be taken.
    good: bool,
    pub(super) passed_over: usize,
    pub(super) problems: Vec<FileProblem>,
}

/// What tells one state of a file from another without reading it.
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

    /// Whether a later write is sure to change the stamp.
    fn is_old(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(0));
        changed + RACY < now
    }
}

/// A state of a file that is not believed yet.
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
    /// What the file looks like, if it is still doubted at this moment.
    pub(super) fn doubted_at(&self, now: Instant) -> Option<Stamp> {
        self.doubted.filter(|doubted| !doubted.is_settled(now)).map(|doubted| doubted.stamp)
    }

    /// It is not there. Whether that is to be believed.
    pub(super) fn is_gone(&mut self, now: Instant) -> bool {
        now.saturating_duration_since(*self.gone.get_or_insert(now)) >= REPLACED
    }

    /// It is there (again).
    pub(super) fn is_there(&mut self) {
        self.gone = None;
    }

    /// Whether it was not there when it was last looked for, which is doubted.
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

    /// Whether this may be the beginning of what somebody is writing in the place of what is in effect.
    fn doubts(&self, manifest: &ManifestFile, text: &str) -> bool {
        let cut_off = text.len() < self.length && !text.as_bytes().ends_with(&self.end);
        let fewer = manifest.objects.len() < self.objects.len();
        !self.objects.is_empty() && (cut_off || fewer || manifest.refused)
    }

    /// Whether the file has been like this for long enough.
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

    /// Whether something that is in effect is missing among these.
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

/// The new objects, where those equal to old ones keep the old `Arc`: that makes later comparisons cheap.
fn keep_identity(old: &[Placed], mut new: Vec<Placed>) -> Vec<Placed> {
    let old: HashMap<_, _> = old.iter().map(|placed| (&placed.reference, &placed.object)).collect();
    for placed in &mut new {
        if let Some(object) = old.get(&placed.reference).filter(|object| ***object == placed.object) {
            placed.object = Change::clone(object);
        }
    }
    new
}
