//! Connections that are older than their Service lets them become, so that long-lived ones spread over the endpoints again.
//!
//! The sweep finds those that will be too old before it comes again; no timer and no queue has an entry for any other, since most
//! connections end long before. One that is too old ends in the first pause after an answer, and when the grace is over in any case.

use std::time::{Duration, Instant};

use super::deadline::PAUSE;
use super::{ConnectionState, ConnectionTable, DUE_PER_TURN, Tick};
use crate::counters::CloseReason;
use crate::worker::token::Key;

/// How long a connection that is too old may wait for a pause, where its Service does not say.
const GRACE: Duration = Duration::from_secs(30);

/// One part in so many of the age is added at random, at most, so that connections that began together do not end together.
const JITTER: u64 = 10;

/// A connection that is too old, or soon will be, as of its last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Overage {
    key: Key,
    /// When its grace is over; [`Tick::NEVER`] before that has begun.
    ends: Tick,
}

/// An age with its jitter.
pub(super) fn with_jitter(age: Duration, random: u64) -> Duration {
    const STEPS: u32 = 1 << 16;
    age + age / u32::try_from(JITTER).unwrap_or(u32::MAX) / STEPS * (random % u64::from(STEPS)) as u32
}

impl ConnectionTable {
    /// The connection will be too old before it is looked at again.
    pub(super) fn queue_overage(&mut self, key: Key, now: Instant) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let expires = std::mem::replace(&mut connection.expires, Tick::NEVER);
        let left = self.sweep.moment(expires).saturating_duration_since(now);
        self.overage.push(now, left, Overage { key, ends: Tick::NEVER });
    }

    /// Ends connections that are too old and rest, or whose grace is over.
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

    /// What is to become of the connection, if it is still there.
    fn look_at_overage(&mut self, now: Instant, before: Overage) -> Option<AgeVerdict> {
        let connection = self.connections.get_mut(before.key)?;
        let ConnectionState::Relaying(_, session) = &connection.state else { return None };
        if before.ends == Tick::NEVER {
            let frontend = self.context.worker.table().get(session.frontend).map(|it| it.timeouts());
            let grace = frontend.and_then(|timeouts| timeouts.max_age_grace).unwrap_or(GRACE);
            return Some(AgeVerdict::GoesOn(Overage { ends: self.sweep.tick(now + grace), ..before }));
        }
        let tick = self.sweep.tick(now);
        let pauses = connection.rests(tick) && !connection.awaits_answer;
        Some(if before.ends <= tick || pauses { AgeVerdict::Ends } else { AgeVerdict::GoesOn(before) })
    }
}

/// What becomes of a connection that is too old.
enum AgeVerdict {
    Ends,
    /// It is looked at again after another pause.
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
