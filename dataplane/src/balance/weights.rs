//! Weights of a list of candidates, and weighted random draws from it.

/// Weights as stretches of a line, each as wide as its candidate's weight; a random point draws a candidate. Never empty,
/// never all 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights(Widths);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Widths {
    /// This number of candidates of width 1: a draw reads no memory.
    Equal(usize),
    /// End of each candidate's stretch.
    Ends(Box<[u64]>),
}

impl Weights {
    /// Creates the list from any weights: if all are 0 they share equally, otherwise 0 is never drawn. `None` without
    /// candidates.
    pub fn new(weights: impl Iterator<Item = u64> + Clone) -> Option<Self> {
        let first = weights.clone().next()?;
        if weights.clone().all(|weight| weight == first) {
            return Some(Self(Widths::Equal(weights.count())));
        }
        let ends = weights.scan(0u64, |end, weight| {
            *end = end.saturating_add(weight);
            Some(*end)
        });
        Some(Self(Widths::Ends(ends.collect())))
    }

    /// Number of candidates, including those of weight 0.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Widths::Equal(count) => *count,
            Widths::Ends(ends) => ends.len(),
        }
    }

    /// The weight of one candidate; 0 beyond the last.
    pub fn get(&self, index: usize) -> u64 {
        match &self.0 {
            Widths::Equal(count) => u64::from(index < *count),
            Widths::Ends(ends) => ends.get(index).map_or(0, |end| end - start(ends, index)),
        }
    }

    /// Every candidate's weight, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Whether all candidates have the same weight.
    pub fn all_equal(&self) -> bool {
        matches!(self.0, Widths::Equal(_))
    }

    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        match &self.0 {
            Widths::Equal(count) => *count as u64,
            Widths::Ends(ends) => ends.last().copied().unwrap_or_default(),
        }
    }

    /// Draws one candidate.
    pub fn draw(&self, random: u64) -> usize {
        self.at(scale(random, self.total()))
    }

    /// Draws one candidate other than `first`; `None` if no other has a weight.
    pub fn draw_other(&self, random: u64, first: usize) -> Option<usize> {
        let rest = self.total() - self.get(first);
        if rest == 0 {
            return None;
        }
        // Cut `first` out of the line, and step over the gap.
        let point = scale(random, rest);
        let before = match &self.0 {
            Widths::Equal(_) => first as u64,
            Widths::Ends(ends) => start(ends, first),
        };
        Some(self.at(if point < before { point } else { point + self.get(first) }))
    }

    /// Draws among the candidates that `keep` accepts; `None` if none of them has a weight. Linear, for retries.
    pub fn draw_where(&self, random: u64, keep: impl Fn(usize) -> bool) -> Option<usize> {
        let kept = || self.iter().enumerate().filter(|&(index, weight)| weight > 0 && keep(index));
        let mut point = scale(random, kept().map(|(_, weight)| weight).sum());
        kept()
            .find(|&(_, weight)| {
                let hit = point < weight;
                point = point.saturating_sub(weight);
                hit
            })
            .map(|(index, _)| index)
    }

    fn at(&self, point: u64) -> usize {
        match &self.0 {
            Widths::Equal(_) => point as usize,
            Widths::Ends(ends) => ends.partition_point(|&end| end <= point),
        }
    }
}

fn start(ends: &[u64], index: usize) -> u64 {
    index.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or_default()
}

/// Scales a random number to one below `length`, by multiplication instead of division (Lemire 2019); `random` must use all
/// of its bits.
pub fn scale(random: u64, length: u64) -> u64 {
    ((u128::from(random) * u128::from(length)) >> 64) as u64
}
