//! When a new leader may speak: what gateways cannot do is told by them alone, and until they were asked, what the leader
//! before said of them is better than nothing known. Pure; it must not know who is asked.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::api::store::ServiceKey;

/// Gateways that have not answered by then are not waited for: addresses must not depend on them.
const LONGEST: Duration = Duration::from_secs(3);

/// What waits to be published.
#[derive(Debug)]
pub(super) enum StartupHold {
    /// Nothing is known that could be published.
    Idle,
    /// These Services, at the latest then.
    Until(Instant, BTreeSet<ServiceKey>),
    /// Nothing waits any more.
    Over,
}

impl StartupHold {
    /// These may be published: all of them later, or at once with those that have waited. `heard` says whether each gateway
    /// was asked.
    pub(super) fn pass(
        &mut self,
        touched: BTreeSet<ServiceKey>,
        heard: bool,
        now: Instant,
    ) -> Option<BTreeSet<ServiceKey>> {
        let (until, mut waiting) = match std::mem::replace(self, Self::Over) {
            Self::Idle => (now + LONGEST, BTreeSet::new()),
            Self::Until(until, waiting) => (until, waiting),
            Self::Over => return Some(touched),
        };
        waiting.extend(touched);
        if heard || until <= now {
            return Some(waiting);
        }
        *self = Self::Until(until, waiting);
        None
    }

    /// When to pass at the latest what waits, if anything does.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Self::Until(until, _) => Some(*until),
            Self::Idle | Self::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> BTreeSet<ServiceKey> {
        names.iter().map(|name| ServiceKey::new("shop", name)).collect()
    }

    #[test]
    fn all_that_waited_passes_when_the_gateways_were_asked() {
        let (mut hold, now) = (StartupHold::Idle, Instant::now());
        assert_eq!(hold.pass(keys(&["a"]), false, now), None);
        assert_eq!(hold.pass(keys(&["b"]), false, now), None);
        assert_eq!(hold.pass(keys(&[]), true, now), Some(keys(&["a", "b"])));
        assert_eq!(hold.due(), None);
        assert_eq!(
            hold.pass(keys(&["a"]), false, now),
            Some(keys(&["a"])),
            "a gateway that comes later holds nothing up"
        );
    }

    #[test]
    fn silent_gateways_hold_nothing_up_for_long() {
        let (mut hold, now) = (StartupHold::Idle, Instant::now());
        assert_eq!(hold.due(), None);
        assert_eq!(hold.pass(keys(&["a"]), false, now), None);
        assert_eq!(hold.due(), Some(now + LONGEST));
        assert_eq!(hold.pass(keys(&[]), false, now + LONGEST), Some(keys(&["a"])));
    }
}
