//! What real connections say about one endpoint, over time. Pure: moments are given.
//!
//! It must not know who asks, or what becomes of the answer.

use std::time::{Duration, Instant};

/// So many failures in a row eject.
const FAILURES: u8 = 3;
/// How long the first ejection lasts; each further one twice as long.
pub(super) const FIRST_EJECTION: Duration = Duration::from_secs(10);
/// Longer none lasts, jitter aside.
const LONGEST_EJECTION: Duration = Duration::from_secs(300);

/// What an event changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Turn {
    /// Nothing.
    None,
    /// The endpoint is to be avoided from now on.
    Ejected,
    /// It may be used again.
    Returned,
    /// There is nothing left to remember.
    Forgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is used, and was not ejected since that moment. `trial` until it answers for the first time since: one failure
    /// is enough then.
    Used { since: Instant, trial: bool },
    /// It is avoided until then.
    Ejected { until: Instant },
}

/// The record of one endpoint that failed.
#[derive(Debug)]
pub(super) struct Record {
    /// In a row.
    failures: u8,
    /// Those that are not forgotten.
    ejections: u32,
    /// How long the last one was.
    penalty: Duration,
    phase: Phase,
}

impl Record {
    /// Of an endpoint that has not failed before `now`.
    pub(super) fn new(now: Instant) -> Self {
        let phase = Phase::Used { since: now, trial: false };
        Self { failures: 0, ejections: 0, penalty: Duration::ZERO, phase }
    }

    /// A connection failed. What fails while it is ejected began before, or for want of any better: no news. `jitter`
    /// is any number; it lengthens the ejection by up to a quarter, so that those that fail together do not return
    /// together.
    pub(super) fn failed(&mut self, now: Instant, jitter: u64) -> Turn {
        let Phase::Used { since, trial } = self.phase else { return Turn::None };
        // Well for as long as it was ejected: as if it had never been.
        let forgiven = self.ejections > 0 && now >= since + self.penalty;
        if forgiven {
            self.ejections = 0;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES && (!trial || forgiven) {
            self.phase = Phase::Used { since: now, trial: false };
            return Turn::None;
        }
        let doubled = FIRST_EJECTION.saturating_mul(1 << self.ejections.min(8)).min(LONGEST_EJECTION);
        self.penalty = doubled + doubled.mul_f64((jitter % 1024) as f64 / 4096.0);
        self.ejections += 1;
        self.failures = 0;
        self.phase = Phase::Ejected { until: now + self.penalty };
        Turn::Ejected
    }

    /// A connection succeeded. One that does while it is ejected began before.
    pub(super) fn succeeded(&mut self) -> Turn {
        let Phase::Used { trial, .. } = &mut self.phase else { return Turn::None };
        *trial = false;
        self.failures = 0;
        if self.ejections == 0 { Turn::Forgotten } else { Turn::None }
    }

    /// When [`Self::pass`] has something to do, if nothing else happens.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ejected { until } => Some(until),
            Phase::Used { since, .. } => {
                (self.failures == 0 && self.ejections > 0).then(|| since + self.penalty)
            }
        }
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, now: Instant) -> Turn {
        match (self.due().filter(|due| *due <= now), self.phase) {
            (None, _) => Turn::None,
            (Some(_), Phase::Ejected { .. }) => {
                self.phase = Phase::Used { since: now, trial: true };
                Turn::Returned
            }
            (Some(_), Phase::Used { .. }) => Turn::Forgotten,
        }
    }

    /// Whether it is to be avoided.
    pub(super) fn is_ejected(&self) -> bool {
        matches!(self.phase, Phase::Ejected { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ejected(start: Instant) -> Record {
        let mut record = Record::new(start);
        let turns = [0; 3].map(|jitter| record.failed(start, jitter));
        assert_eq!(turns, [Turn::None, Turn::None, Turn::Ejected]);
        record
    }

    #[test]
    fn the_third_failure_in_a_row_ejects_for_ten_seconds() {
        let start = Instant::now();
        let mut record = ejected(start);
        assert_eq!(record.failed(start, 0), Turn::None, "no news while it is ejected");
        assert_eq!(record.pass(start + 9 * SECOND), Turn::None);
        assert_eq!(record.pass(start + 10 * SECOND), Turn::Returned);
        assert!(!record.is_ejected());
    }

    #[test]
    fn an_answer_between_failures_clears_them() {
        let start = Instant::now();
        let mut record = Record::new(start);
        assert_eq!([0; 2].map(|jitter| record.failed(start, jitter)), [Turn::None; 2]);
        assert_eq!(record.succeeded(), Turn::Forgotten);
        assert_eq!([0; 2].map(|jitter| record.failed(start, jitter)), [Turn::None; 2]);
    }

    #[test]
    fn after_its_time_one_failure_ejects_again_for_twice_as_long_up_to_five_minutes() {
        let mut now = Instant::now();
        let mut record = ejected(now);
        for seconds in [10, 20, 40, 80, 160, 300, 300, 300] {
            assert_eq!(record.due(), Some(now + seconds * SECOND));
            now += seconds * SECOND;
            assert_eq!(record.pass(now), Turn::Returned);
            assert_eq!(record.failed(now, 0), Turn::Ejected);
        }
    }

    #[test]
    fn one_that_answered_after_its_return_needs_three_failures_but_is_not_forgiven_yet() {
        let start = Instant::now();
        let mut record = ejected(start);
        let back = start + 10 * SECOND;
        assert_eq!(record.pass(back), Turn::Returned);
        assert_eq!(record.succeeded(), Turn::None);
        assert_eq!([0; 3].map(|jitter| record.failed(back, jitter)), [Turn::None, Turn::None, Turn::Ejected]);
        assert_eq!(record.due(), Some(back + 20 * SECOND));
    }

    #[test]
    fn what_was_well_for_as_long_as_it_was_ejected_is_forgotten() {
        let start = Instant::now();
        let mut record = ejected(start);
        let back = start + 10 * SECOND;
        assert_eq!(record.pass(back), Turn::Returned);
        assert_eq!(record.pass(back + 9 * SECOND), Turn::None);
        assert_eq!(record.pass(back + 10 * SECOND), Turn::Forgotten);
        assert_eq!(record.failed(back + 10 * SECOND, 0), Turn::None, "three are needed again");
    }

    #[test]
    fn jitter_lengthens_an_ejection_by_a_quarter_at_most() {
        let start = Instant::now();
        for jitter in [0, 1, 511, 1023, u64::MAX] {
            let mut record = Record::new(start);
            assert_eq!([jitter; 3].map(|jitter| record.failed(start, jitter))[2], Turn::Ejected);
            let length = record.due().unwrap() - start;
            assert!((10 * SECOND..=FIRST_EJECTION * 5 / 4).contains(&length), "{length:?}");
        }
    }
}
