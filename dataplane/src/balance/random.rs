//! Weighted random.

use super::weights::Weights;
use super::{Balance, PickInput};

/// Chooses at random, in proportion to weight.
#[derive(Debug)]
pub struct Random {
    weights: Weights,
}

impl Random {
    /// A balancer over these candidates.
    pub fn new(weights: Weights) -> Self {
        Self { weights }
    }
}

impl Balance for Random {
    fn choose(&self, input: &PickInput<'_>) -> usize {
        input
            .tried
            .and_then(|tried| self.weights.draw_where(input.random, |index| !tried(index)))
            .unwrap_or_else(|| self.weights.draw(input.random))
    }
}
