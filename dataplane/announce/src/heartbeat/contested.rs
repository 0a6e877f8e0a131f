//! Which addresses the sender leaves to another machine, on the wire: their number, and a hash of each.

use std::net::IpAddr;

use super::reader::{Reader, WireError};
use crate::hash::name_hash;

/// The most that a heartbeat names: 64 bytes.
const MOST: usize = 16;
/// In place of the number: more than it can name.
const ALL: u8 = u8::MAX;

/// Addresses that another machine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contested {
    These(Vec<AddressHash>),
    /// So many that each may be among them.
    All,
}

/// An address, hashed to 32 bits: two that are equal cost a probe that was not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AddressHash(u32);

impl AddressHash {
    pub(crate) fn of(ip: IpAddr) -> Self {
        Self((name_hash(&ip.to_string()) >> 32) as u32)
    }
}

impl Default for Contested {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

impl Contested {
    pub(crate) fn of(ips: &[IpAddr]) -> Self {
        if ips.len() > MOST {
            Self::All
        } else {
            Self::These(ips.iter().copied().map(AddressHash::of).collect())
        }
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let Self::These(hashes) = self else { return bytes.push(ALL) };
        bytes.push(u8::try_from(hashes.len()).unwrap_or(ALL));
        hashes.iter().for_each(|hash| bytes.extend_from_slice(&hash.0.to_be_bytes()));
    }

    /// An older version does not say.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        if reader.0.is_empty() {
            return Ok(Self::default());
        }
        let [count] = reader.array()?;
        if count == ALL {
            return Ok(Self::All);
        }
        let hashes = (0..count).map(|_| Ok(AddressHash(u32::from_be_bytes(reader.array()?))));
        Ok(Self::These(hashes.collect::<Result<_, _>>()?))
    }
}
