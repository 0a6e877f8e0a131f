//! Weighted random choice.

use super::PickInput;
use super::weights::Weights;

/// Chooses at random, in proportion to weight.
pub fn choose(weights: &Weights, input: &PickInput<'_>) -> usize {
    input
        .tried
        .and_then(|tried| weights.draw_where(input.random, |index| !tried(index)))
        .unwrap_or_else(|| weights.draw(input.random))
}
