//! Pace of a load: each unit starts when another one ends (closed loop), or units start at fixed times (open loop). In a closed
//! loop, a stall of the subject stops the requests, so their latencies are not measured. In an open loop requests continue, and
//! each latency counts from the time when its unit was due.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::{PATIENCE, wait};
use crate::failure::{During, Failure};

/// Token of the timer's events. Those of connections are lower.
const TIMER: Token = Token(usize::MAX);

/// Pace at which units start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// A unit starts when another one has ended.
    Closed,
    /// Units start at fixed times. A unit that finds all connections busy waits for a free one.
    Open {
        /// Units per second.
        rate: f64,
    },
}

impl Pace {
    /// Rate of an open loop.
    pub(crate) fn rate(self) -> Option<f64> {
        match self {
            Self::Closed => None,
            Self::Open { rate } => Some(rate),
        }
    }

    /// Share of a thread that has `part` of `whole` connections.
    pub(crate) fn share(self, part: usize, whole: usize) -> Self {
        match self {
            Self::Closed => Self::Closed,
            Self::Open { rate } => Self::Open { rate: rate * part as f64 / whole.max(1) as f64 },
        }
    }
}

/// Units of one thread.
pub(super) struct Arrivals {
    pace: Pace,
    start: Instant,
    end: Instant,
    begun: u64,
    /// Timer for an open loop, since `epoll_wait(2)` has a resolution of milliseconds.
    timer: TimerFd,
}

impl Arrivals {
    /// Starts now, for `duration`; `poll` gets the timer's events.
    pub(super) fn start(pace: Pace, duration: Duration, poll: &Poll) -> Result<Self, Failure> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).during("make a timer")?;
        let number = timer.as_fd().as_raw_fd();
        let registry = poll.registry();
        registry.register(&mut SourceFd(&number), TIMER, Interest::READABLE).during("poll a timer")?;
        let start = Instant::now();
        Ok(Self { pace, start, end: start + duration, begun: 0, timer })
    }

    /// Time from which the next unit counts, if it may start now.
    pub(super) fn next(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let from = self.due(now);
        if from >= self.end || from > now {
            return None;
        }
        self.begun += 1;
        Some(from)
    }

    /// Whether all units have started.
    pub(super) fn are_over(&self) -> bool {
        self.due(Instant::now()) >= self.end
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Fails if units have not ended long after the end of the load.
    pub(super) fn check_hung(&self, what: &'static str) -> Result<(), Failure> {
        super::not_after(self.end + PATIENCE, what)
    }

    /// How many units of an open loop should have begun and have not.
    pub(super) fn never_begun(&self) -> u64 {
        let due = |rate: f64| (rate * (self.end - self.start).as_secs_f64()).ceil() as u64;
        self.pace.rate().map_or(0, due).saturating_sub(self.begun)
    }

    /// Waits for events for `most` at most, and for the next unit if there is a connection for it.
    pub(super) fn wait(
        &self,
        poll: &mut Poll,
        events: &mut Events,
        free: bool,
        most: Duration,
    ) -> Result<(), Failure> {
        let due = self.due(Instant::now());
        let timed = free && self.pace.rate().is_some() && due < self.end;
        let Some(rest) = due.checked_duration_since(Instant::now()).filter(|rest| timed && !rest.is_zero())
        else {
            return wait(poll, events, if timed { Duration::ZERO } else { most });
        };
        let expiration = Expiration::OneShot(TimeSpec::from_duration(rest));
        self.timer.set(expiration, TimerSetTimeFlags::empty()).during("set a timer")?;
        wait(poll, events, most)
    }

    fn due(&self, now: Instant) -> Instant {
        match self.pace {
            Pace::Closed => now,
            Pace::Open { rate } => self.start + Duration::from_secs_f64(self.begun as f64 / rate),
        }
    }
}
