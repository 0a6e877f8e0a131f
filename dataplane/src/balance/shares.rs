//! Shares of endpoints: folds the weights of backends and of the endpoints inside them into one weight per endpoint.

/// A candidate before folding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Index of its backend.
    pub backend: u32,
    /// The backend's share among the backends; below 2^60.
    pub backend_weight: u64,
    /// The member's own share inside its backend.
    pub weight: u32,
}

/// The share of each member, in order: its backend's share, divided inside the backend. On both levels weight 0 gets
/// nothing unless all weights are 0: then all share equally. Only backends with a member count.
///
/// The shares are exact if they fit 32 bits, otherwise rounded to parts of 2^32, never to 0.
pub fn fold(members: &[Member]) -> Vec<u32> {
    let backends = Backends::of(members);
    if let [single] = backends.0.as_slice() {
        return members.iter().map(|member| single.inside(member) as u32).collect();
    }
    backends.exact(members).unwrap_or_else(|| backends.rounded(members))
}

/// Totals of one backend's members.
struct BackendTotals {
    backend: u32,
    weight: u64,
    /// Sum of the members' weights, after dividing by `unit`.
    sum: u64,
    /// Greatest common divisor of the members' weights; 0 if they are all 0.
    unit: u64,
}

impl BackendTotals {
    fn inside(&self, member: &Member) -> u64 {
        u64::from(member.weight).checked_div(self.unit).unwrap_or(1)
    }
}

/// Backends with members, sorted; their weights are not all zero.
struct Backends(Vec<BackendTotals>);

impl Backends {
    fn of(members: &[Member]) -> Self {
        let mut sorted: Vec<&Member> = members.iter().collect();
        sorted.sort_by_key(|member| member.backend);
        let mut groups: Vec<BackendTotals> = sorted
            .chunk_by(|left, right| left.backend == right.backend)
            .filter_map(|chunk| {
                let (backend, weight) = chunk.first().map(|first| (first.backend, first.backend_weight))?;
                let unit = chunk.iter().fold(0, |unit, member| gcd(unit, u64::from(member.weight)));
                let mut group = BackendTotals { backend, weight, sum: 0, unit };
                group.sum = chunk.iter().map(|member| group.inside(member)).sum();
                Some(group)
            })
            .collect();
        if groups.iter().all(|group| group.weight == 0) {
            groups.iter_mut().for_each(|group| group.weight = 1);
        }
        let unit = groups.iter().fold(0, |unit, group| gcd(unit, group.weight));
        groups.iter_mut().for_each(|group| group.weight = group.weight.checked_div(unit).unwrap_or(1));
        Self(groups)
    }

    fn group(&self, member: &Member) -> Option<&BackendTotals> {
        let at = self.0.binary_search_by_key(&member.backend, |group| group.backend).ok()?;
        self.0.get(at)
    }

    /// All shares over a common denominator; `None` if that needs more than 32 bits.
    fn exact(&self, members: &[Member]) -> Option<Vec<u32>> {
        let common = self.0.iter().try_fold(1u64, |common, group| {
            (common / gcd(common, group.sum))
                .checked_mul(group.sum)
                .filter(|&common| common <= u64::from(u32::MAX))
        })?;
        let share = |member| {
            let group = self.group(member)?;
            u32::try_from((common / group.sum).checked_mul(group.weight)?.checked_mul(group.inside(member))?)
                .ok()
        };
        members.iter().map(share).collect()
    }

    fn rounded(&self, members: &[Member]) -> Vec<u32> {
        let total: u64 = self.0.iter().map(|group| group.weight).sum();
        let share = |member| {
            let Some(group) = self.group(member) else { return 0 };
            let part = u128::from(group.weight) * u128::from(group.inside(member));
            let scaled = (part << 32) / (u128::from(total) * u128::from(group.sum));
            u32::try_from(scaled).unwrap_or(u32::MAX).max(u32::from(part > 0))
        };
        members.iter().map(share).collect()
    }
}

/// Greatest common divisor; 0 is neutral.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member((backend, backend_weight, weight): (u32, u16, u16)) -> Member {
        Member { backend, backend_weight: backend_weight.into(), weight: weight.into() }
    }

    fn shares(members: &[(u32, u16, u16)]) -> Vec<u32> {
        fold(&members.iter().copied().map(member).collect::<Vec<_>>())
    }

    #[test]
    fn a_single_backend_is_only_shortened() {
        assert_eq!(shares(&[(0, 7, 100), (0, 7, 50), (0, 7, 0)]), [2, 1, 0]);
        assert_eq!(shares(&[(0, 0, 0), (0, 0, 0)]), [1, 1]);
    }

    #[test]
    fn backends_of_equal_weight_share_equally_whatever_their_size() {
        assert_eq!(
            shares(&[(0, 100, 100), (0, 100, 100), (0, 100, 100), (1, 100, 9), (1, 100, 9)]),
            [2, 2, 2, 3, 3]
        );
    }

    #[test]
    fn a_backend_of_weight_zero_gets_nothing_beside_others() {
        assert_eq!(shares(&[(0, 0, 100), (1, 3, 0)]), [0, 3 / 3]);
        assert_eq!(shares(&[(0, 0, 5), (1, 0, 7)]), [1, 1]);
    }

    proptest! {
        #[test]
        fn each_backend_gets_its_share_and_divides_it_by_weight(
            weights in prop::collection::vec(any::<u16>(), 1..5),
            members in prop::collection::vec((0usize..5, any::<u16>()), 1..40),
        ) {
            let members: Vec<Member> = members
                .into_iter()
                .map(|(backend, weight)| {
                    let backend = backend % weights.len();
                    member((backend as u32, weights[backend], weight))
                })
                .collect();
            let shares = fold(&members);
            let total: f64 = shares.iter().map(|&share| f64::from(share)).sum();
            let present = |backend: u32| members.iter().filter(move |member| member.backend == backend);
            let backend_total: f64 = (0..weights.len())
                .filter(|&backend| present(backend as u32).count() > 0)
                .map(|backend| f64::from(weights[backend]))
                .sum();
            for (member, &share) in members.iter().zip(&shares) {
                let inside: f64 = present(member.backend).map(|other| f64::from(other.weight)).sum();
                if backend_total > 0.0 && inside > 0.0 {
                    let wanted = member.backend_weight as f64 / backend_total * f64::from(member.weight) / inside;
                    let got = f64::from(share) / total;
                    prop_assert!((wanted - got).abs() < 1e-6, "wanted {wanted}, got {got}");
                    prop_assert_eq!(share == 0, wanted == 0.0);
                }
            }
            prop_assert!(total > 0.0);
        }
    }
}
