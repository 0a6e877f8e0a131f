//! When this gateway lets others go first, because its view of the API server is old and theirs is not.
//!
//! It decides for itself alone, and the others act on what it says at once: a process that has just started knows no past, and must compute the
//! same owners as those that have been there throughout.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long some must have been without the API server, and the others not, before those go first. An outage is noticed by one gateway
/// after the other, and so is its end: without a wait, addresses would move to and fro.
const SPLIT: Duration = Duration::from_secs(30);

/// What a gateway knows of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knowledge {
    /// Everything, as it is now.
    #[default]
    Current,
    /// What it was before it lost an API server.
    Old,
    /// Not everything: it has not read some objects at all yet, and lacks their addresses.
    Incomplete,
}

/// What this gateway knows, and since when others know more.
#[derive(Debug, Default)]
pub(super) struct Staleness {
    pub(super) knowledge: Knowledge,
    /// Others go first. That stays until it reaches the API server: where all others lose it later, or start anew meanwhile, nothing moves.
    pub(super) stale: bool,
    /// The others that are cut off as well, while some are not, and since when these have been the ones.
    with: Vec<Arc<str>>,
    since: Option<Instant>,
}

impl Staleness {
    /// Follows the others, each with whether it is cut off; true if this gateway has to say something else now.
    pub(super) fn update<'a>(
        &mut self,
        others: impl Iterator<Item = (&'a Arc<str>, bool)>,
        now: Instant,
    ) -> bool {
        let (with, reaching): (Vec<_>, Vec<_>) = others.partition(|(_, cut_off)| *cut_off);
        if !self.is_cut_off() || reaching.is_empty() {
            self.since = None;
        } else if self.since.is_none() || !with.iter().map(|(node, _)| *node).eq(&self.with) {
            self.since = Some(now);
            self.with = with.into_iter().map(|(node, _)| Arc::clone(node)).collect();
        }
        let lasted = self.since.is_some_and(|since| now >= since + SPLIT);
        let stale = match self.knowledge {
            Knowledge::Current => false,
            Knowledge::Old => self.stale || lasted,
            // It would own addresses that it does not know of, and nobody would announce them.
            Knowledge::Incomplete => true,
        };
        std::mem::replace(&mut self.stale, stale) != stale
    }

    /// Whether its view of the API servers is old.
    pub(super) fn is_cut_off(&self) -> bool {
        self.knowledge != Knowledge::Current
    }

    /// When it has lasted, if that is still to come.
    pub(super) fn due(&self, after: Instant) -> Option<Instant> {
        self.since.map(|since| since + SPLIT).filter(|due| *due > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_go_first_once_the_same_ones_have_long_reached_the_api_server() {
        let (mut staleness, start) =
            (Staleness { knowledge: Knowledge::Old, ..Staleness::default() }, Instant::now());
        let (b, c) = (Arc::from("b"), Arc::from("c"));
        let mut at = |seconds: u64, cut_off: [bool; 2]| {
            let others = [&b, &c].into_iter().zip(cut_off);
            let _ = staleness.update(others, start + Duration::from_secs(seconds));
            staleness.stale
        };
        assert!(!at(0, [false, false]), "an outage may just begin");
        assert!(!at(29, [false, false]));
        assert!(!at(29, [true, false]), "the others follow");
        assert!(!at(40, [true, true]));
        assert!(!at(100, [true, true]));
        assert!(!at(101, [true, false]), "one is back before the others");
        assert!(!at(130, [true, false]));
        assert!(at(131, [true, false]));
        assert!(at(132, [false, false]));
        assert!(at(133, [true, true]), "it has been without for the longest time");
        assert_eq!(staleness.due(start), None);
    }
}
