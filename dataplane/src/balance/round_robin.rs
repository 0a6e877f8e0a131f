//! Weighted round robin. The caller counts the turns; a turn determines the candidate.

use super::PickInput;
use super::shares::gcd;
use super::weights::Weights;

/// Maximum length of a cycle of unequal weights, unless [`PER_CANDIDATE`] turns per candidate are more: weights such as
/// 65535:65534 are rounded to it (to 1 in 4,096).
const LONGEST: u64 = 4096;
const PER_CANDIDATE: u64 = 16;

/// Visits the candidates in turn, each as often per cycle as its weight requires, spread over the cycle.
#[derive(Debug)]
pub struct RoundRobin {
    /// `None` with equal weights.
    cycle: Option<Box<[u32]>>,
    /// Number of turns per cycle.
    turns: usize,
}

impl RoundRobin {
    /// Creates a balancer over candidates of these weights.
    pub fn new(weights: &Weights) -> Self {
        let cycle = (!weights.all_equal()).then(|| cycle(weights));
        let turns = cycle.as_ref().map_or(weights.len(), |cycle| cycle.len());
        Self { cycle, turns }
    }

    /// The candidate of this turn, or the next that was not tried.
    pub fn choose(&self, input: &PickInput<'_>) -> usize {
        let index = self.at(input.turn);
        match input.tried {
            Some(tried) if tried(index) => (1..self.turns)
                .map(|step| self.at(input.turn.wrapping_add(step)))
                .find(|&index| !tried(index))
                .unwrap_or(index),
            _ => index,
        }
    }

    fn at(&self, turn: usize) -> usize {
        let turn = turn % self.turns.max(1);
        match &self.cycle {
            None => turn,
            Some(cycle) => cycle.get(turn).map_or(0, |&index| index as usize),
        }
    }
}

/// Number of visits of each candidate per cycle: exactly its reduced weight, if the cycle is short enough.
fn visits(weights: &Weights) -> Vec<u64> {
    let unit = weights.iter().fold(0, gcd).max(1);
    let total = weights.total() / unit;
    let longest = LONGEST.max(PER_CANDIDATE * weights.len() as u64);
    let visits = |weight: u64| {
        let exact = weight / unit;
        if total <= longest || exact == 0 {
            return exact;
        }
        let rounded = (u128::from(exact) * u128::from(longest) + u128::from(total / 2)) / u128::from(total);
        (rounded as u64).max(1)
    };
    weights.iter().map(visits).collect()
}

/// Places visit k of n at (k + 1/2) / n of the cycle; ties are broken by index.
fn cycle(weights: &Weights) -> Box<[u32]> {
    let mut moments: Vec<(u64, u32)> = visits(weights)
        .into_iter()
        .zip(0u32..)
        .flat_map(|(visits, index)| {
            (0..visits).map(move |visit| (((2 * visit + 1) << 32) / (2 * visits), index))
        })
        .collect();
    moments.sort_unstable();
    moments.into_iter().map(|(_, index)| index).collect()
}
