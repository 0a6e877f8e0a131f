//! What walks the table in the background, a few entries at a time: connections that have become idle end, those that are too old
//! are found, and where memory runs
//! out, those for which the most waits are reset. Their peers do not read, and what waits for them would have the kernel kill
//! the whole process.

use std::cmp::Reverse;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Connection, ConnectionState, ConnectionTable, IdleClock, Tick, ticks};
use crate::counters::CloseReason;
use crate::limits::capacity::Capacity;
use crate::tcp::idle_clock::{CHECKS, TICK};
use crate::worker::token::Key;

/// Idle connections are looked for as often as this at least, since a connection gets some of its options then.
const LONGEST_ROUND: Duration = Duration::from_secs(60);
/// Entries that are checked at a time. Each may take some system calls.
pub(super) const CHECKED_AT_A_TIME: usize = 256;
/// Connections that are looked at each time, round and round: a few system calls each.
const LOOKED_AT: usize = 2048;

/// A connection for which less waits is not reset: it does not help.
const LEAST: u64 = 64 << 10;

/// How far the walks have come, and when the next step is due.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Idle time is counted from here.
    epoch: Instant,
    /// Of connections whose Service has none of its own, in ticks.
    usual_idle: u32,
    /// The shortest idle timeout of any connection, in ticks.
    shortest: u32,
    /// The same of what the round that is under way has met, or what has begun since.
    shortest_of_round: u32,
    /// When the round that is under way began.
    began: Tick,
    /// Where the next check begins, and when it is due.
    next: usize,
    due: Instant,
    /// Where the next search for memory begins.
    next_holder: usize,
}

impl Sweep {
    pub(super) fn new(now: Instant, usual_idle: Duration) -> Self {
        let usual_idle = ticks(usual_idle);
        Self {
            epoch: now,
            usual_idle,
            shortest: usual_idle,
            shortest_of_round: u32::MAX,
            began: Tick::at(now, now),
            next: 0,
            due: now,
            next_holder: 0,
        }
    }

    /// Connections whose Service has none of its own begin with this one.
    pub(super) fn set_usual_idle(&mut self, now: Instant, usual_idle: Duration) {
        self.usual_idle = ticks(usual_idle);
        self.look_every(now, usual_idle);
    }

    /// When the next check is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// A connection that may be idle for so long.
    pub(super) fn idle_clock(&mut self, now: Instant, timeout: Duration) -> IdleClock {
        let clock = IdleClock::new(self.tick(now), timeout);
        self.look_every_ticks(now, clock.timeout());
        clock
    }

    /// What takes so long is noticed in time from now on.
    pub(super) fn look_every(&mut self, now: Instant, time: Duration) {
        self.look_every_ticks(now, ticks(time));
    }

    fn look_every_ticks(&mut self, now: Instant, ticks: u32) {
        // It may begin behind the back of a round that is under way.
        self.shortest_of_round = self.shortest_of_round.min(ticks);
        if ticks < self.shortest {
            self.shortest = ticks;
            // As if nothing longer had been there when the last check was done.
            self.due = self.due.min(now + self.round());
        }
    }

    pub(super) fn tick(&self, moment: Instant) -> Tick {
        Tick::at(moment, self.epoch)
    }

    pub(super) fn moment(&self, tick: Tick) -> Instant {
        tick.moment(self.epoch)
    }

    /// Whether the next round may come later than that.
    pub(super) fn may_miss(&self, tick: Tick, now: Instant) -> bool {
        tick != Tick::NEVER && tick <= self.tick(now + LONGEST_ROUND)
    }

    /// How long one round may take.
    fn round(&self) -> Duration {
        (self.shortest * TICK / CHECKS).clamp(TICK / 2, LONGEST_ROUND)
    }
}

impl ConnectionTable {
    /// Ends connections that have become idle: a few are checked at a time, so that no other one waits while a large table is
    /// walked.
    pub(super) fn sweep(&mut self, now: Instant) {
        if now < self.sweep.due {
            return;
        }
        let first = self.sweep.next;
        self.check_some(now, first);
        let (places, sweep) = (self.connections.capacity(), &mut self.sweep);
        sweep.next += CHECKED_AT_A_TIME;
        if sweep.next >= places {
            let shortest = std::mem::replace(&mut sweep.shortest_of_round, u32::MAX);
            sweep.shortest = shortest.min(sweep.usual_idle);
            sweep.next = 0;
            let this = sweep.tick(now);
            let began = std::mem::replace(&mut sweep.began, this);
            self.connections.shrink();
            self.forget_removed(began, now);
        }
        let sweep = &mut self.sweep;
        // So that all entries are checked in one round.
        let steps = u32::try_from(places.div_ceil(CHECKED_AT_A_TIME).max(1)).unwrap_or(u32::MAX);
        sweep.due = now + (sweep.round() / steps).max(Duration::from_millis(1));
    }

    /// Checks the entries from `first` on.
    fn check_some(&mut self, now: Instant, first: usize) {
        let tick = self.sweep.tick(now);
        let worker = Rc::clone(&self.context.worker);
        let table = worker.table();
        for index in first..first + CHECKED_AT_A_TIME {
            let Some(key) = self.connections.key_at(index) else { continue };
            let Some(Connection {
                state: ConnectionState::Relaying(relay, session), expires, bereft, ..
            }) = self.connections.get_mut(key)
            else {
                continue;
            };
            self.sweep.shortest_of_round = self.sweep.shortest_of_round.min(relay.idle_ticks());
            let expires = *expires;
            let is_left_over = self.removed.get(&session.frontend).is_some_and(|ends| *ends <= tick)
                && table.get(session.frontend).is_none();
            *bereft = self.sweep.end_without_endpoint(*bereft, session, &table, now);
            let is_left_over = is_left_over || *bereft <= tick;
            if relay.is_idle(tick) {
                self.end_in_time(key, tick, CloseReason::Idle);
            } else if is_left_over {
                self.end_in_time(key, tick, CloseReason::Removed);
            } else if self.sweep.may_miss(expires, now) {
                self.queue_overage(key, now);
            }
        }
    }

    /// Looks at some connections for memory to give back, while more is taken than there may be.
    pub(in crate::tcp) fn relieve_memory(&mut self, capacity: &Capacity) {
        if !capacity.wants_relief() {
            return;
        }
        let places = self.sweep.next_holder..self.sweep.next_holder + LOOKED_AT;
        self.sweep.next_holder = if places.end >= self.connections.capacity() { 0 } else { places.end };
        let waiting = |(key, connection): (Key, &super::Connection)| match &connection.state {
            ConnectionState::Relaying(relay, _) => {
                Some((relay.waiting(), key)).filter(|(bytes, _)| *bytes >= LEAST)
            }
            ConnectionState::Setup(_) | ConnectionState::Changing => None,
        };
        let mut holders: Vec<(u64, Key)> = self.connections.range(places).filter_map(waiting).collect();
        holders.sort_unstable_by_key(|holder| Reverse(*holder));
        for (bytes, key) in holders {
            if !capacity.relieve_of(bytes) {
                break;
            }
            if let Some(ConnectionState::Relaying(relay, _)) =
                self.connections.get_mut(key).map(|it| &it.state)
            {
                relay.cut();
            }
            self.end(key, CloseReason::Memory);
        }
    }
}
