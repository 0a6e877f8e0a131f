//! When the units of a load begin: each when another one ends (a closed loop), or at fixed times whatever has ended (an open
//! loop). In a closed loop a stall of the subject stops the questions, and what they would have met is not measured. In an open
//! loop they go on, and each latency counts from the time at which its unit was due.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::{PATIENCE, wait};
use crate::failure::{During, Failure};

/// The token of the timer's events; those of connections are below.
const TIMER: Token = Token(usize::MAX);

/// How a load begins its units.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Another one when one has ended.
    Closed,
    /// At fixed times; one that finds all connections busy waits for the first that is free.
    Open {
        /// Units in a second.
        rate: f64,
    },
}

impl Pace {
    /// The rate, where it is fixed.
    pub(crate) fn rate(self) -> Option<f64> {
        match self {
            Self::Closed => None,
            Self::Open { rate } => Some(rate),
        }
    }

    /// The part of it for one thread that has `part` of `whole` connections.
    pub(crate) fn share(self, part: usize, whole: usize) -> Self {
        match self {
            Self::Closed => Self::Closed,
            Self::Open { rate } => Self::Open { rate: rate * part as f64 / whole.max(1) as f64 },
        }
    }
}

/// The units of one thread.
pub(super) struct Arrivals {
    pace: Pace,
    start: Instant,
    end: Instant,
    begun: u64,
    /// `epoll_wait(2)` counts in milliseconds, so the times of an open loop need a timer.
    timer: TimerFd,
}

impl Arrivals {
    /// Begins now, for `duration`; `poll` gets the timer's events.
    pub(super) fn start(pace: Pace, duration: Duration, poll: &Poll) -> Result<Self, Failure> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).during("make a timer")?;
        let number = timer.as_fd().as_raw_fd();
        let registry = poll.registry();
        registry.register(&mut SourceFd(&number), TIMER, Interest::READABLE).during("poll a timer")?;
        let start = Instant::now();
        Ok(Self { pace, start, end: start + duration, begun: 0, timer })
    }

    /// The time from which the next unit counts, if it may begin now.
    pub(super) fn next(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let from = self.due(now);
        if from >= self.end || from > now {
            return None;
        }
        self.begun += 1;
        Some(from)
    }

    /// Whether all units have begun.
    pub(super) fn are_over(&self) -> bool {
        self.due(Instant::now()) >= self.end
    }

    /// How long all this has taken until now.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Fails when what has begun should have ended long ago.
    pub(super) fn check_hung(&self, what: &'static str) -> Result<(), Failure> {
        super::not_after(self.end + PATIENCE, what)
    }

    /// Waits for events, and for the next unit if there is a connection for it.
    pub(super) fn wait(&self, poll: &mut Poll, events: &mut Events, free: bool) -> Result<(), Failure> {
        let due = self.due(Instant::now());
        let timed = free && self.pace.rate().is_some() && due < self.end;
        let Some(rest) = due.checked_duration_since(Instant::now()).filter(|rest| timed && !rest.is_zero())
        else {
            return wait(poll, events, if timed { Duration::ZERO } else { PATIENCE });
        };
        let expiration = Expiration::OneShot(TimeSpec::from_duration(rest));
        self.timer.set(expiration, TimerSetTimeFlags::empty()).during("set a timer")?;
        wait(poll, events, PATIENCE)
    }

    fn due(&self, now: Instant) -> Instant {
        match self.pace {
            Pace::Closed => now,
            Pace::Open { rate } => self.start + Duration::from_secs_f64(self.begun as f64 / rate),
        }
    }
}
