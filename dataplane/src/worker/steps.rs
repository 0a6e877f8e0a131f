//! Steps of a worker: what it is doing, and for which frontend. A long step delays everything else on the worker and is logged; a
//! turn that never ends is detected by the [`watchdog`](crate::event_loop::watchdog).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use sheave_model::FrontendAddr;

use crate::log_throttle::LogThrottle;

/// Duration from which a step is logged.
const SLOW: Duration = Duration::from_millis(50);
/// Interval between two log lines of one worker.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A part of a worker's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    /// Waits for events, or has ended.
    Waiting,
    Event,
    Deadlines,
    Accept,
    Connect,
    Relay,
    Datagrams,
    Watch,
    Open,
    Close,
    TakeOver,
    Command,
}

impl Step {
    const ALL: [Self; 12] = [
        Self::Waiting,
        Self::Event,
        Self::Deadlines,
        Self::Accept,
        Self::Connect,
        Self::Relay,
        Self::Datagrams,
        Self::Watch,
        Self::Open,
        Self::Close,
        Self::TakeOver,
        Self::Command,
    ];

    /// Name of the step in logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting for events",
            Self::Event => "looking at an event",
            Self::Deadlines => "looking at what is due",
            Self::Accept => "accepting a connection",
            Self::Connect => "connecting an endpoint",
            Self::Relay => "relaying a connection",
            Self::Datagrams => "forwarding datagrams",
            Self::Watch => "collecting the traffic of clients",
            Self::Open => "opening a frontend",
            Self::Close => "closing a frontend",
            Self::TakeOver => "a take-over",
            Self::Command => "a command",
        }
    }
}

/// Progress of a worker as other threads see it. It has its own cache line, since the worker writes it at every step.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerProgress(AtomicU64);

impl WorkerProgress {
    /// Creates the progress of `workers` workers, by index.
    pub(crate) fn of_workers(workers: usize) -> Arc<[Self]> {
        (0..workers).map(|_| Self::default()).collect()
    }

    /// The number of the turn, and the current step.
    pub(crate) fn get(&self) -> (u64, Step) {
        let progress = self.0.load(Ordering::Relaxed);
        let [step, ..] = progress.to_le_bytes();
        (progress >> 8, Step::ALL.get(usize::from(step)).copied().unwrap_or(Step::Waiting))
    }

    fn set(&self, turn: u64, step: Step) {
        self.0.store(turn << 8 | step as u64, Ordering::Relaxed);
    }
}

/// Step tracker of one worker.
#[derive(Debug)]
pub(crate) struct Steps {
    worker: usize,
    progress: Arc<[WorkerProgress]>,
    turn: Cell<u64>,
    current: Cell<(Step, Option<FrontendAddr>)>,
    /// When the current step began, by the coarse clock.
    since: Cell<Duration>,
    log_throttle: LogThrottle,
}

impl Steps {
    /// Creates the tracker of the worker with this index, which waits.
    pub(crate) fn new(worker: usize, progress: Arc<[WorkerProgress]>) -> Self {
        Self {
            worker,
            progress,
            turn: Cell::new(0),
            current: Cell::new((Step::Waiting, None)),
            since: Cell::new(coarse_now()),
            log_throttle: LogThrottle::new(LOG_EVERY),
        }
    }

    /// Begins a step, for a frontend if it concerns one, and ends the previous step.
    pub(crate) fn begin(&self, step: Step, frontend: Option<FrontendAddr>) {
        let now = coarse_now();
        let (last, of) = self.current.replace((step, frontend));
        let took = now.saturating_sub(self.since.replace(now));
        if took >= SLOW && last != Step::Waiting {
            self.log(last, of, took);
        }
        if step == Step::Waiting {
            self.turn.set(self.turn.get() + 1);
        }
        if let Some(progress) = self.progress.get(self.worker) {
            progress.set(self.turn.get(), step);
        }
    }

    #[cold]
    fn log(&self, step: Step, frontend: Option<FrontendAddr>, took: Duration) {
        if self.log_throttle.admits(Instant::now()) {
            let frontend = frontend.map(tracing::field::display);
            tracing::warn!(
                worker = self.worker,
                step = step.name(),
                frontend,
                ?took,
                "a step took long, and everything else on this worker waited; with it alone the machine may be short of processors"
            );
        }
    }
}

/// Current time of the kernel's coarse clock, which takes a few nanoseconds to read and is exact to a tick of some milliseconds
/// (clock_gettime(2)).
fn coarse_now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_seen_by_others() {
        let all = WorkerProgress::of_workers(2);
        let (steps, progress) = (Steps::new(1, Arc::clone(&all)), &all[1]);
        for (code, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, code);
            steps.begin(step, None);
            assert_eq!(progress.get().1, step);
        }
        let (turn, _) = progress.get();
        steps.begin(Step::Relay, None);
        assert_eq!(progress.get(), (turn, Step::Relay));
        steps.begin(Step::Waiting, None);
        assert_eq!(progress.get(), (turn + 1, Step::Waiting));
    }
}
