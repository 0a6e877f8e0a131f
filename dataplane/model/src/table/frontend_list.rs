//! Frontends sorted by address, in chunks that tables share: one change among fifty thousand copies one chunk.

use std::net::IpAddr;
use std::ops::Index;
use std::sync::Arc;

use super::FrontendChange;
use crate::{Frontend, FrontendAddr};

/// Number of frontends in a new chunk; a chunk that has grown to twice as many is split.
const CHUNK: usize = 256;

/// Some of the frontends, sorted; never empty.
type Chunk = Arc<[Arc<Frontend>]>;

/// Sorted frontends, each address once.
#[derive(Clone, Debug, Default)]
pub struct FrontendList {
    chunks: Vec<Chunk>,
    len: usize,
}

impl FrontendList {
    /// Builds the list from frontends that are already sorted, each address once.
    pub(super) fn from_sorted(frontends: &[Arc<Frontend>]) -> Self {
        debug_assert!(frontends.is_sorted_by(|one, next| one.addr < next.addr));
        Self { chunks: frontends.chunks(CHUNK).map(Arc::from).collect(), len: frontends.len() }
    }

    /// This list with `changes`, which are sorted by address and name each address once.
    pub(super) fn with(&self, changes: &[FrontendChange]) -> Self {
        let mut rest = changes;
        let mut chunks: Vec<Chunk> = Vec::with_capacity(self.chunks.len());
        for (index, chunk) in self.chunks.iter().enumerate() {
            // A chunk takes the changes up to the start of the next chunk; the last one takes all that follow.
            let next = self.chunks.get(index + 1).and_then(|next| next.first());
            let own = next.map_or(rest.len(), |next| rest.partition_point(|(addr, _)| *addr < next.addr));
            let (own, behind) = rest.split_at(own);
            rest = behind;
            if own.is_empty() {
                chunks.push(Arc::clone(chunk));
            } else {
                append(&mut chunks, merge(chunk, own));
            }
        }
        append(&mut chunks, merge(&[], rest));
        let len = chunks.iter().map(|chunk| chunk.len()).sum();
        Self { chunks, len }
    }

    /// Number of frontends.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list has no frontend.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All frontends, sorted by address.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Frontend>> + Clone {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The frontend at exactly this address.
    pub fn get(&self, addr: FrontendAddr) -> Option<&Arc<Frontend>> {
        let behind =
            self.chunks.partition_point(|chunk| chunk.first().is_some_and(|first| first.addr <= addr));
        let chunk = self.chunks.get(behind.checked_sub(1)?)?;
        chunk.get(chunk.binary_search_by_key(&addr, |frontend| frontend.addr).ok()?)
    }

    /// Whether any frontend has this address, on any port.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        let before = self.chunks.partition_point(|chunk| chunk.last().is_some_and(|last| last.addr.ip < ip));
        let Some(chunk) = self.chunks.get(before) else { return false };
        let first = chunk.partition_point(|frontend| frontend.addr.ip < ip);
        chunk.get(first).is_some_and(|frontend| frontend.addr.ip == ip)
    }

    /// Copies the list into a vector.
    pub fn to_vec(&self) -> Vec<Arc<Frontend>> {
        self.iter().cloned().collect()
    }

    /// The frontends of each list that are not in a chunk that both lists share.
    pub(super) fn unshared<'a>(&'a self, other: &'a Self) -> [Vec<&'a Arc<Frontend>>; 2] {
        let mut of = [Vec::new(), Vec::new()];
        let (mut before, mut after) = (self.chunks.as_slice(), other.chunks.as_slice());
        while let ([was, older @ ..], [is, newer @ ..]) = (before, after) {
            if Arc::ptr_eq(was, is) {
                (before, after) = (older, newer);
                continue;
            }
            // The chunk that begins first cannot be shared with a later one of the other list.
            let [first, second] = [was, is].map(|chunk| chunk.first().map(|frontend| frontend.addr));
            if first <= second {
                of[0].extend(was.iter());
                before = older;
            }
            if second <= first {
                of[1].extend(is.iter());
                after = newer;
            }
        }
        of[0].extend(before.iter().flat_map(|chunk| chunk.iter()));
        of[1].extend(after.iter().flat_map(|chunk| chunk.iter()));
        of
    }
}

/// The chunk with `changes` applied, sorted.
fn merge(chunk: &[Arc<Frontend>], changes: &[FrontendChange]) -> Vec<Arc<Frontend>> {
    let mut all = Vec::with_capacity(chunk.len() + changes.len());
    let mut old = chunk.iter().peekable();
    for (addr, new) in changes {
        while let Some(before) = old.next_if(|old| old.addr < *addr) {
            all.push(Arc::clone(before));
        }
        old.next_if(|old| old.addr == *addr);
        all.extend(new.clone());
    }
    all.extend(old.cloned());
    all
}

/// Appends the frontends in chunks of the right size; appends nothing if there are no frontends.
fn append(chunks: &mut Vec<Chunk>, frontends: Vec<Arc<Frontend>>) {
    if frontends.len() < 2 * CHUNK {
        chunks.extend((!frontends.is_empty()).then(|| frontends.into()));
    } else {
        chunks.extend(frontends.chunks(CHUNK).map(Arc::from));
    }
}

impl Index<usize> for FrontendList {
    type Output = Arc<Frontend>;

    fn index(&self, mut index: usize) -> &Self::Output {
        for chunk in &self.chunks {
            if index < chunk.len() {
                return &chunk[index];
            }
            index -= chunk.len();
        }
        panic!("there are {} frontends", self.len);
    }
}

impl<'a> IntoIterator for &'a FrontendList {
    type Item = &'a Arc<Frontend>;
    type IntoIter = Box<dyn Iterator<Item = &'a Arc<Frontend>> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl PartialEq for FrontendList {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests;
