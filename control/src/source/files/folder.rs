//! The manifest folder: which files count, what each last said, and all of it put together. Blocking; it must not know
//! how changes are noticed.
//!
//! Whoever writes a file in place (`> a.yaml`, `cp`) empties it first and fills it bit by bit, and any bit of a manifest
//! may read as a whole one. So a file that looks cut off (fewer objects, a mistake, or shorter and with another end) is
//! doubted: it takes effect when it has stayed as it is for [`SETTLE`]. A file that was deleted or replaced by another
//! one (renamed over it, as editors do) is what its author wants it to be and takes effect at once, as do other changes.

use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::Loaded;
use super::manifest::{self, Manifest, Object, Placed};
use super::origin::{FileProblem, Origin, Origins};
use crate::problem::{Problem, reason};
use crate::store::{Objects, service_key, slice_owner};

/// The largest file that is read. A Service takes about 1 KB, so this is far beyond what a folder is good for, and it
/// bounds the memory that a mistake (a log, an image with the wrong name) can cost.
const MAX_FILE: u64 = 256 << 20;

/// A file that was written so shortly before it was read may be written again without its time stamp or size changing
/// (time stamps have the granularity of the timer tick, on network file systems of a second), so it is read again.
const RACY: Duration = Duration::from_secs(2);

/// How many bytes of a file's end tell whether another text ends like it: about two endpoints of a slice.
const END: usize = 64;

/// How long a file that lost something by being written in place must stay as it is until that is believed: the pauses
/// of a command that writes as it works are shorter, and for taking something away nobody waits for longer.
const SETTLE: Duration = Duration::from_secs(2);

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
    const UNCHANGED: Self = Self { changed: false, unsettled: false };
    const CHANGED: Self = Self { changed: true, unsettled: false };
    const UNSETTLED: Self = Self { changed: false, unsettled: true };
}

/// The folder as last scanned.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    files: BTreeMap<Arc<str>, KnownFile>,
    listed: bool,
    /// Why the folder cannot be listed; then its files are kept as they were.
    unlisted: Option<String>,
}

/// A file as last read.
#[derive(Debug, Default)]
struct KnownFile {
    /// Unset while the file has to be read again even if it looks the same.
    stamp: Option<Stamp>,
    content: Option<u64>,
    /// What was read last, if it is doubted.
    doubted: Option<Doubted>,
    /// Device and inode of the file that was last believed.
    inode: Option<(u64, u64)>,
    /// The length of the text that `objects` come from, and its last bytes.
    length: usize,
    end: Box<[u8]>,
    /// What is in effect: what the file said when last every document of it could be taken or, if that was never so,
    /// what could be taken of it when last that was not less than before.
    objects: Vec<Placed>,
    /// Whether `objects` come from a text of which every document could be taken.
    good: bool,
    passed_over: usize,
    problems: Vec<FileProblem>,
}

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
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
}

impl Doubted {
    fn is_settled(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= SETTLE
    }
}

/// What reading a file came to.
enum Outcome {
    /// Not there (any more), or not a file.
    Gone,
    /// Looks as it did when it was last read.
    Same,
    /// Its text, and what it looked like.
    Text(String, Stamp),
    /// Somebody writes it at this moment.
    Unsettled,
    /// It cannot be read.
    Unreadable(String),
}

impl Folder {
    /// A folder of which nothing is known yet. A single file is a folder of one.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, files: BTreeMap::new(), listed: false, unlisted: None }
    }

    /// Looks at every file and reads those that changed.
    pub(super) fn scan(&mut self) -> Scan {
        self.scan_at(Instant::now())
    }

    fn scan_at(&mut self, now: Instant) -> Scan {
        let listed = match list(&self.path) {
            Ok(listed) => listed,
            Err(error) => {
                let before = self.unlisted.replace(error.to_string());
                return Scan { changed: before != self.unlisted, unsettled: false };
            }
        };
        let first = !std::mem::replace(&mut self.listed, true);
        let before = self.files.len();
        self.files.retain(|name, _| listed.contains_key(name));
        let back = self.unlisted.take().is_some();
        let changed = first || back || self.files.len() != before;
        let mut scan = Scan { changed, unsettled: false };
        for (name, path) in listed {
            let file = self.scan_file(&name, &path, now);
            scan.changed |= file.changed;
            scan.unsettled |= file.unsettled;
        }
        scan
    }

    fn scan_file(&mut self, name: &Arc<str>, path: &Path, now: Instant) -> Scan {
        let doubted = self.files.get(name).and_then(|file| file.doubted).filter(|it| !it.is_settled(now));
        let stamp = self.files.get(name).and_then(|file| file.stamp);
        match read(path, doubted.map(|it| it.stamp).or(stamp)) {
            Outcome::Same if doubted.is_some() => Scan::UNSETTLED,
            Outcome::Same => Scan::UNCHANGED,
            Outcome::Unsettled => Scan::UNSETTLED,
            Outcome::Gone if self.files.remove(name).is_none() => Scan::UNCHANGED,
            Outcome::Gone => Scan::CHANGED,
            Outcome::Unreadable(message) => {
                self.files.entry(name.clone()).or_default().take_failure(name, message)
            }
            Outcome::Text(text, stamp) => {
                self.files.entry(name.clone()).or_default().take_text(name, &text, stamp, now)
            }
        }
    }

    /// Everything that is in effect.
    pub(super) fn loaded(&self) -> Loaded {
        let mut loaded = Loaded { listed: self.listed, ..Loaded::default() };
        if let Some(error) = &self.unlisted {
            loaded.problems.push(self.folder_problem(error));
        }
        let mut origins = HashMap::new();
        for file in self.files.values() {
            loaded.problems.extend(file.problems.iter().cloned());
            loaded.passed_over += file.passed_over;
            for placed in &file.objects {
                match origins.entry(placed.reference.clone()) {
                    Entry::Vacant(entry) => {
                        entry.insert(placed.origin.clone());
                        insert(&mut loaded.objects, &placed.object);
                    }
                    Entry::Occupied(first) => loaded.problems.push(duplicate(placed, first.get())),
                }
            }
        }
        loaded.origins = Origins(origins);
        loaded
    }

    fn folder_problem(&self, error: &str) -> FileProblem {
        let name: Arc<str> = self.path.to_string_lossy().into();
        let kept = if self.listed { ", so what it held before stays in effect" } else { "" };
        let problem = manifest::file_problem(&name, format!("cannot be listed{kept}: {error}"));
        FileProblem { origin: Origin { file: name, document: None, line: None }, problem }
    }
}

