//! Keys that sign heartbeats: one file each in a folder, which is read again when it changes.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The most keys: two while one replaces the other, and room for a mistake.
pub(crate) const MOST_KEYS: usize = 4;
/// The shortest key: 128 bits if it is random bytes.
pub(crate) const SHORTEST_KEY: usize = 16;

/// How often the folder is read. A Secret that is mounted changes within a minute anyway.
const LOOK: Duration = Duration::from_secs(2);
/// Longer files are no keys.
const LONGEST: u64 = 4096;

const ID: usize = 4;
/// RFC 2104 section 5 asks for half of the hash at least.
const MAC: usize = 16;

/// The keys of an installation. It signs with all of them and accepts any, so that a key is replaced by adding the new
/// one on every gateway before the old one is removed.
#[derive(Clone)]
pub struct KeyRing {
    keys: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    id: [u8; ID],
    mac: Hmac<Sha256>,
}

/// Why keys are unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is none.
    #[error("no key; write at least {SHORTEST_KEY} random characters into the file")]
    None,
    /// More than fit into a heartbeat.
    #[error("{0} keys; at most {MOST_KEYS} are allowed")]
    TooMany(usize),
    /// One is too short.
    #[error("key {index} has {length} bytes; at least {SHORTEST_KEY} are needed")]
    Short {
        /// Which one, counted from 1.
        index: usize,
        /// Its length.
        length: usize,
    },
}

impl KeyRing {
    /// The keys in `texts`, one per line; empty lines are skipped.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, KeyError> {
        let mut keys: Vec<Key> = Vec::new();
        let lines = texts.into_iter().flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty());
        for (index, line) in lines.enumerate() {
            let short = KeyError::Short { index: index + 1, length: line.len() };
            let key = (line.len() >= SHORTEST_KEY).then(|| Key::new(line)).flatten().ok_or(short)?;
            if keys.iter().all(|known| known.id != key.id) {
                keys.push(key);
            }
        }
        match keys.len() {
            0 => Err(KeyError::None),
            1..=MOST_KEYS => Ok(Self { keys }),
            many => Err(KeyError::TooMany(many)),
        }
    }

    /// How many bytes `sign` appends.
    pub fn signature_len(&self) -> usize {
        self.keys.len() * (ID + MAC) + 1
    }

    /// Appends one MAC per key, and their number.
    pub fn sign(&self, bytes: &mut Vec<u8>) {
        let signed = bytes.len();
        for key in &self.keys {
            let tag = key.mac.clone().chain_update(&bytes[..signed]).finalize().into_bytes();
            bytes.extend_from_slice(&key.id);
            bytes.extend_from_slice(&tag[..MAC]);
        }
        bytes.push(self.keys.len() as u8);
    }

    /// The signed part, if one of its MACs is by a key of this ring. Takes the same time whatever the MAC.
    pub fn verify<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (&count, rest) = bytes.split_last()?;
        let count = usize::from(count);
        if count > MOST_KEYS {
            return None;
        }
        let (signed, tags) = rest.split_at_checked(rest.len().checked_sub(count * (ID + MAC))?)?;
        let verified = tags.chunks_exact(ID + MAC).any(|tag| {
            let (id, tag) = tag.split_at(ID);
            let key = self.keys.iter().find(|key| key.id == id);
            key.is_some_and(|key| key.mac.clone().chain_update(signed).verify_truncated_left(tag).is_ok())
        });
        verified.then_some(signed)
    }
}

impl Key {
    fn new(text: &str) -> Option<Self> {
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(text.as_bytes()).ok()?;
        let id = mac.clone().chain_update(b"sheave key id").finalize().into_bytes();
        Some(Self { id: id.first_chunk().copied()?, mac })
    }
}

/// Shows how many keys there are, and nothing of them.
impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("keys", &self.keys.len()).finish()
    }
}

/// Keys in use, and the folder that they are from. Without `Debug`, which would show them.
pub(crate) struct Keys {
    path: PathBuf,
    /// Files of the folder, as they were read last.
    texts: Vec<String>,
    looked: Instant,
    pub(crate) ring: KeyRing,
    /// Why the files of the folder are not the keys in use.
    pub(crate) problem: Option<String>,
}

impl Keys {
    /// Reads the files of the folder.
    ///
    /// # Errors
    /// Errors of readdir(3), and files that cannot be read, are longer than 4 KiB, or have no key.
    pub(crate) fn open(path: PathBuf, now: Instant) -> io::Result<Self> {
        let texts = read(&path)?;
        let ring = parse(&texts).map_err(io::Error::other)?;
        Ok(Self { path, texts, looked: now, ring, problem: None })
    }

    /// When to call [`Self::changed`].
    pub(crate) fn next_look(&self) -> Instant {
        self.looked + LOOK
    }

