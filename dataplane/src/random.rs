//! A small random number generator for balancing, one per worker: SplitMix64 (Steele, Lea and Flood, "Fast splittable
//! pseudorandom number generators", 2014). Not for secrets.
//!
//! It must not seek entropy: whoever makes one gives the seed, so that a test can replay what happened.

use std::cell::Cell;

/// A stream of random numbers, drawn through a shared reference.
#[derive(Debug)]
pub(crate) struct Random {
    state: Cell<u64>,
}

impl Random {
    /// A stream that depends on `seed` alone.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: Cell::new(seed) }
    }

    /// The next number, uniform over all of `u64`.
    pub(crate) fn next(&self) -> u64 {
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let random = Random::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
