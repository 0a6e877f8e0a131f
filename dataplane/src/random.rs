//! A small random source for one worker: no lock, no system call, not for secrets.

use std::cell::Cell;

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and three mixing steps a number, every seed is good.
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    /// Equal seeds give equal sequences.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// The next number, uniform over all of `u64`.
    pub(crate) fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
