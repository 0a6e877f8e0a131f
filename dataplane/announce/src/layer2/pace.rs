//! How long the kernel takes for a change of an address lately, and so for all addresses in turn. It changes them under a lock of the whole machine
//! (`renewals`): a round of renewals takes a moment usually, and many seconds where Pods come and go.

use std::time::{Duration, Instant};

/// How many rounds of renewals an address outlives.
const ROUNDS: u32 = 3;
/// The longest that an address is given, however long renewals take. nftables keeps the kernel of a process that is dead silent for 60 s at the
/// least (`kernel_answers`).
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// Changes of such a time are taken together: one that waited by chance says little of a whole round.
const TOGETHER: Duration = Duration::from_secs(1);
/// The slowest of these times counts for so long at the least, and for twice as long at most.
const LATELY: Duration = Duration::from_mins(1);

/// What was measured.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Changes of the present time, how long they took, and when it began.
    changes: u32,
    took: Duration,
    since: Instant,
    /// The slowest means of a time, of the present minute and of the one before, and when the present one began.
    slowest: [Duration; 2],
    minute: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { changes: 0, took: Duration::ZERO, since: now, slowest: [Duration::ZERO; 2], minute: now }
    }

    /// Takes in how long so many changes took, one after the other.
    pub(crate) fn note(&mut self, changes: usize, took: Duration, now: Instant) {
        self.forget(now);
        self.changes = self.changes.saturating_add(u32::try_from(changes).unwrap_or(u32::MAX));
        self.took += took;
    }

    /// Takes in that so many addresses were given this time by another process, for [three rounds](Self::rounds) of their renewals.
    pub(crate) fn note_lifetime(&mut self, addresses: usize, time: Duration, now: Instant) {
        self.note(ROUNDS as usize * addresses, time, now);
    }

    /// How long so many changes take, one after the other, if that is as slow as it lately was.
    fn of(&mut self, changes: usize, now: Instant) -> Duration {
        self.forget(now);
        let slowest = self.slowest.into_iter().fold(self.mean(), Duration::max);
        slowest.saturating_mul(u32::try_from(changes).unwrap_or(u32::MAX))
    }

    /// How long something lives that outlives three rounds of so many changes, in whole seconds as the kernel counts, 30 s at most.
    pub(crate) fn rounds(&mut self, changes: usize, now: Instant) -> Duration {
        let rounds = self.of(changes, now).saturating_mul(ROUNDS).min(LONGEST);
        Duration::from_secs(rounds.as_millis().div_ceil(1000) as u64)
    }

    fn mean(&self) -> Duration {
        self.took.checked_div(self.changes).unwrap_or_default()
    }

    fn forget(&mut self, now: Instant) {
        if now >= self.since + TOGETHER {
            self.slowest[0] = self.slowest[0].max(self.mean());
            (self.changes, self.took, self.since) = (0, Duration::ZERO, now);
        }
        if now >= self.minute + LATELY {
            let before = if now < self.minute + LATELY * 2 { self.slowest[0] } else { Duration::ZERO };
            (self.slowest, self.minute) = ([Duration::ZERO, before], now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_takes_as_long_as_the_slowest_second_of_the_last_minute_would_have_it() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut pace = Pace::new(start);
        assert_eq!(pace.of(1_000, start), Duration::ZERO);
        pace.note(1, ms(250), start + ms(250));
        assert_eq!(pace.of(12, start + ms(250)), ms(3_000), "it counts at once");
        let mut quick = |second: u64| {
            let now = start + ms(1_000 * second);
            pace.note(12, ms(12), now);
            pace.of(12, now)
        };
        for second in 1..120 {
            assert_eq!(quick(second), ms(3_000), "{second}");
        }
        assert_eq!(quick(121), ms(12), "it is long over");
    }

    #[test]
    fn one_change_that_waits_by_chance_does_not_make_a_round_of_thousands() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut pace = Pace::new(start);
        pace.note(1, ms(100), start);
        pace.note(999, ms(100), start + ms(900));
        assert_eq!(pace.of(1_000, start + ms(2_000)), ms(200));
    }
}
