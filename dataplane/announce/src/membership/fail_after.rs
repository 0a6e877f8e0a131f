//! `failAfter` as it is in force: what is configured, and room for the round trips that are measured.
//!
//! A lease lasts as long as the heartbeat says that gives it. So what heartbeats promise is raised at once and lowered late, and whoever judges others counts
//! with the longest promise on which they may still rely: one that was made before a shorter one, or by a process before this one.

use std::time::{Duration, Instant};

use super::options::MembershipOptions;
use crate::heartbeat::Silence;

/// For how long round trips must have been shorter for `failAfter` to be; up to twice as long.
pub(super) const CALM: Duration = Duration::from_secs(30);
/// How often a round trip counts: a lease is renewed by one, and asked for by another where a heartbeat was lost.
const ROUND_TRIPS: u32 = 2;

/// The `failAfter` promised to others, and the longest that they may still rely on.
#[derive(Debug)]
pub(super) struct FailAfter {
    promised: Duration,
    /// The longest promise before that, and until when leases by it may hold.
    outstanding: Option<(Duration, Instant)>,
    /// The longest round trips of this time and of the one before.
    longest: [Duration; 2],
    /// When this time began.
    since: Instant,
}

impl FailAfter {
    /// Starts with the last promise of the process before this one, and the longest that others may rely on, if it handed over.
    pub(super) fn new(
        options: &MembershipOptions,
        continued: Option<(Duration, Duration)>,
        now: Instant,
    ) -> Self {
        let most = options.fail_after_max;
        let (promised, longest) = continued.unwrap_or((options.fail_after, most));
        let promised = promised.clamp(options.fail_after, most);
        let before = longest.clamp(promised, most);
        let round_trip = match promised.saturating_sub(options.fail_after) {
            Duration::ZERO => Duration::ZERO,
            more => more / ROUND_TRIPS + options.prompt(),
        };
        Self { promised, outstanding: Some((before, now + before)), longest: [round_trip; 2], since: now }
    }

    /// Value in heartbeats that are sent now.
    pub(super) fn promised(&self) -> Duration {
        self.promised
    }

    /// How long a member has to be silent for its leases from this gateway to be over.
    pub(super) fn judged(&self) -> Duration {
        self.outstanding.map_or(self.promised, |(longer, _)| longer.max(self.promised))
    }

    /// Length of a silence for others, so that they count with `judged` where the heartbeat says `promised`. A short one, which is no
    /// silence, stays as it is.
    pub(super) fn tell(&self, silence: Duration) -> Silence {
        let less = silence.saturating_sub(self.judged() - self.promised);
        Silence::of(less.max(silence.min(self.promised / 2)), self.promised)
    }

    /// Takes a measured round trip into account.
    pub(super) fn measured(&mut self, round_trip: Duration, options: &MembershipOptions) {
        let [longest, _] = &mut self.longest;
        *longest = round_trip.max(*longest);
        self.promised = self.promised.max(self.needed(options));
    }

    /// Promises less if it is time.
    pub(super) fn update(&mut self, options: &MembershipOptions, now: Instant) {
        self.outstanding = self.outstanding.filter(|(_, until)| now < *until);
        if now < self.since + CALM {
            return;
        }
        let [longest, _] = self.longest;
        (self.longest, self.since) = ([Duration::ZERO, longest], now);
        let needed = self.needed(options);
        if needed < self.promised {
            let (longer, until) = self.outstanding.unwrap_or((self.promised, now));
            self.outstanding = Some((longer.max(self.promised), until.max(now + self.promised)));
            self.promised = needed;
        }
    }

