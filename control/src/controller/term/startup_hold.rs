//! When a new leader may publish. Only gateways know their failures, and until they have been polled, the status from the
//! previous leader is better than none. No I/O.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::api::store::ServiceKey;

/// Longest wait for gateways: addresses must not depend on them.
const LONGEST: Duration = Duration::from_secs(3);

/// Services that wait to be published.
#[derive(Debug)]
pub(super) enum StartupHold {
    /// No Service has to be published yet.
    Idle,
    /// These Services wait, at most until this time.
    Until(Instant, BTreeSet<ServiceKey>),
    /// The hold is over: Services are published at once.
    Over,
}

impl StartupHold {
    /// The Services to publish now: these and all that have waited, or `None`. `asked` is whether each gateway has been polled.
    pub(super) fn pass(
        &mut self,
        touched: BTreeSet<ServiceKey>,
        asked: bool,
        now: Instant,
    ) -> Option<BTreeSet<ServiceKey>> {
        let (until, mut waiting) = match std::mem::replace(self, Self::Over) {
            Self::Idle => (now + LONGEST, BTreeSet::new()),
            Self::Until(until, waiting) => (until, waiting),
            Self::Over => return Some(touched),
        };
        waiting.extend(touched);
        if asked || until <= now {
            return Some(waiting);
        }
        *self = Self::Until(until, waiting);
        None
    }

    /// Time at which waiting Services are published at the latest, if any.
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
