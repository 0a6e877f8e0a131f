//! The manifest folder: selects and reads the files, and combines their contents.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::Loaded;
use super::known_file::{FileScan, KnownFile, Stamp};
use super::manifest::{self, PlacedObject};
use super::origin::{FileProblem, Origin, Origins};
use crate::api::kinds::{ChangeVisitor, ImportSlices, Kind};
use crate::api::problem::{Problem, reason};
use crate::api::store::{Change, ControlPlane, Delta, Objects};

/// Largest size of a file. A Service takes about 1 KB, so this is far beyond a reasonable folder, and it bounds the memory that a
/// mistake (a log, an image with the wrong name) can cost.
const MAX_FILE: u64 = 256 << 20;

/// The folder as of the last scan.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    plane: ControlPlane,
    files: BTreeMap<Arc<str>, KnownFile>,
    listed: bool,
    /// Why the folder cannot be listed. Its files then stay as they were.
    unlisted: Option<String>,
}

/// Result of reading a file.
enum Outcome {
    /// The file does not exist, or is not a regular file.
    Gone,
    /// The file has the same stamp as when it was last read.
    Same,
    /// Text and stamp of the file.
    Text(String, Stamp),
    /// The file is being written at this moment.
    Unsettled,
    /// The file cannot be read.
    Unreadable(String),
}

impl Folder {
    /// A folder that was not scanned yet. A single file is a folder with one file.
    pub(super) fn new(path: PathBuf, plane: ControlPlane) -> Self {
        Self { path, plane, files: BTreeMap::new(), listed: false, unlisted: None }
    }

    /// Checks every file and reads those that changed.
    pub(super) fn scan(&mut self) -> FileScan {
        self.scan_at(Instant::now())
    }

    fn scan_at(&mut self, now: Instant) -> FileScan {
        let listed = match list(&self.path) {
            Ok(listed) => listed,
            Err(error) => {
                let before = self.unlisted.replace(error.to_string());
                return FileScan { changed: before != self.unlisted, unsettled: false };
            }
        };
        let first = !std::mem::replace(&mut self.listed, true);
        let before = self.files.len();
        let mut unsettled = false;
        self.files.retain(|name, file| {
            let doubted = !listed.contains_key(name) && !file.is_gone(now);
            unsettled |= doubted;
            doubted || listed.contains_key(name)
        });
        let back = self.unlisted.take().is_some();
        let changed = first || back || self.files.len() != before;
        let mut scan = FileScan { changed, unsettled };
        for (name, path) in listed {
            let file = self.scan_file(&name, &path, now);
            scan.changed |= file.changed;
            scan.unsettled |= file.unsettled;
        }
        scan
    }

    fn scan_file(&mut self, name: &Arc<str>, path: &Path, now: Instant) -> FileScan {
        let known = self.files.get(name);
        let doubted = known.and_then(|file| file.doubted_at(now));
        let outcome = read(path, doubted.or(known.and_then(|file| file.stamp)));
        if let (Some(file), false) = (self.files.get_mut(name), matches!(outcome, Outcome::Gone)) {
            file.is_there();
        }
        match outcome {
            Outcome::Same if doubted.is_some() => FileScan::UNSETTLED,
            Outcome::Same => FileScan::UNCHANGED,
            Outcome::Unsettled => FileScan::UNSETTLED,
            Outcome::Gone => match self.files.get_mut(name).map(|file| file.is_gone(now)) {
                None => FileScan::UNCHANGED,
                Some(false) => FileScan::UNSETTLED,
                Some(true) => {
                    self.files.remove(name);
                    FileScan::CHANGED
                }
            },
            Outcome::Unreadable(message) => {
                self.files.entry(name.clone()).or_default().take_failure(name, message)
            }
            Outcome::Text(text, stamp) => {
                self.files.entry(name.clone()).or_default().take_text((name, self.plane), &text, stamp, now)
            }
        }
    }

    /// All objects in effect.
    pub(super) fn loaded(&self) -> Loaded {
        let mut loaded = Loaded { listed: self.listed, ..Loaded::default() };
        if let Some(error) = &self.unlisted {
            loaded.problems.push(self.folder_problem(error));
        }
        let mut origins = HashMap::new();
        // Files that seem to be gone have a lower priority than existing ones: a file may have been renamed.
        let (there, doubtful): (Vec<_>, Vec<_>) = self.files.values().partition(|file| !file.seems_gone());
        for file in there.into_iter().chain(doubtful) {
            loaded.problems.extend(file.problems.iter().cloned());
            loaded.passed_over += file.passed_over;
            for placed in &file.objects {
                match origins.entry(placed.reference.clone()) {
                    Entry::Vacant(entry) => {
                        entry.insert((placed.origin.clone(), placed.place.clone()));
                        placed.object.clone().visit(Put(&mut loaded.objects));
                        // A slice may belong to a Service, to a ServiceImport, or to both.
                        if let Change::Slices(Delta::Put(slice)) = &placed.object {
                            loaded.objects.put::<ImportSlices>(Arc::clone(slice));
                        }
                    }
                    Entry::Occupied(_) if file.seems_gone() => {}
                    Entry::Occupied(first) => loaded.problems.push(duplicate(placed, &first.get().0)),
                }
            }
        }
        loaded.origins = Origins(origins);
        loaded
    }

    fn folder_problem(&self, error: &str) -> FileProblem {
        let name: Arc<str> = self.path.to_string_lossy().into();
        let then = if self.listed {
            "what it held before stays in effect"
        } else {
            "nothing is served from it until it can be"
        };
        let problem = manifest::file_problem(&name, format!("cannot be listed: {error}; {then}"));
        FileProblem { origin: Origin { file: name, document: None, line: None }, problem }
    }
}

/// Manifest files of a folder by name, or the single file at `path`. Subfolders are skipped, as with `kubectl apply -f DIR`.
/// Hidden names are skipped, which covers editors' swap and lock files and the `..data` of a mounted ConfigMap.
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

/// Text of a file with a name from [`list`]; `None` if it can no longer be read.
pub(super) fn text_of(path: &Path, name: &str) -> Option<String> {
    let file = list(path).ok()?.remove(name)?;
    match read(&file, None) {
        Outcome::Text(text, _) => Some(text),
        Outcome::Gone | Outcome::Same | Outcome::Unsettled | Outcome::Unreadable(_) => None,
    }
}

/// Text of each manifest file by name, or why it cannot be read. For commands that run once.
pub(super) fn texts(path: &Path) -> io::Result<BTreeMap<Arc<str>, Result<String, String>>> {
    let read_one = |(name, file): (Arc<str>, PathBuf)| match read(&file, None) {
        Outcome::Text(text, _) => Some((name, Ok(text))),
        Outcome::Unreadable(message) => Some((name, Err(message))),
        Outcome::Unsettled => Some((name, Err("somebody writes the file at this moment".to_owned()))),
        Outcome::Gone | Outcome::Same => None,
    };
    Ok(list(path)?.into_iter().filter_map(read_one).collect())
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
    // Check before opening: opening a FIFO would wait for its writer.
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

/// Adds an object to the collection of its kind.
struct Put<'a>(&'a mut Objects);

impl ChangeVisitor for Put<'_> {
    type Output = ();

    fn visit<K: Kind>(self, delta: Delta<K::Object>) {
        if let Delta::Put(object) = delta {
            self.0.put::<K>(object);
        }
    }
}

fn duplicate(second: &PlacedObject, first: &Origin) -> FileProblem {
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
