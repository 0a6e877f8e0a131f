//! The folder with the keys of heartbeats: one key per file, read again when something in it changes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How often it is looked whether something has changed. A Secret that is mounted changes within a minute anyway.
const LOOK: Duration = Duration::from_secs(2);
/// Longer files are no keys.
const LONGEST: u64 = 4096;

/// The folder, and what it had the last time.
#[derive(Debug)]
pub(crate) struct KeyFolder {
    path: PathBuf,
    seen: Vec<(PathBuf, SystemTime, u64)>,
    looked: Instant,
}

impl KeyFolder {
    /// Reads the files of the folder.
    ///
    /// # Errors
    /// As readdir(3), and if a file cannot be read or is longer than 4 KiB.
    pub(crate) fn open(path: PathBuf, now: Instant) -> io::Result<(Self, Vec<String>)> {
        let seen = list(&path)?;
        let texts = read(&seen)?;
        Ok((Self { path, seen, looked: now }, texts))
    }

    /// When to call [`Self::changed`].
    pub(crate) fn next_look(&self) -> Instant {
        self.looked + LOOK
    }

    /// The files, if they are others than before. What cannot be read is looked at again later, and until then nothing changes.
    pub(crate) fn changed(&mut self, now: Instant) -> Option<Vec<String>> {
        self.looked = now;
        let found = list(&self.path).ok().filter(|found| *found != self.seen)?;
        let texts = read(&found).ok()?;
        self.seen = found;
        Some(texts)
    }
}

/// The files, sorted. Names with a dot in front are not keys: `..data` and its like in a mounted Secret, and those of editors.
fn list(path: &Path) -> io::Result<Vec<(PathBuf, SystemTime, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // As what a link leads to.
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if metadata.is_file() && !hidden {
            files.push((entry.path(), metadata.modified()?, metadata.len()));
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn read(files: &[(PathBuf, SystemTime, u64)]) -> io::Result<Vec<String>> {
    let texts = files.iter().map(|(path, _, length)| {
        if *length > LONGEST {
            let message = format!("{} is longer than {LONGEST} bytes, which no key is", path.display());
            return Err(io::Error::other(message));
        }
        fs::read_to_string(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_visible_files_and_are_read_again_when_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("b", "second");
        write("a", "first");
        write(".a.swp", "no key");
        fs::create_dir(folder.path().join("..2026")).unwrap();
        let now = Instant::now();
        let (mut keys, texts) = KeyFolder::open(folder.path().to_owned(), now).unwrap();
        assert_eq!(texts, ["first", "second"]);
        assert_eq!(keys.next_look(), now + LOOK);
        assert_eq!(keys.changed(now), None);
        write("c", "third");
        assert_eq!(keys.changed(now).unwrap(), ["first", "second", "third"]);
        write("d", &"long".repeat(2000));
        assert_eq!(keys.changed(now), None, "what cannot be a key changes nothing");
        fs::remove_file(folder.path().join("d")).unwrap();
        fs::remove_file(folder.path().join("a")).unwrap();
        assert_eq!(keys.changed(now).unwrap(), ["second", "third"]);
        fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(keys.changed(now), None);
        let error = KeyFolder::open(folder.path().to_owned(), now).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
