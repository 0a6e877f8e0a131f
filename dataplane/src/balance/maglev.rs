//! Maglev: a weighted consistent hash with even shares (Eisenbud et al., NSDI 2016, section 3.4), for more candidates than
//! [rendezvous hashing](super::rendezvous) is suited for.
//!
//! Every gateway with the same candidates builds the same table, in whatever order it learned of them, and so picks the same
//! endpoint for a client without communication. When one candidate leaves, the others keep nearly all their slots.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::PickInput;
use super::hash::mix;
use super::weights::{Weights, scale};

/// Table sizes: primes, with at least 100 slots per candidate for even shares (the paper's section 5.3), up to 655 candidates.
/// There are only two sizes, because a change of size moves nearly every client, and must happen at the same count on every
/// gateway: with these it only happens where the count crosses 163.
const SMALL: usize = 16_381;
const LARGE: usize = 65_537;
const SMALL_CANDIDATES: usize = SMALL / 100;

/// Maglev table: candidates and their slots.
#[derive(Debug)]
pub struct Maglev {
    weights: Weights,
    identities: Box<[u64]>,
    size: usize,
    slots: Slots,
}

/// Candidate of each slot, in the narrowest sufficient type: with many large Services these tables are most of the memory.
#[derive(Debug)]
enum Slots {
    Narrow(Box<[u8]>),
    Middle(Box<[u16]>),
    Wide(Box<[u32]>),
}

impl Maglev {
    /// Builds the table over these candidates; `identities` are their hashes, in the order of `weights`.
    ///
    /// Beyond 65,537 candidates there are fewer slots than candidates: those without a slot are never chosen.
    pub fn new(weights: Weights, identities: Box<[u64]>) -> Self {
        let size = if identities.len() <= SMALL_CANDIDATES { SMALL } else { LARGE };
        let slots = Slots::new(&fill(&weights, &identities, size), identities.len());
        Self { weights, identities, size, slots }
    }

    /// The table over these candidates: one of `known`, or a new one.
    pub fn new_or_known(weights: &Weights, identities: Box<[u64]>, known: &[Arc<Self>]) -> Arc<Self> {
        let same = |known: &&Arc<Self>| known.weights == *weights && known.identities == identities;
        match known.iter().find(same) {
            Some(same) => Arc::clone(same),
            None => Arc::new(Self::new(weights.clone(), identities)),
        }
    }

    /// The candidate of the client's slot, or of the next slot whose candidate was not tried.
    pub fn choose(&self, input: &PickInput<'_>) -> usize {
        let slot = scale(input.hash, self.size as u64) as usize;
        let index = self.slots.get(slot);
        match input.tried {
            Some(tried) if tried(index) => (slot + 1..self.size)
                .chain(0..slot)
                .map(|slot| self.slots.get(slot))
                .find(|&index| !tried(index))
                .unwrap_or(index),
            _ => index,
        }
    }
}

/// Fills the table: candidates take slots in weighted turns, each in its own permutation, until every slot is taken.
fn fill(weights: &Weights, identities: &[u64], size: usize) -> Vec<u32> {
    let mut owners = vec![0; size];
    let mut taken = TakenSlots::new(size);
    let mut turns = Turns::new(weights, identities, size);
    for _ in 0..size {
        let Some((candidate, slots)) = turns.next() else { break };
        let slot = slots.find(|&slot| taken.take(slot)).unwrap_or_default();
        owners[slot] = candidate;
    }
    owners
}

impl Slots {
    fn new(owners: &[u32], candidates: usize) -> Self {
        match candidates {
            0..=0x100 => Self::Narrow(owners.iter().map(|&owner| owner as u8).collect()),
            0x101..=0x1_0000 => Self::Middle(owners.iter().map(|&owner| owner as u16).collect()),
            _ => Self::Wide(owners.into()),
        }
    }

    fn get(&self, slot: usize) -> usize {
        match self {
            Self::Narrow(slots) => slots.get(slot).map(|&index| usize::from(index)),
            Self::Middle(slots) => slots.get(slot).map(|&index| usize::from(index)),
            Self::Wide(slots) => slots.get(slot).map(|&index| index as usize),
        }
        .unwrap_or_default()
    }
}

/// Set of taken slots, one bit each, so that it fits the fastest cache.
struct TakenSlots(Vec<u64>);

impl TakenSlots {
    fn new(slots: usize) -> Self {
        Self(vec![0; slots.div_ceil(64)])
    }

    /// Takes the slot; returns false if it was taken before.
    fn take(&mut self, slot: usize) -> bool {
        let (word, bit) = (&mut self.0[slot / 64], 1 << (slot % 64));
        let free = *word & bit == 0;
        *word |= bit;
        free
    }
}

/// A candidate's order of all slots: any start and any stride, because the size is prime.
struct Permutation {
    next: usize,
    stride: usize,
    size: usize,
}

impl Permutation {
    fn new(identity: u64, size: usize) -> Self {
        let start = scale(mix(identity), size as u64) as usize;
        let stride = scale(mix(!identity), size as u64 - 1) as usize + 1;
        Self { next: start, stride, size }
    }
}

impl Iterator for Permutation {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let slot = self.next;
        let next = slot + self.stride;
        self.next = if next < self.size { next } else { next - self.size };
        Some(slot)
    }
}

/// Order in which candidates take slots: at intervals inverse to their weights, and all of them at the start, so that even the
/// lightest gets a slot. Ties are broken by identity, never by index.
struct Turns {
    /// Candidates sorted by identity.
    order: Vec<Turn>,
    /// When each candidate is due, by index in `order`; `None` with equal weights.
    due: Option<BinaryHeap<Reverse<(u64, usize)>>>,
    rank: usize,
}

struct Turn {
    candidate: u32,
    interval: u64,
    slots: Permutation,
}

impl Turns {
    fn new(weights: &Weights, identities: &[u64], size: usize) -> Self {
        // The heaviest has an interval of 2^20 to 2^21, which resolves differences of a millionth.
        let heaviest = weights.iter().max().unwrap_or(1).next_power_of_two() << 20;
        let mut candidates: Vec<(u64, u32, u64)> = identities
            .iter()
            .zip(0..)
            .zip(weights.iter())
            .filter(|&(_, weight)| weight > 0)
            .map(|((&identity, candidate), weight)| (identity, candidate, weight))
            .collect();
        candidates.sort_unstable();
        let turn = |(identity, candidate, weight)| Turn {
            candidate,
            interval: heaviest / weight,
            slots: Permutation::new(identity, size),
        };
        let order: Vec<Turn> = candidates.into_iter().map(turn).collect();
        let due = (!weights.all_equal()).then(|| (0..order.len()).map(|rank| Reverse((0, rank))).collect());
        Self { order, due, rank: 0 }
    }

    fn next(&mut self) -> Option<(u32, &mut Permutation)> {
        let rank = match &mut self.due {
            None => {
                let rank = self.rank;
                self.rank = if rank + 1 < self.order.len() { rank + 1 } else { 0 };
                rank
            }
            Some(due) => {
                let mut due = due.peek_mut()?;
                due.0.0 += self.order.get(due.0.1)?.interval;
                due.0.1
            }
        };
        self.order.get_mut(rank).map(|turn| (turn.candidate, &mut turn.slots))
    }
}

#[cfg(test)]
mod tests;