impl KnownFile {
    fn take_text(&mut self, name: &Arc<str>, text: &str, stamp: Stamp, now: Instant) -> Scan {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let content = hasher.finish();
        let known = self.content == Some(content);
        let manifest = if known { Manifest::default() } else { manifest::parse(name, text) };
        if !known && self.doubts(&manifest, text, stamp) && !self.is_settled(content, stamp, now) {
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
    fn doubts(&self, manifest: &Manifest, text: &str, stamp: Stamp) -> bool {
        let in_place = self.inode == Some(stamp.inode());
        let cut_off = text.len() < self.length && !text.as_bytes().ends_with(&self.end);
        let fewer = manifest.objects.len() < self.objects.len();
        in_place && !self.objects.is_empty() && (cut_off || fewer || manifest.refused)
    }

    /// Whether the file has been like this for long enough.
    fn is_settled(&mut self, content: u64, stamp: Stamp, now: Instant) -> bool {
        let same = self.doubted.filter(|it| it.content == content && it.stamp == stamp);
        self.doubted.insert(same.unwrap_or(Doubted { content, stamp, since: now })).is_settled(now)
    }

    fn believe(&mut self, manifest: Manifest, text: &[u8]) {
        let Manifest { objects, problems, refused, passed_over } = manifest;
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

    fn take_failure(&mut self, name: &Arc<str>, message: String) -> Scan {
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
            placed.object = Object::clone(object);
        }
    }
    new
}

/// The manifest files of a folder by name, or the one file that `path` is. Folders below are not entered, as with
/// `kubectl apply -f DIR`; hidden names are left out, which covers editors' swap and lock files and the `..data` of a
/// mounted ConfigMap.
fn list(path: &Path) -> io::Result<BTreeMap<Arc<str>, PathBuf>> {
    let mut listed = BTreeMap::new();
    if fs::metadata(path)?.is_file() {
        let name = path.file_name().unwrap_or(path.as_os_str());
        listed.insert(name.to_string_lossy().into(), path.to_owned());
        return Ok(listed);
    }
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|name| is_manifest(name)) {
            listed.insert(name.to_string_lossy().into(), path.clone());
        }
    }
    Ok(listed)
}

fn is_manifest(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    !name.as_encoded_bytes().starts_with(b".") && matches!(extension, Some("yaml" | "yml" | "json"))
}

fn read(path: &Path, last: Option<Stamp>) -> Outcome {
    match try_read(path, last) {
        Ok(outcome) => outcome,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Gone,
        Err(error) => Outcome::Unreadable(format!("the file cannot be read: {error}")),
    }
}

fn try_read(path: &Path, last: Option<Stamp>) -> io::Result<Outcome> {
    // Looked at before it is opened: opening a FIFO would wait for its writer.
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Ok(Outcome::Gone);
    }
    if last == Some(Stamp::of(&metadata)) {
        return Ok(Outcome::Same);
    }
    let mut file = File::open(path)?;
    let before = Stamp::of(&file.metadata()?);
    let mut bytes = Vec::new();
    file.by_ref().take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Ok(Outcome::Unreadable(format!("the file is larger than {} MiB", MAX_FILE >> 20)));
    }
    if Stamp::of(&file.metadata()?) != before {
        return Ok(Outcome::Unsettled);
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Outcome::Text(text, before),
        Err(error) => {
            let offset = error.utf8_error().valid_up_to();
            Outcome::Unreadable(format!("the file cannot be read: byte {offset} is not UTF-8"))
        }
    })
}

fn insert(objects: &mut Objects, object: &Object) {
    match object {
        Object::Service(service) => {
            objects.services.insert(service_key(&service.metadata), service.clone());
        }
        Object::Slice(slice) => {
            // The manifest has told of those without an owner.
            let Some(owner) = slice_owner(slice) else { return };
            let name = slice.metadata.name.as_deref().unwrap_or_default().into();
            objects.slices.entry(owner).or_default().insert(name, slice.clone());
        }
        Object::Node(node) => {
            let name = node.metadata.name.as_deref().unwrap_or_default().into();
            objects.nodes.insert(name, node.clone());
        }
        Object::Pool(pool) => {
            let name = pool.metadata.name.as_deref().unwrap_or_default().into();
            objects.pools.insert(name, pool.clone());
        }
    }
}

fn duplicate(second: &Placed, first: &Origin) -> FileProblem {
    let problem = Problem {
        object: second.reference.clone(),
        reason: reason::DUPLICATE_OBJECT,
        field: String::new(),
        message: format!("is defined in {first} and again in {}; the first one counts", second.origin),
        port: None,
    };
    FileProblem { origin: second.origin.clone(), problem }
}

#[cfg(test)]
mod tests;