    fn needed(&self, options: &MembershipOptions) -> Duration {
        let longest = self.longest.into_iter().max().unwrap_or_default();
        let more = longest.saturating_sub(options.prompt()) * ROUND_TRIPS;
        // Heartbeats have it in milliseconds.
        let more = Duration::from_millis(u64::try_from(more.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX));
        options.fail_after.saturating_add(more).min(options.fail_after_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// State 2 s after the start.
    fn settled() -> (FailAfter, MembershipOptions, Instant) {
        let options = MembershipOptions::new("a".into(), "fleet".into(), 1);
        let start = Instant::now();
        let mut fail_after = FailAfter::new(&options, None, start);
        fail_after.update(&options, start + ms(2_000));
        (fail_after, options, start)
    }

    #[test]
    fn it_is_raised_at_once_within_bounds_and_lowered_after_a_calm() {
        let (mut it, options, start) = settled();
        it.measured(ms(50), &options);
        assert_eq!(it.promised(), ms(350), "half an interval costs nothing");
        it.measured(ms(200), &options);
        assert_eq!(it.promised(), ms(650));
        it.measured(ms(1), &options);
        it.update(&options, start + ms(30_000));
        assert_eq!(it.promised(), ms(650));
        it.measured(ms(100), &options);
        it.update(&options, start + ms(60_000));
        assert_eq!(it.promised(), ms(450));
        it.measured(ms(5_000), &options);
        assert_eq!(it.promised(), options.fail_after_max);
    }

    #[test]
    fn others_are_judged_by_what_they_may_still_rely_on() {
        let (mut it, options, start) = settled();
        assert_eq!((it.promised(), it.judged()), (ms(350), ms(350)));
        it.measured(ms(200), &options);
        assert_eq!(it.judged(), ms(650), "longer at once");
        it.update(&options, start + ms(30_000));
        let lowered = start + ms(60_000);
        it.update(&options, lowered);
        assert_eq!((it.promised(), it.judged()), (ms(350), ms(650)));
        it.update(&options, lowered + ms(649));
        assert_eq!(it.judged(), ms(650));
        it.update(&options, lowered + ms(650));
        assert_eq!(it.judged(), ms(350));
    }

    #[test]
    fn a_process_before_this_one_may_have_promised_the_most() {
        let options = MembershipOptions::new("a".into(), "fleet".into(), 1);
        let start = Instant::now();
        let mut fresh = FailAfter::new(&options, None, start);
        assert_eq!((fresh.promised(), fresh.judged()), (ms(350), ms(1_400)));
        fresh.update(&options, start + ms(1_400));
        assert_eq!(fresh.judged(), ms(350));
        let mut continued = FailAfter::new(&options, Some((ms(650), ms(650))), start);
        assert_eq!((continued.promised(), continued.judged()), (ms(650), ms(650)));
        continued.update(&options, start + ms(30_000));
        assert_eq!(continued.promised(), ms(650));
        continued.update(&options, start + ms(60_000));
        assert_eq!(continued.promised(), ms(350));
        let mut upgraded = FailAfter::new(&options, Some((ms(350), ms(1_400))), start);
        assert_eq!((upgraded.promised(), upgraded.judged()), (ms(350), ms(1_400)));
        upgraded.update(&options, start + ms(1_400));
        assert_eq!(upgraded.judged(), ms(350));
    }

    /// Silences in heartbeats end no lease before its time.
    #[test]
    fn what_is_told_of_a_silence_ends_no_lease_early() {
        let (mut it, options, start) = settled();
        it.measured(ms(200), &options);
        it.update(&options, start + ms(30_000));
        it.update(&options, start + ms(60_000));
        for silence in (0..3_000).map(ms) {
            let told = it.tell(silence);
            assert_eq!(told.is_heard(), silence < it.judged(), "{silence:?}");
            assert!(told.at_least(it.promised()) <= silence, "{silence:?}");
            if !told.is_heard() {
                let over_for = told.at_least(it.promised()) - it.promised();
                assert!(over_for <= silence - it.judged(), "{silence:?}");
            }
            if silence <= ms(100) {
                assert_eq!(told, Silence::of(silence, it.promised()), "the answer's age is exact");
            }
        }
    }
}
