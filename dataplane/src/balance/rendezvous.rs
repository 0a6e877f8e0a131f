//! Weighted rendezvous hashing (Thaler and Ravishankar 1998; weights: Schindelhauer and Schomaker 2005): each candidate draws a
//! random time from an exponential distribution whose rate is its weight, and the earliest wins.
//!
//! A draw depends only on the client and the candidate. So every gateway makes the same choice in any order of the candidates,
//! a candidate that leaves moves only its own clients, and a falling weight moves only the candidate's own clients away. Each
//! choice computes the draws of all candidates, so it is for few; [Maglev](super::maglev) reads one slot of a table.

use std::ops::Range;

use super::PickInput;
use super::hash::mix;
use super::weights::Weights;

/// Number of candidates up to which comparing all costs less than a cache miss in a table of 16 KB. A change of this number
/// moves nearly every client of the Services between the two values.
pub const MOST_CANDIDATES: usize = 32;

/// Consecutive candidates of equal weight.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    end: u32,
    /// 1 / weight.
    pace: f64,
}

/// The candidates in runs of equal weight; empty if all weights are equal.
pub fn runs(weights: &Weights) -> Box<[Run]> {
    let mut runs: Vec<(u64, u32)> = Vec::new();
    if !weights.all_equal() {
        runs.extend(weights.iter().zip(1..));
        runs.dedup_by(|next, run| {
            let same = next.0 == run.0;
            run.1 = if same { next.1 } else { run.1 };
            same
        });
    }
    runs.into_iter().map(|(weight, end)| Run { end, pace: 1.0 / weight as f64 }).collect()
}

/// Candidates to choose from. Slices, so that those of several clusters can lie side by side.
#[derive(Clone, Copy, Debug)]
pub struct Rendezvous<'a> {
    /// Identity of each candidate, independent of its index.
    pub identities: &'a [u64],
    /// The [`runs`] of their weights.
    pub runs: &'a [Run],
}

impl Rendezvous<'_> {
    /// The index of the client's winner among the candidates that were not tried, or among all if every one was.
    pub fn choose(&self, input: &PickInput<'_>) -> usize {
        let untried = input.tried.and_then(|tried| self.first(input.hash, |index| !tried(index)));
        untried.or_else(|| self.first(input.hash, |_| true)).unwrap_or_default()
    }

    /// The winner among the candidates that `keep` accepts; `None` if none of them has a weight.
    pub fn first(&self, client: u64, keep: impl Fn(usize) -> bool) -> Option<usize> {
        if self.runs.is_empty() {
            return self.largest(client, 0..self.identities.len(), &keep).map(|(_, index)| index);
        }
        let (mut first, mut earliest, mut start) = (None, f64::INFINITY, 0);
        for run in self.runs {
            let end = run.end as usize;
            if let Some((random, index)) = self.largest(client, start..end, &keep) {
                let time = exponential(random) * run.pace;
                if time < earliest {
                    (first, earliest) = (Some(index), time);
                }
            }
            start = end;
        }
        first
    }

    /// The winner among candidates of equal weight: -ln(u) falls as u grows, so the largest number has the earliest time.
    fn largest(&self, client: u64, run: Range<usize>, keep: &impl Fn(usize) -> bool) -> Option<(u64, usize)> {
        let mut largest = None;
        for (identity, index) in self.identities.get(run.clone())?.iter().zip(run) {
            let random = mix(client ^ identity);
            if largest.is_none_or(|(most, _)| random > most) && keep(index) {
                largest = Some((random, index));
            }
        }
        largest
    }
}

/// Converts a uniform random number to an exponential one, -ln(u), with an error of about a millionth. Written out, because a
/// library's logarithm may differ in the last bit between machines, and gateways must agree; IEEE 754 defines these steps.
pub fn exponential(random: u64) -> f64 {
    // u = fraction / 2^shift, with the fraction from 1/2 to 1.
    let random = random | 1;
    let shift = random.leading_zeros();
    let fraction = ((random << shift) >> 11) as f64 / (1u64 << 53) as f64;
    // -ln(x) = 2 artanh((1 - x) / (1 + x))
    let t = (1.0 - fraction) / (1.0 + fraction);
    let square = t * t;
    let series =
        1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0))));
    2.0 * t * series + f64::from(shift) * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests;
