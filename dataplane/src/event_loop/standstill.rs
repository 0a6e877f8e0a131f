//! Standstill: detects that this thread was not scheduled, and defers deadlines until the packets that arrived meanwhile are read.

use std::time::{Duration, Instant};

/// Delay of a turn that counts as a standstill: the machine had no processor for this thread.
const STANDSTILL: Duration = Duration::from_millis(500);

/// How long deadlines are deferred after a standstill.
const CATCHING_UP: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Standstill {
    caught_up: Instant,
}

impl Standstill {
    /// Creates the state for a thread that has run until `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { caught_up: now }
    }

    /// When the next turn is to begin for what is due at `deadline`, after a turn that began at `last`. It is never earlier than
    /// `last`: deadlines that a long queue leaves for the next turn are no standstill.
    pub(super) fn next_turn(&self, last: Instant, deadline: Instant) -> Instant {
        deadline.max(self.caught_up).max(last)
    }

    /// Begins a turn that was to begin by `due`.
    pub(super) fn begin_turn(&mut self, now: Instant, due: Option<Instant>) {
        if due.is_some_and(|due| now.saturating_duration_since(due) > STANDSTILL) {
            self.caught_up = now + CATCHING_UP;
        }
    }

    /// Whether deadlines may be handled.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.caught_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_postpones_what_is_due_once_however_long_that_takes_then() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut standstill = Standstill::new(start);
        let deadline = at(1000);
        let due = standstill.next_turn(start, deadline);
        assert_eq!(due, deadline);
        standstill.begin_turn(at(6000), Some(due));
        assert!(!standstill.is_over(at(6199)));
        let due = standstill.next_turn(at(6000), deadline);
        assert_eq!(due, at(6200));
        standstill.begin_turn(at(6200), Some(due));
        assert!(standstill.is_over(at(6200)));
        // So many deadlines are due that they take many turns.
        for millis in (6250..9000).step_by(50) {
            let due = standstill.next_turn(at(millis - 50), deadline);
            standstill.begin_turn(at(millis), Some(due));
            assert!(standstill.is_over(at(millis)), "{millis}");
        }
        let due = standstill.next_turn(at(9000), at(9100));
        standstill.begin_turn(at(9700), Some(due));
        assert!(!standstill.is_over(at(9700)), "another one");
    }

    #[test]
    fn a_turn_without_a_deadline_is_never_late() {
        let start = Instant::now();
        let mut standstill = Standstill::new(start);
        standstill.begin_turn(start + Duration::from_secs(60), None);
        assert!(standstill.is_over(start + Duration::from_secs(60)));
    }
}