    /// The keys, if there are others now. Unusable ones are logged, and change nothing. Files that cannot be read are tried again later.
    pub(crate) fn changed(&mut self, now: Instant) -> Option<&KeyRing> {
        self.looked = now;
        self.texts = read(&self.path).ok().filter(|texts| *texts != self.texts)?;
        let folder = self.path.display();
        match parse(&self.texts) {
            Ok(ring) => {
                tracing::info!(%folder, "read the keys of heartbeats again");
                (self.ring, self.problem) = (ring, None);
                Some(&self.ring)
            }
            Err(error) => {
                tracing::error!(%folder, %error, "the keys of heartbeats stay what they were");
                self.problem = Some(format!(
                    "the files in {folder} are no keys ({error}): heartbeats are signed with the keys that were there before; the next start \
                     fails"
                ));
                None
            }
        }
    }
}

fn parse(texts: &[String]) -> Result<KeyRing, KeyError> {
    KeyRing::parse(texts.iter().map(String::as_str))
}

/// Texts of the files in a folder, by name. Names with a dot in front are not keys: `..data` and its like in a mounted Secret, and those of
/// editors.
fn read(folder: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // Follows links.
        let metadata = fs::metadata(entry.path()).ok().filter(|metadata| metadata.is_file() && !hidden);
        files.extend(metadata.map(|metadata| (entry.path(), metadata.len())));
    }
    files.sort_unstable();
    let texts = files.into_iter().map(|(path, length)| {
        if length > LONGEST {
            let message = format!("{} is longer than {LONGEST} bytes, which no key is", path.display());
            return Err(io::Error::other(message));
        }
        fs::read_to_string(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OLD: &str = "an old key of 25 bytes...";
    const NEW: &str = "a new key of 25 bytes....";

    fn ring(text: &str) -> KeyRing {
        KeyRing::parse([text]).unwrap()
    }

    fn signed(ring: &KeyRing, text: &[u8]) -> Vec<u8> {
        let mut bytes = text.to_vec();
        ring.sign(&mut bytes);
        assert_eq!(bytes.len(), text.len() + ring.signature_len());
        bytes
    }

    #[test]
    fn parses_lines_of_files() {
        let both = KeyRing::parse([&format!("\n  {OLD}  \r\n\n"), NEW, OLD]).unwrap();
        assert_eq!(both.keys.len(), 2);
        assert_eq!(KeyRing::parse(["", " \n"]).unwrap_err(), KeyError::None);
        let short = KeyRing::parse([OLD, "fifteen bytes.."]).unwrap_err();
        assert_eq!(short, KeyError::Short { index: 2, length: 15 });
        let many: Vec<String> = (0..5).map(|i| format!("{OLD}{i}")).collect();
        assert_eq!(KeyRing::parse(many.iter().map(String::as_str)).unwrap_err(), KeyError::TooMany(5));
    }

    #[test]
    fn a_key_is_replaced_without_a_gap() {
        let (old, both, new) = (ring(OLD), ring(&format!("{OLD}\n{NEW}")), ring(NEW));
        for (from, to) in [(&old, &both), (&both, &old), (&both, &new), (&new, &both), (&both, &both)] {
            assert_eq!(to.verify(&signed(from, b"text")), Some(&b"text"[..]));
        }
        assert_eq!(new.verify(&signed(&old, b"text")), None);
    }

    #[test]
    fn every_byte_counts() {
        let ring = ring(OLD);
        let bytes = signed(&ring, b"text");
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert_eq!(ring.verify(&changed), None, "byte {index}");
            assert_eq!(ring.verify(&bytes[..index]), None);
        }
    }

    #[test]
    fn shows_no_key() {
        let shown = format!("{:?}", ring(OLD));
        assert_eq!(shown, "KeyRing { keys: 1 }");
    }

    #[test]
    fn keys_are_the_visible_files_and_are_read_again_when_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("b", NEW);
        write("a", OLD);
        write(".a.swp", "no key");
        fs::create_dir(folder.path().join("..2026")).unwrap();
        let now = Instant::now();
        let mut keys = Keys::open(folder.path().to_owned(), now).unwrap();
        assert_eq!((&*keys.texts, keys.ring.keys.len()), (&[OLD.to_owned(), NEW.to_owned()][..], 2));
        assert_eq!(keys.next_look(), now + LOOK);
        assert!(keys.changed(now).is_none());
        write("c", "a third key of 26 bytes...");
        assert_eq!(keys.changed(now).unwrap().keys.len(), 3);
        write("d", &"long".repeat(2000));
        assert!(
            keys.changed(now).is_none() && keys.problem.is_none(),
            "what cannot be read is looked at again"
        );
        fs::remove_file(folder.path().join("a")).unwrap();
        write("d", "short");
        assert!(keys.changed(now).is_none() && keys.problem.as_ref().unwrap().contains("key 3 has 5 bytes"));
        assert_eq!(keys.ring.keys.len(), 3);
        fs::remove_file(folder.path().join("d")).unwrap();
        assert_eq!(keys.changed(now).unwrap().keys.len(), 2);
        assert!(keys.problem.is_none());
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(keys.changed(now).is_none());
        let error = Keys::open(folder.path().to_owned(), now).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes: Vec<u8>) {
            prop_assert_eq!(ring(OLD).verify(&bytes), None);
        }
    }
}
