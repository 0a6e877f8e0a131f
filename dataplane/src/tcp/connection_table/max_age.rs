//! Maximum age of connections: ends long-lived ones, so that they spread over the endpoints again.
//!
//! The sweep finds connections that will exceed their age before its next pass. No other connection has a timer or queue entry,
//! since most end long before. A connection past its age ends in the first pause after an answer, or at the end of the grace period.

use std::time::{Duration, Instant};

use super::deadline::PAUSE;
use super::{ConnectionState, ConnectionTable, DUE_PER_TURN, Tick};
use crate::counters::CloseReason;
use crate::worker::token::Key;

/// Default grace period in which a connection past its age waits for a pause.
const GRACE: Duration = Duration::from_secs(30);

/// Divisor of the age for the maximum random extra time, so that connections that began together do not end together.
const JITTER: u64 = 10;

/// A connection that has exceeded its maximum age or will soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Overage {
    key: Key,
    /// End of the grace period; [`Tick::NEVER`] before it has begun.
    ends: Tick,
}

/// The age plus random jitter.
pub(super) fn with_jitter(age: Duration, random: u64) -> Duration {
    const STEPS: u32 = 1 << 16;
    age + age / u32::try_from(JITTER).unwrap_or(u32::MAX) / STEPS * (random % u64::from(STEPS)) as u32
}

impl ConnectionTable {
    /// Queues a connection that will exceed its age before the next pass of the sweep.
    pub(super) fn queue_overage(&mut self, key: Key, now: Instant) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let expires = std::mem::replace(&mut connection.expires, Tick::NEVER);
        let left = self.sweep.moment(expires).saturating_duration_since(now);
        self.overage.push(now, left, Overage { key, ends: Tick::NEVER });
    }

    /// Ends connections past their age that are at rest, or whose grace period is over.
    pub(super) fn end_overage(&mut self, now: Instant) {
        for _ in 0..DUE_PER_TURN {
            let Some((_, overage)) = self.overage.pop(now) else { break };
            let key = overage.key;
            match self.look_at_overage(now, overage) {
                None => {}
                Some(AgeVerdict::GoesOn(overage)) => drop(self.overage.push(now, PAUSE, overage)),
                Some(AgeVerdict::Ends) => self.end_in_time(key, self.sweep.tick(now), CloseReason::MaxAge),
            }
        }
    }

    /// Decides about the connection; `None` if it has ended.
    fn look_at_overage(&mut self, now: Instant, before: Overage) -> Option<AgeVerdict> {
        let connection = self.connections.get_mut(before.key)?;
        let ConnectionState::Relaying(_, session) = &connection.state else { return None };
        if before.ends == Tick::NEVER {
            let timeouts = session.timeouts(&self.context.worker.table());
            let grace = timeouts.and_then(|timeouts| timeouts.max_age_grace).unwrap_or(GRACE);
            return Some(AgeVerdict::GoesOn(Overage { ends: self.sweep.tick(now + grace), ..before }));
        }
        let tick = self.sweep.tick(now);
        let pauses = connection.rests(tick) && !connection.awaits_answer;
        Some(if before.ends <= tick || pauses { AgeVerdict::Ends } else { AgeVerdict::GoesOn(before) })
    }
}

/// Verdict about a connection past its age.
enum AgeVerdict {
    Ends,
    /// Check again after another pause.
    GoesOn(Overage),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_adds_a_tenth_at_most_and_spreads_evenly() {
        let hour = Duration::from_secs(3600);
        assert_eq!(with_jitter(hour, 0), hour);
        assert!(
            with_jitter(hour, u64::MAX) > hour * 109 / 100 && with_jitter(hour, u64::MAX) <= hour * 11 / 10
        );
        let middle = with_jitter(hour, 1 << 15);
        assert!(middle > hour * 104 / 100 && middle < hour * 106 / 100, "{middle:?}");
        assert!(with_jitter(Duration::from_secs(1), u64::MAX) > Duration::from_millis(1090));
    }
}
