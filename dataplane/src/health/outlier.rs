//! Outlier detection: ejects an endpoint after consecutive failures. After a time the endpoint is tried, and returns once that
//! succeeds (the half-open state of a circuit breaker). Has no clock: the caller provides the time.

use std::time::{Duration, Instant};

use crate::handover::{FailureRecord, HandedPhase, before, millis_since};

/// Number of consecutive failures that eject an endpoint.
pub(super) const FAILURES: u8 = 3;
/// Duration of the first ejection; each further one is twice as long.
pub(super) const FIRST_EJECTION: Duration = Duration::from_secs(10);
/// Time after which a failure no longer counts as consecutive with the next one.
const MEMORY: Duration = Duration::from_secs(600);
/// Interval at which a trial without a result is checked.
const TRIAL: Duration = FIRST_EJECTION;
/// Maximum ejection, without jitter.
const LONGEST_EJECTION: Duration = Duration::from_secs(300);
/// Maximum ejection, with jitter.
const LONGEST_PENALTY: Duration = Duration::from_secs(375);

/// Effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Transition {
    /// No change.
    None,
    /// New traffic avoids the endpoint from now on.
    Ejected,
    /// The endpoint is tried, and avoided until that has succeeded.
    Trial,
    /// The endpoint may be used again.
    Returned,
    /// The record contains no information any more.
    Forgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In use. `since` is the time of the last failure or return. `trial` if it returned without a success: until the first success, one
    /// failure ejects it.
    Used { since: Instant, trial: bool },
    /// Avoided until the given time.
    Ejected { until: Instant },
    /// Avoided and being tried. `since` is the time of the last check of the trial.
    Trial { since: Instant },
}

/// Failure record of one endpoint.
#[derive(Debug)]
pub(super) struct Outlier {
    /// Number of consecutive failures.
    failures: u8,
    /// Number of ejections that are not forgiven yet.
    ejections: u32,
    /// Duration of the last ejection.
    penalty: Duration,
    phase: Phase,
}

impl Outlier {
    /// Creates the record of an endpoint that did not fail before `now`.
    pub(super) fn new(now: Instant) -> Self {
        let phase = Phase::Used { since: now, trial: false };
        Self { failures: 0, ejections: 0, penalty: Duration::ZERO, phase }
    }

    /// The record in the form that another process restores.
    pub(super) fn record(&self, now: Instant) -> FailureRecord {
        let phase = match self.phase {
            Phase::Used { since, trial } => HandedPhase::Used { for_millis: millis_since(since, now), trial },
            Phase::Ejected { until } => HandedPhase::Ejected { for_millis: millis_since(now, until) },
            Phase::Trial { .. } => HandedPhase::Ejected { for_millis: 0 },
        };
        let Self { failures, ejections, penalty, .. } = *self;
        FailureRecord {
            failures,
            ejections,
            penalty_millis: penalty.as_millis() as u64,
            phase,
            silent: false,
        }
    }

    /// Restores a record of another process. Values out of range are clamped.
    pub(super) fn restored(record: &FailureRecord, now: Instant) -> Self {
        let bounded = |millis| Duration::from_millis(millis).min(LONGEST_PENALTY);
        let phase = match record.phase {
            HandedPhase::Used { for_millis, trial } => Phase::Used { since: before(now, for_millis), trial },
            HandedPhase::Ejected { for_millis } => Phase::Ejected { until: now + bounded(for_millis) },
        };
        let FailureRecord { failures, ejections, penalty_millis, .. } = *record;
        Self { failures, ejections, penalty: bounded(penalty_millis), phase }
    }

    /// Records a failed connection. Failures during an ejection do not count: they began before, or there was no other endpoint.
    /// `jitter` is any number; it lengthens the ejection by up to a quarter, so that endpoints that fail together do not return
    /// together.
    pub(super) fn failed(&mut self, now: Instant, jitter: u64) -> Transition {
        match self.phase {
            Phase::Ejected { .. } => return Transition::None,
            Phase::Trial { .. } => {}
            Phase::Used { since, trial } => {
                // Forgiven, since it was healthy for as long as it was ejected.
                let forgiven = self.ejections > 0 && now >= since + self.penalty;
                if forgiven {
                    self.ejections = 0;
                }
                self.failures = self.failures.saturating_add(1);
                if self.failures < FAILURES && (!trial || forgiven) {
                    self.phase = Phase::Used { since: now, trial: false };
                    return Transition::None;
                }
            }
        }
        let doubled = FIRST_EJECTION.saturating_mul(1 << self.ejections.min(8)).min(LONGEST_EJECTION);
        self.penalty = doubled + doubled.mul_f64((jitter % 1024) as f64 / 4096.0);
        self.ejections = self.ejections.saturating_add(1);
        self.failures = 0;
        self.phase = Phase::Ejected { until: now + self.penalty };
        Transition::Ejected
    }

    /// Makes the next failure the first of a new sequence.
    pub(super) fn break_row(&mut self) {
        self.failures = 0;
    }

    /// Records a successful connection. Successes during an ejection do not count: they began before.
    pub(super) fn succeeded(&mut self) -> Transition {
        match self.phase {
            Phase::Ejected { .. } => Transition::None,
            Phase::Trial { since } => {
                self.phase = Phase::Used { since, trial: false };
                Transition::Returned
            }
            Phase::Used { since, .. } => {
                self.phase = Phase::Used { since, trial: false };
                self.failures = 0;
                if self.ejections == 0 { Transition::Forgotten } else { Transition::None }
            }
        }
    }

    /// Ends a trial that has shown no failure and cannot show a success.
    pub(super) fn acquit(&mut self, now: Instant) {
        if self.is_on_trial() {
            self.phase = Phase::Used { since: now, trial: true };
        }
    }

