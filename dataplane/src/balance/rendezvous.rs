//! Weighted rendezvous hashing (Thaler and Ravishankar 1998; weights: Schindelhauer and Schomaker 2005): each candidate draws a
//! random time, exponential in its weight, and the first wins.
//!
//! A draw depends on the client and the candidate alone. So every gateway makes the same choice whatever the order of the
//! candidates, a candidate that leaves moves only its own clients, and a weight that falls moves only its own clients away.
//! Each choice looks at all candidates, so it is for few; [Maglev](super::maglev) looks at one slot of a table.

use std::ops::Range;

use super::PickInput;
use super::hash::mix;
use super::weights::Weights;

/// Up to here comparing all candidates costs less than a miss in a table of 16 KB. A change of this number moves nearly every
/// client of the Services between the two.
pub const MOST_CANDIDATES: usize = 32;

/// Candidates of one weight, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    end: u32,
    /// 1 / weight.
    pace: f64,
}

/// The candidates in runs of equal weight; nothing if all weights are equal.
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

/// Candidates of which clients choose. In slices, so that those of several clusters lie side by side.
#[derive(Clone, Copy, Debug)]
pub struct Rendezvous<'a> {
    /// What each candidate is known by, not by its index.
    pub identities: &'a [u64],
    /// The [`runs`] of their weights.
    pub runs: &'a [Run],
}

impl Rendezvous<'_> {
    /// The winner among all candidates for a client, by index, or among those that were not tried.
    pub fn choose(&self, input: &PickInput<'_>) -> usize {
        let untried = input.tried.and_then(|tried| self.first(input.hash, |index| !tried(index)));
        untried.or_else(|| self.first(input.hash, |_| true)).unwrap_or_default()
    }

    /// The winner among the candidates that `keep` keeps. `None` if it keeps none that has any weight.
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

/// Turns a uniform random number into an exponential one, -ln(u), to about a millionth. By hand, because a library's
/// logarithm may differ in the last bit from machine to machine, and gateways must agree; IEEE 754 fixes these steps.
fn exponential(random: u64) -> f64 {
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
