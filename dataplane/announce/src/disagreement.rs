//! Gateways that follow others than this one for longer than any change takes: they know other candidates, or other claims. Then an address may have
//! two owners, or none, although each of them does what it should.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::heartbeat::Applied;
use crate::membership::PeerReport;

/// Claims come to one gateway seconds after another.
const LASTING: Duration = Duration::from_secs(10);
/// How many changes within that time are remembered of each.
const MOST_CHANGES: usize = 256;

/// About what a gateway disagrees with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disagreement {
    /// The gateways that may own addresses, and what they are able to own.
    Candidates,
    /// Which addresses there are, and who can serve them.
    Addresses,
}

/// Follows what gateways show.
#[derive(Debug, Default)]
pub(crate) struct Disagreements {
    own: Course,
    others: BTreeMap<Arc<str>, Other>,
}

/// Course of another gateway, and the last time at which both followed the same, even if one did so later.
#[derive(Debug)]
struct Other {
    shown: Course,
    agreed_at: Instant,
}

/// The views that a gateway followed, each with its last time; the last entry is the present one.
#[derive(Debug, Default)]
struct Course(VecDeque<(Applied, Instant)>);

impl Course {
    fn add(&mut self, applied: Applied, now: Instant) {
        match self.0.back_mut() {
            Some((last, until)) if *last == applied => *until = now,
            _ => self.0.push_back((applied, now)),
        }
        let is_old = |(_, until): &(Applied, Instant)| now > *until + LASTING;
        while self.0.len() > MOST_CHANGES || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
    }

    fn last(&self) -> Option<Applied> {
        self.0.back().map(|(applied, _)| *applied)
    }

    /// Until when this was followed.
    fn until(&self, wanted: Applied) -> Option<Instant> {
        self.0.iter().rev().find(|(applied, _)| *applied == wanted).map(|(_, until)| *until)
    }
}

impl Disagreements {
    /// Takes what this gateway follows, and what the others show; none for those who follow nothing at present.
    pub(crate) fn update(
        &mut self,
        own: Applied,
        others: impl Iterator<Item = (Arc<str>, Option<Applied>)>,
        now: Instant,
    ) {
        if own == Applied::default() {
            *self = Self::default();
            return;
        }
        self.own.add(own, now);
        let mut known = std::mem::take(&mut self.others);
        for (node, shown) in others {
            let Some(applied) = shown else { continue };
            let new = || Other { shown: Course::default(), agreed_at: now };
            let mut other = known.remove(&node).unwrap_or_else(new);
            other.shown.add(applied, now);
            // One of them may be late: it follows what the other one did a while ago.
            let same = self.own.until(applied).max(other.shown.until(own));
            other.agreed_at = other.agreed_at.max(same.unwrap_or(other.agreed_at));
            self.others.insert(node, other);
        }
    }

    /// About what a gateway has disagreed for long.
    pub(crate) fn with(&self, node: &str, now: Instant) -> Option<Disagreement> {
        let other = self.others.get(node).filter(|other| now >= other.agreed_at + LASTING)?;
        let same_view = other.shown.last()?.view == self.own.last()?.view;
        Some(if same_view { Disagreement::Addresses } else { Disagreement::Candidates })
    }
}

impl PeerReport {
    /// The view and assignment that it follows; none if it announces nothing, is about to end, or is not heard.
    pub(crate) fn follows(&self) -> Option<Applied> {
        let counts = self.heard && !(self.state.fenced || self.state.leaving || self.state.left);
        self.applied.filter(|applied| counts && *applied != Applied::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(view: u64, assignment: u64) -> Applied {
        Applied { view, assignment }
    }

    /// Disagreement with gateway b after each step, a second apart.
    fn said(steps: impl IntoIterator<Item = (Applied, Option<Applied>)>) -> Vec<Option<Disagreement>> {
        let (mut all, mut now) = (Disagreements::default(), Instant::now());
        let step = |(own, shown)| {
            all.update(own, std::iter::once(("b".into(), shown)), now);
            let said = all.with("b", now);
            now += Duration::from_secs(1);
            said
        };
        steps.into_iter().map(step).collect()
    }

    #[test]
    fn what_lasts_is_a_disagreement_about_candidates_or_addresses() {
        let (one, other) = (applied(1, 1), applied(1, 2));
        let differ = said(std::iter::repeat_n((one, Some(other)), 12));
        assert_eq!(differ[9], None);
        assert_eq!(differ[10..], [Some(Disagreement::Addresses); 2]);
        let differ = said(std::iter::repeat_n((one, Some(applied(2, 2))), 11));
        assert_eq!(differ[10], Some(Disagreement::Candidates));
        let (before, after) = (std::iter::repeat_n((one, Some(other)), 12), [(other, Some(other))]);
        assert_eq!(said(before.chain(after)).pop(), Some(None), "it ends at once");
    }

    #[test]
    fn one_that_is_late_does_not_disagree() {
        let late = |seconds: u64| (100..130).map(move |at| (applied(1, at), Some(applied(1, at - seconds))));
        assert_eq!(said(late(3)), [None; 30]);
        let early = (100..130).map(|at| (applied(1, at - 3), Some(applied(1, at))));
        assert_eq!(said(early), [None; 30]);
        let stuck = said((100..130).map(|at| (applied(1, at), Some(applied(1, 105)))));
        assert_eq!(stuck[14], None);
        assert_eq!(stuck[15..], [Some(Disagreement::Addresses); 15]);
    }

    #[test]
    fn those_who_follow_nothing_do_not_disagree() {
        let one = applied(1, 1);
        assert_eq!(said(std::iter::repeat_n((one, None), 20)), [None; 20]);
        assert_eq!(said(std::iter::repeat_n((Applied::default(), Some(one)), 20)), [None; 20]);
        // Who was fenced has the time again.
        let other = Some(applied(1, 2));
        let again = (0..25).map(|at| (one, other.filter(|_| at != 12)));
        assert_eq!(
            said(again)[20..],
            [None, None, None, Some(Disagreement::Addresses), Some(Disagreement::Addresses)]
        );
    }
}
