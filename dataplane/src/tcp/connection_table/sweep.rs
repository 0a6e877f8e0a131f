//! Sweep: walks the table in the background, a few entries at a time. It ends idle connections, finds those that exceed their
//! age, and, if memory runs out, resets those that hold the most unread data: their peers do not read, and the data could make
//! the kernel kill the whole process.

use std::cmp::Reverse;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Connection, ConnectionState, ConnectionTable, IdleClock, Tick, ticks};
use crate::counters::CloseReason;
use crate::limits::capacity::Capacity;
use crate::tcp::idle_clock::{CHECKS, TICK};
use crate::tcp::setup::SetupStep;
use crate::worker::token::Key;

/// Longest pass of the sweep, since a connection gets some of its options during a pass.
const LONGEST_ROUND: Duration = Duration::from_secs(60);
/// Number of entries checked per step. Each may take some system calls.
pub(super) const CHECKED_AT_A_TIME: usize = 256;
/// Number of connections searched per request for memory, in rotation: a few system calls each.
const LOOKED_AT: usize = 2048;

/// Minimum amount of waiting data for which a connection is reset; less would not help.
const LEAST: u64 = 64 << 10;

/// Position of the walks, and when the next step is due.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Origin of the ticks.
    epoch: Instant,
    /// Idle timeout of connections whose Service has none of its own, in ticks.
    usual_idle: u32,
    /// Shortest timeout of any connection, in ticks.
    shortest: u32,
    /// Shortest timeout that the current pass has met, or that was added since it began.
    shortest_of_round: u32,
    /// When the current pass began.
    began: Tick,
    /// Index and due time of the next check.
    next: usize,
    due: Instant,
    /// Index at which the next search for memory begins.
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

    /// Sets the idle timeout of new connections whose Service has none of its own.
    pub(super) fn set_usual_idle(&mut self, now: Instant, usual_idle: Duration) {
        self.usual_idle = ticks(usual_idle);
        self.look_every(now, usual_idle);
    }

    /// When the next check is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Creates the idle clock of a connection with this timeout.
    pub(super) fn idle_clock(&mut self, now: Instant, timeout: Duration) -> IdleClock {
        let clock = IdleClock::new(self.tick(now), timeout);
        self.look_every_ticks(now, clock.timeout());
        clock
    }

    /// Shortens the passes so that a timeout of `time` is noticed in time.
    pub(super) fn look_every(&mut self, now: Instant, time: Duration) {
        self.look_every_ticks(now, ticks(time));
    }

    fn look_every_ticks(&mut self, now: Instant, ticks: u32) {
        // The entry may be at an index that the current pass has already visited.
        self.shortest_of_round = self.shortest_of_round.min(ticks);
        if ticks < self.shortest {
            self.shortest = ticks;
            // Moves the next check as if the shorter timeout had been known at the last one.
            self.due = self.due.min(now + self.round());
        }
    }

    pub(super) fn tick(&self, moment: Instant) -> Tick {
        Tick::at(moment, self.epoch)
    }

    pub(super) fn moment(&self, tick: Tick) -> Instant {
        tick.moment(self.epoch)
    }

    /// Whether the next pass may come after `tick`.
    pub(super) fn may_miss(&self, tick: Tick, now: Instant) -> bool {
        tick != Tick::NEVER && tick <= self.tick(now + LONGEST_ROUND)
    }

    /// Maximum duration of one pass.
    fn round(&self) -> Duration {
        (self.shortest * TICK / CHECKS).clamp(TICK / 2, LONGEST_ROUND)
    }
}

impl ConnectionTable {
    /// Ends idle connections. A few entries are checked per call, so that other connections do not wait while a large table is
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
        // So that one pass covers all entries.
        let steps = u32::try_from(places.div_ceil(CHECKED_AT_A_TIME).max(1)).unwrap_or(u32::MAX);
        sweep.due = now + (sweep.round() / steps).max(Duration::from_millis(1));
    }

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

    /// Resets connections that hold much unread data, while more memory is in use than allowed.
    pub(in crate::tcp) fn relieve_memory(&mut self, capacity: &Capacity) {
        if !capacity.wants_relief() {
            return;
        }
        let places = self.sweep.next_holder..self.sweep.next_holder + LOOKED_AT;
        self.sweep.next_holder = if places.end >= self.connections.capacity() { 0 } else { places.end };
        let waiting = |(key, connection): (Key, &Connection)| {
            let bytes = match &connection.state {
                ConnectionState::Relaying(relay, _) => relay.waiting(),
                ConnectionState::Setup(setup) => setup.waiting(),
                ConnectionState::Changing => 0,
            };
            (bytes >= LEAST).then_some((bytes, key))
        };
        let mut holders: Vec<(u64, Key)> = self.connections.range(places).filter_map(waiting).collect();
        holders.sort_unstable_by_key(|holder| Reverse(*holder));
        for (bytes, key) in holders {
            if !capacity.relieve_of(bytes) {
                break;
            }
            match self.connections.get_mut(key).map(|it| &it.state) {
                Some(ConnectionState::Relaying(relay, _)) => {
                    relay.cut();
                    self.end(key, CloseReason::Memory);
                }
                Some(ConnectionState::Setup(_)) => {
                    self.set_up(key, |_, _| Some(SetupStep::Ends(CloseReason::Memory)));
                }
                Some(ConnectionState::Changing) | None => {}
            }
        }
    }
}
