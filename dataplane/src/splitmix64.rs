//! Random number generator of the workers: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014). Not for secrets. The caller provides the seed, so that a test can replay a run.

use std::cell::Cell;

use crate::balance::hash::{GAMMA, mix};

/// A stream of random numbers, drawn through a shared reference.
#[derive(Debug)]
pub(crate) struct SplitMix64 {
    state: Cell<u64>,
}

impl SplitMix64 {
    /// A stream that depends only on `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: Cell::new(seed) }
    }

    /// The next number, uniform over all of `u64`.
    pub(crate) fn next(&self) -> u64 {
        let state = self.state.get().wrapping_add(GAMMA);
        self.state.set(state);
        mix(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let random = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
