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
pub(super) enum Transition {
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

/// The failure record of one endpoint.
#[derive(Debug)]
pub(super) struct Outlier {
    /// In a row.
    failures: u8,
    /// Those that are not forgotten.
    ejections: u32,
    /// How long the last one was.
    penalty: Duration,
    phase: Phase,
}

impl Outlier {
    /// Of an endpoint that has not failed before `now`.
    pub(super) fn new(now: Instant) -> Self {
        let phase = Phase::Used { since: now, trial: false };
        Self { failures: 0, ejections: 0, penalty: Duration::ZERO, phase }
    }

    /// A connection failed. What fails while it is ejected began before, or for want of any better: no news. `jitter`
    /// is any number; it lengthens the ejection by up to a quarter, so that those that fail together do not return
    /// together.
    pub(super) fn failed(&mut self, now: Instant, jitter: u64) -> Transition {
        let Phase::Used { since, trial } = self.phase else { return Transition::None };
        // Well for as long as it was ejected: as if it had never been.
        let forgiven = self.ejections > 0 && now >= since + self.penalty;
        if forgiven {
            self.ejections = 0;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES && (!trial || forgiven) {
            self.phase = Phase::Used { since: now, trial: false };
            return Transition::None;
        }
        let doubled = FIRST_EJECTION.saturating_mul(1 << self.ejections.min(8)).min(LONGEST_EJECTION);
        self.penalty = doubled + doubled.mul_f64((jitter % 1024) as f64 / 4096.0);
        self.ejections += 1;
        self.failures = 0;
        self.phase = Phase::Ejected { until: now + self.penalty };
        Transition::Ejected
    }

    /// A connection succeeded. One that does while it is ejected began before.
    pub(super) fn succeeded(&mut self) -> Transition {
        let Phase::Used { trial, .. } = &mut self.phase else { return Transition::None };
        *trial = false;
        self.failures = 0;
        if self.ejections == 0 { Transition::Forgotten } else { Transition::None }
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
    pub(super) fn pass(&mut self, now: Instant) -> Transition {
        match (self.due().filter(|due| *due <= now), self.phase) {
            (None, _) => Transition::None,
            (Some(_), Phase::Ejected { .. }) => {
                self.phase = Phase::Used { since: now, trial: true };
                Transition::Returned
            }
            (Some(_), Phase::Used { .. }) => Transition::Forgotten,
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

    fn ejected(start: Instant) -> Outlier {
        let mut outlier = Outlier::new(start);
        let turns = [0; 3].map(|jitter| outlier.failed(start, jitter));
        assert_eq!(turns, [Transition::None, Transition::None, Transition::Ejected]);
        outlier
    }

    #[test]
    fn the_third_failure_in_a_row_ejects_for_ten_seconds() {
        let start = Instant::now();
        let mut outlier = ejected(start);
        assert_eq!(outlier.failed(start, 0), Transition::None, "no news while it is ejected");
        assert_eq!(outlier.pass(start + 9 * SECOND), Transition::None);
        assert_eq!(outlier.pass(start + 10 * SECOND), Transition::Returned);
        assert!(!outlier.is_ejected());
    }

    #[test]
    fn an_answer_between_failures_clears_them() {
        let start = Instant::now();
        let mut outlier = Outlier::new(start);
        assert_eq!([0; 2].map(|jitter| outlier.failed(start, jitter)), [Transition::None; 2]);
        assert_eq!(outlier.succeeded(), Transition::Forgotten);
        assert_eq!([0; 2].map(|jitter| outlier.failed(start, jitter)), [Transition::None; 2]);
    }

    #[test]
    fn after_its_time_one_failure_ejects_again_for_twice_as_long_up_to_five_minutes() {
        let mut now = Instant::now();
        let mut outlier = ejected(now);
        for seconds in [10, 20, 40, 80, 160, 300, 300, 300] {
            assert_eq!(outlier.due(), Some(now + seconds * SECOND));
            now += seconds * SECOND;
            assert_eq!(outlier.pass(now), Transition::Returned);
            assert_eq!(outlier.failed(now, 0), Transition::Ejected);
        }
    }

    #[test]
    fn one_that_answered_after_its_return_needs_three_failures_but_is_not_forgiven_yet() {
        let start = Instant::now();
        let mut outlier = ejected(start);
        let back = start + 10 * SECOND;
        assert_eq!(outlier.pass(back), Transition::Returned);
        assert_eq!(outlier.succeeded(), Transition::None);
        assert_eq!(
            [0; 3].map(|jitter| outlier.failed(back, jitter)),
            [Transition::None, Transition::None, Transition::Ejected]
        );
        assert_eq!(outlier.due(), Some(back + 20 * SECOND));
    }

    #[test]
    fn what_was_well_for_as_long_as_it_was_ejected_is_forgotten() {
        let start = Instant::now();
        let mut outlier = ejected(start);
        let back = start + 10 * SECOND;
        assert_eq!(outlier.pass(back), Transition::Returned);
        assert_eq!(outlier.pass(back + 9 * SECOND), Transition::None);
        assert_eq!(outlier.pass(back + 10 * SECOND), Transition::Forgotten);
        assert_eq!(outlier.failed(back + 10 * SECOND, 0), Transition::None, "three are needed again");
    }

    #[test]
    fn jitter_lengthens_an_ejection_by_a_quarter_at_most() {
        let start = Instant::now();
        for jitter in [0, 1, 511, 1023, u64::MAX] {
            let mut outlier = Outlier::new(start);
            assert_eq!([jitter; 3].map(|jitter| outlier.failed(start, jitter))[2], Transition::Ejected);
            let length = outlier.due().unwrap() - start;
            assert!((10 * SECOND..=FIRST_EJECTION * 5 / 4).contains(&length), "{length:?}");
        }
    }
}
