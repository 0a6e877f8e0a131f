//! Idle clock of a connection. Relayed bytes touch no timer: the sweep compares byte counts.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use crate::sys::sockets::KEEPALIVE_IDLE;
use crate::sys::stream::Heard;

/// Unit of idle time: small against any timeout, and 32 bits hold years of it.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// Number of checks per idle timeout: a connection is closed after one timeout at the earliest and three eighths more at the latest.
pub(super) const CHECKS: u32 = 8;

/// A moment, in ticks since the table was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u32);

impl Tick {
    /// Later than any moment.
    pub(super) const NEVER: Self = Self(u32::MAX);

    /// The tick of `now`, counted from `epoch`.
    pub(super) fn at(now: Instant, epoch: Instant) -> Self {
        Self(ticks(now.saturating_duration_since(epoch)))
    }

    /// Ticks from this tick to `now`.
    pub(super) fn elapsed(self, now: Self) -> u32 {
        now.0.saturating_sub(self.0)
    }

    /// Start of the tick, counted from `epoch`.
    pub(super) fn moment(self, epoch: Instant) -> Instant {
        epoch + TICK * self.0
    }
}

/// Number of whole ticks in `time`.
pub(super) fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / TICK.as_nanos()).unwrap_or(u32::MAX)
}

/// Since when a connection has been idle, as of its last check.
#[derive(Debug)]
pub(super) struct IdleClock {
    timeout: u32,
    since: Tick,
    checked: Tick,
    moved: u64,
    /// Sum of the bytes that the peers had read from their kernel and from this one.
    taken: u64,
    /// Number of segments received from both peers at the last sign of life; `None` if keepalives do not count.
    segments: Option<NonZeroU32>,
}

impl IdleClock {
    /// Clock of a connection that begins now and may be idle for `timeout`.
    pub(super) fn new(now: Tick, timeout: Duration) -> Self {
        // One tick more, since both ends of an interval are rounded down to whole ticks.
        Self {
            timeout: ticks(timeout).saturating_add(1),
            since: now,
            checked: now,
            moved: 0,
            taken: 0,
            segments: None,
        }
    }

    /// Makes keepalives that peers send restart the clock.
    pub(super) fn count_keepalives(&mut self) {
        self.segments = Some(NonZeroU32::MIN);
    }

    /// Idle timeout in ticks.
    pub(super) fn timeout(&self) -> u32 {
        self.timeout
    }

    /// Whether the connection has been idle for longer than its timeout. `moved` is the number of relayed bytes. `taken` grows when a
    /// peer reads; it is called only if nothing was relayed since the last check. `heard` is called only if keepalives count.
    pub(super) fn is_over(
        &mut self,
        now: Tick,
        moved: u64,
        taken: impl FnOnce() -> u64,
        heard: impl FnOnce() -> [Heard; 2],
    ) -> bool {
        // Other connections may have to be checked far more often.
        if now.0.saturating_sub(self.checked.0) < self.timeout / CHECKS / 2 {
            return false;
        }
        self.checked = now;
        if moved != self.moved {
            (self.moved, self.since) = (moved, now);
            return false;
        }
        let taken = taken();
        if taken != self.taken {
            (self.taken, self.since) = (taken, now);
            self.segments = self.segments.map(|_| segments_of(&heard()));
            return false;
        }
        let idle = self.since.elapsed(now);
        if idle < self.timeout {
            return false;
        }
        let Some(before) = self.segments else { return true };
        let heard = heard();
        let kept = have_kept_alive(before, &heard, TICK * idle);
        if kept {
            (self.segments, self.since) = (Some(segments_of(&heard)), now);
        }
        !kept
    }
}

fn segments_of(heard: &[Heard; 2]) -> NonZeroU32 {
    let sum = heard.iter().fold(0, |sum: u32, peer| sum.wrapping_add(peer.segments));
    NonZeroU32::new(sum).unwrap_or(NonZeroU32::MIN)
}

/// Whether peers have sent keepalives during this time, in which they sent nothing else. Replies to this machine's own keepalives are
/// segments, too, but only they acknowledge anything (`tcp_ack` in net/ipv4/tcp_input.c; a keepalive is out of the window and is
/// dropped earlier).
fn have_kept_alive(before: NonZeroU32, heard: &[Heard; 2], idle: Duration) -> bool {
    let most = 1 + idle.as_secs() / KEEPALIVE_IDLE.as_secs();
    let answers: u64 = heard.iter().map(|peer| if peer.quiet > idle { 0 } else { most }).sum();
    u64::from(segments_of(heard).get().wrapping_sub(before.get())) > answers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unheard() -> [Heard; 2] {
        unreachable!()
    }

    fn tick(number: u32) -> Tick {
        Tick(number)
    }

    #[test]
    fn it_is_over_after_the_timeout_and_not_before() {
        let mut idle = IdleClock::new(tick(7), 10 * TICK);
        assert!(!idle.is_over(tick(17), 0, || 0, unheard));
        assert!(idle.is_over(tick(18), 0, || 0, unheard));
    }

    #[test]
    fn bytes_and_what_peers_take_start_it_anew() {
        let mut idle = IdleClock::new(tick(0), 10 * TICK);
        assert!(!idle.is_over(tick(11), 1, || unreachable!(), unheard));
        assert!(!idle.is_over(tick(21), 1, || 5, unheard));
        assert!(!idle.is_over(tick(31), 1, || 5, unheard));
        assert!(idle.is_over(tick(32), 1, || 5, unheard));
    }

    #[test]
    fn it_is_not_checked_more_often_than_its_timeout_needs() {
        let mut idle = IdleClock::new(tick(0), 800 * TICK);
        assert!(!idle.is_over(tick(49), 0, || unreachable!(), unheard));
        assert!(!idle.is_over(tick(50), 0, || 0, unheard));
        assert!(!idle.is_over(tick(99), 0, || unreachable!(), unheard));
        assert!(!idle.is_over(tick(100), 0, || 0, unheard));
    }

    #[test]
    fn the_longest_timeout_does_not_overflow() {
        let mut idle = IdleClock::new(tick(u32::MAX - 1), Duration::MAX);
        assert!(!idle.is_over(tick(u32::MAX), 0, || 0, unheard));
    }

    #[test]
    fn keepalives_of_a_peer_start_it_anew_where_they_count_and_answers_to_our_own_do_not() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let ends = |segments: u32, quiet: Duration| {
            let at = |count| tick(ticks(minutes(count)));
            let mut idle = IdleClock::new(tick(0), minutes(9));
            idle.count_keepalives();
            let heard = |segments| [Heard { segments: 7, quiet: minutes(100) }, Heard { segments, quiet }];
            assert!(!idle.is_over(at(1), 0, || 5, || heard(100)));
            idle.is_over(at(11), 0, || 5, || heard(100 + segments))
        };
        assert!(ends(0, minutes(100)), "nothing came");
        assert!(!ends(1, minutes(100)), "it did not answer anything");
        assert!(ends(4, minutes(2)), "every three minutes it is asked");
        assert!(!ends(5, minutes(2)));
    }
}
