//! Frontends in the order of their addresses, in parts that tables share: one change among fifty thousand makes one part
//! anew.

use std::ops::Index;
use std::sync::Arc;

use crate::{Frontend, FrontendAddr};

/// So many frontends a part has when it is made; it is divided when it has grown to twice as many.
const CHUNK: usize = 256;

/// Some of the frontends, sorted; never none.
type Chunk = Arc<[Arc<Frontend>]>;

/// Sorted frontends, each address once.
#[derive(Clone, Debug, Default)]
pub struct FrontendList {
    parts: Vec<Chunk>,
    len: usize,
}

impl FrontendList {
    /// Of frontends that are sorted already, each address once.
    pub(super) fn sorted<'a>(frontends: impl Iterator<Item = &'a Arc<Frontend>>) -> Self {
        let all: Vec<Arc<Frontend>> = frontends.cloned().collect();
        debug_assert!(all.is_sorted_by(|one, next| one.addr < next.addr));
        Self { parts: all.chunks(CHUNK).map(Arc::from).collect(), len: all.len() }
    }

    /// The same with these frontends in place of what was at their addresses; `None` takes away. `changes` are sorted by address,
    /// each once.
    pub(super) fn with(&self, changes: &[(FrontendAddr, Option<Arc<Frontend>>)]) -> Self {
        let mut rest = changes;
        let mut parts: Vec<Chunk> = Vec::with_capacity(self.parts.len());
        for (index, part) in self.parts.iter().enumerate() {
            // What comes before the next part belongs to this one, and what is behind the last to the last.
            let next = self.parts.get(index + 1).and_then(|next| next.first());
            let own = next.map_or(rest.len(), |next| rest.partition_point(|(addr, _)| *addr < next.addr));
            let (own, behind) = rest.split_at(own);
            rest = behind;
            if own.is_empty() {
                parts.push(Arc::clone(part));
            } else {
                divide(&mut parts, merged(part, own));
            }
        }
        divide(&mut parts, merged(&[], rest));
        let len = parts.iter().map(|part| part.len()).sum();
        Self { parts, len }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them, sorted by address.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Frontend>> + Clone {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// The one at exactly this address.
    pub fn get(&self, addr: FrontendAddr) -> Option<&Arc<Frontend>> {
        let behind = self.parts.partition_point(|part| part.first().is_some_and(|first| first.addr <= addr));
        let part = self.parts.get(behind.checked_sub(1)?)?;
        part.get(part.binary_search_by_key(&addr, |frontend| frontend.addr).ok()?)
    }

    /// A copy.
    pub fn to_vec(&self) -> Vec<Arc<Frontend>> {
        self.iter().cloned().collect()
    }

    /// The frontends of both that are not in parts which both have.
    pub(super) fn unshared<'a>(&'a self, other: &'a Self) -> [Vec<&'a Arc<Frontend>>; 2] {
        let mut of = [Vec::new(), Vec::new()];
        let (mut before, mut after) = (self.parts.as_slice(), other.parts.as_slice());
        while let ([was, older @ ..], [is, newer @ ..]) = (before, after) {
            if Arc::ptr_eq(was, is) {
                (before, after) = (older, newer);
                continue;
            }
            // The one that begins first cannot be shared with what follows in the other.
            let [first, second] = [was, is].map(|part| part.first().map(|frontend| frontend.addr));
            if first <= second {
                of[0].extend(was.iter());
                before = older;
            }
            if second <= first {
                of[1].extend(is.iter());
                after = newer;
            }
        }
        of[0].extend(before.iter().flat_map(|part| part.iter()));
        of[1].extend(after.iter().flat_map(|part| part.iter()));
        of
    }
}

/// Both, sorted.
fn merged(part: &[Arc<Frontend>], changes: &[(FrontendAddr, Option<Arc<Frontend>>)]) -> Vec<Arc<Frontend>> {
    let mut all = Vec::with_capacity(part.len() + changes.len());
    let mut old = part.iter().peekable();
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

fn divide(parts: &mut Vec<Chunk>, frontends: Vec<Arc<Frontend>>) {
    if frontends.len() < 2 * CHUNK {
        parts.extend((!frontends.is_empty()).then(|| frontends.into()));
    } else {
        parts.extend(frontends.chunks(CHUNK).map(Arc::from));
    }
}

impl Index<usize> for FrontendList {
    type Output = Arc<Frontend>;

    fn index(&self, mut index: usize) -> &Self::Output {
        for part in &self.parts {
            if index < part.len() {
                return &part[index];
            }
            index -= part.len();
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
