//! The keys that sign heartbeats.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The most keys: two while one replaces the other, and room for a mistake.
pub(crate) const MOST_KEYS: usize = 4;
/// The shortest key: 128 bits if it is random bytes.
pub(crate) const SHORTEST_KEY: usize = 16;

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

    proptest! {
        #[test]
        fn takes_any_bytes(bytes: Vec<u8>) {
            prop_assert_eq!(ring(OLD).verify(&bytes), None);
        }
    }
}
