//! Power of two choices: of two random candidates, the one with fewer connections relative to its weight (Mitzenmacher
//! 2001). It is nearly as even as comparing all candidates, at constant cost, and without the herd effect of "least loaded
//! of all" when several gateways see the same idle endpoint.

use super::PickInput;
use super::hash::mix;
use super::weights::Weights;

/// Chooses the less loaded of two distinct candidates drawn by weight.
pub fn choose(weights: &Weights, input: &PickInput<'_>) -> usize {
    match pair(weights, input) {
        (first, Some(other)) if prefers(weights, other, first, input.load) => other,
        (first, _) => first,
    }
}

fn pair(weights: &Weights, input: &PickInput<'_>) -> (usize, Option<usize>) {
    let other_random = mix(input.random);
    let untried = input.tried.and_then(|tried| {
        let first = weights.draw_where(input.random, |index| !tried(index))?;
        let other = weights.draw_where(other_random, |index| index != first && !tried(index));
        Some((first, other))
    });
    untried.unwrap_or_else(|| {
        let first = weights.draw(input.random);
        (first, weights.draw_other(other_random, first))
    })
}

/// Whether `other` would be less loaded than `first` with one more connection, relative to weight.
///
/// Two idle candidates are equal regardless of their weights: the draws are weighted already, so short sequential
/// connections still spread by weight. Ties go to the first draw, so no index is favoured.
fn prefers(weights: &Weights, other: usize, first: usize, load: &dyn Fn(usize) -> u32) -> bool {
    let (other_load, first_load) = (u64::from(load(other)), u64::from(load(first)));
    (other_load, first_load) != (0, 0)
        && (other_load + 1) * weights.get(first) < (first_load + 1) * weights.get(other)
}
