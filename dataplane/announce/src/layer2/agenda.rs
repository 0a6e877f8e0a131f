//! Which address has something to do when, and how much is done at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How many addresses send in a millisecond: 32,000 a second, two frames each, is a hundredth of a gigabit and little enough for the
/// queues of switches that treat broadcasts apart. A thousand addresses take about 50 ms.
const BURST: usize = 32;
const PAUSE: Duration = Duration::from_millis(1);

/// The times.
pub(super) struct Agenda {
    /// Before all others.
    first: Instant,
    times: BTreeMap<IpAddr, Instant>,
    order: BTreeSet<(Instant, IpAddr)>,
    paused_until: Instant,
}

impl Agenda {
    pub(super) fn new(now: Instant) -> Self {
        Self { first: now, times: BTreeMap::new(), order: BTreeSet::new(), paused_until: now }
    }

    /// Has the address taken at this time, or never.
    pub(super) fn set(&mut self, ip: IpAddr, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.times.insert(ip, at),
            None => self.times.remove(&ip),
        };
        if let Some(before) = before {
            self.order.remove(&(before, ip));
        }
        if let Some(at) = at {
            self.order.insert((at, ip));
        }
    }

    /// Has the address taken before all that are announced already: clients wait for it.
    pub(super) fn set_first(&mut self, ip: IpAddr) {
        self.set(ip, Some(self.first));
    }

    /// When there is something to take.
    pub(super) fn due(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| (*at).max(self.paused_until))
    }

    /// Takes what is due, within the burst.
    pub(super) fn take(&mut self, now: Instant) -> Vec<IpAddr> {
        let mut taken = Vec::new();
        if now < self.paused_until {
            return taken;
        }
        while let Some((_, ip)) = self.order.first().copied().filter(|(at, _)| *at <= now) {
            if taken.len() == BURST {
                self.paused_until = now + PAUSE;
                break;
            }
            self.set(ip, None);
            taken.push(ip);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn a_burst_is_bounded_and_new_addresses_come_first() {
        let start = Instant::now();
        let mut agenda = Agenda::new(start);
        let now = start + Duration::from_secs(1);
        (0..40).for_each(|number| agenda.set(ip(number), Some(now)));
        (100..110).for_each(|number| agenda.set_first(ip(number)));
        let taken = agenda.take(now);
        assert_eq!(taken.len(), BURST);
        assert!((100..110).all(|number| taken[..10].contains(&ip(number))));
        assert!(agenda.take(now).is_empty());
        assert_eq!(agenda.due(), Some(now + PAUSE));
        assert_eq!(agenda.take(now + PAUSE).len(), 50 - BURST);
        assert_eq!(agenda.due(), None);
    }

    #[test]
    fn an_address_is_taken_at_its_last_time_only() {
        let start = Instant::now();
        let mut agenda = Agenda::new(start);
        agenda.set(ip(1), Some(start));
        agenda.set(ip(1), Some(start + PAUSE));
        assert!(agenda.take(start).is_empty());
        assert_eq!(agenda.take(start + PAUSE), [ip(1)]);
        agenda.set(ip(1), Some(start));
        agenda.set(ip(1), None);
        assert_eq!(agenda.due(), None);
    }
}