    /// When to call [`Self::expire`] if no event occurs before.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ejected { until } => Some(until),
            Phase::Trial { since } => Some(since + TRIAL),
            Phase::Used { since, .. } if self.failures > 0 => Some(since + MEMORY),
            Phase::Used { since, .. } => (self.ejections > 0).then(|| since + self.penalty),
        }
    }

    /// If due, begins a trial, extends it, or forgets the record.
    pub(super) fn expire(&mut self, now: Instant) -> Transition {
        match (self.due().filter(|due| *due <= now), self.phase) {
            (None, _) => Transition::None,
            (Some(_), Phase::Ejected { .. } | Phase::Trial { .. }) => {
                self.phase = Phase::Trial { since: now };
                Transition::Trial
            }
            (Some(_), Phase::Used { .. }) => Transition::Forgotten,
        }
    }

    /// Whether new traffic avoids the endpoint.
    pub(super) fn is_ejected(&self) -> bool {
        matches!(self.phase, Phase::Ejected { .. } | Phase::Trial { .. })
    }

    /// Whether the endpoint is being tried.
    pub(super) fn is_on_trial(&self) -> bool {
        matches!(self.phase, Phase::Trial { .. })
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
        assert_eq!(outlier.expire(start + 9 * SECOND), Transition::None);
        assert_eq!(outlier.expire(start + 10 * SECOND), Transition::Trial);
        assert!(outlier.is_ejected(), "until the trial has succeeded");
        assert_eq!(outlier.succeeded(), Transition::Returned);
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
    fn failures_that_nothing_follows_are_forgotten() {
        let start = Instant::now();
        let mut outlier = Outlier::new(start);
        assert_eq!([0; 2].map(|jitter| outlier.failed(start, jitter)), [Transition::None; 2]);
        assert_eq!(outlier.expire(start + 599 * SECOND), Transition::None);
        assert_eq!(outlier.expire(start + 600 * SECOND), Transition::Forgotten);
    }

    #[test]
    fn after_its_time_one_failure_ejects_again_for_twice_as_long_up_to_five_minutes() {
        let mut now = Instant::now();
        let mut outlier = ejected(now);
        for seconds in [10, 20, 40, 80, 160, 300, 300, 300] {
            assert_eq!(outlier.due(), Some(now + seconds * SECOND));
            now += seconds * SECOND;
            assert_eq!(outlier.expire(now), Transition::Trial);
            assert_eq!(outlier.failed(now, 0), Transition::Ejected);
        }
    }

    #[test]
    fn one_that_answered_after_its_return_needs_three_failures_but_is_not_forgiven_yet() {
        let start = Instant::now();
        let mut outlier = ejected(start);
        let back = start + 10 * SECOND;
        assert_eq!(outlier.expire(back), Transition::Trial);
        assert_eq!(outlier.succeeded(), Transition::Returned);
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
        assert_eq!(outlier.expire(back), Transition::Trial);
        assert_eq!(outlier.succeeded(), Transition::Returned);
        assert_eq!(outlier.expire(back + 9 * SECOND), Transition::None);
        assert_eq!(outlier.expire(back + 10 * SECOND), Transition::Forgotten);
        assert_eq!(outlier.failed(back + 10 * SECOND, 0), Transition::None, "three are needed again");
    }

    #[test]
    fn a_trial_without_a_result_goes_on_until_the_endpoint_is_acquitted_and_then_one_failure_ejects() {
        let start = Instant::now();
        let mut outlier = ejected(start);
        outlier.acquit(start);
        assert!(outlier.is_ejected() && !outlier.is_on_trial(), "its time is not over");
        for seconds in [10, 20, 30] {
            assert_eq!(outlier.expire(start + seconds * SECOND), Transition::Trial);
        }
        outlier.acquit(start + 30 * SECOND);
        assert!(!outlier.is_ejected());
        assert_eq!(outlier.failed(start + 31 * SECOND, 0), Transition::Ejected);
    }

    #[test]
    fn what_another_process_is_told_of_it_goes_on_there() {
        let start = Instant::now();
        let told = |outlier: &Outlier, now| Outlier::restored(&outlier.record(now), now);
        let first = Outlier::new(start);
        assert_eq!(told(&first, start + SECOND).record(start + SECOND), first.record(start + SECOND));
        let mut there = told(&ejected(start), start + 4 * SECOND);
        assert_eq!(there.due(), Some(start + 10 * SECOND));
        assert_eq!(there.expire(start + 10 * SECOND), Transition::Trial);
        let mut there = told(&there, start + 11 * SECOND);
        assert_eq!(there.expire(start + 11 * SECOND), Transition::Trial);
        assert_eq!(there.failed(start + 11 * SECOND, 0), Transition::Ejected, "it is on trial there, too");
        assert_eq!(there.due(), Some(start + 31 * SECOND), "for twice as long");
    }

    #[test]
    fn nothing_that_it_is_told_ejects_an_endpoint_for_longer_than_an_ejection_lasts() {
        let (start, most) = (Instant::now(), u64::MAX);
        let phase = HandedPhase::Ejected { for_millis: most };
        let record = FailureRecord {
            failures: u8::MAX,
            ejections: u32::MAX,
            penalty_millis: most,
            phase,
            silent: false,
        };
        let mut outlier = Outlier::restored(&record, start);
        let until = start + LONGEST_PENALTY;
        assert_eq!(outlier.due(), Some(until));
        assert_eq!(outlier.expire(until), Transition::Trial);
        assert_eq!(outlier.failed(until, u64::MAX), Transition::Ejected);
        assert!(outlier.due().unwrap() <= until + LONGEST_PENALTY);
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
