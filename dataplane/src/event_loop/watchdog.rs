//! Watchdog: a thread that detects a worker whose turn never ends, because of a bug or a call that does not return. Such a worker serves
//! nothing any more, while the kernel continues to give it new connections.

use std::io;
use std::sync::Weak;
use std::thread;
use std::time::{Duration, Instant};

use crate::worker::steps::{Step, WorkerProgress};

/// Time after which a turn counts as stuck. A turn takes some milliseconds, and seconds at worst.
const STUCK: Duration = Duration::from_secs(20);
/// Interval of the check.
const EVERY: Duration = Duration::from_secs(1);

/// A worker whose turn does not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckWorker {
    /// Index of the worker.
    pub worker: usize,
    /// Name of the step that it is in.
    pub step: &'static str,
    /// Minimum time that it has been in this turn.
    pub time: Duration,
}

/// Starts a thread that calls `stuck` once, with the first stuck worker it finds. The thread ends with the workers.
///
/// # Errors
/// Returns an error if the thread cannot be created.
pub(crate) fn start(
    workers: Weak<[WorkerProgress]>,
    stuck: impl FnOnce(StuckWorker) + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name("sheave-watchdog".to_owned()).spawn(move || {
        let mut watch = TurnWatch::new(Instant::now());
        loop {
            thread::park_timeout(EVERY);
            let Some(workers) = workers.upgrade() else { return };
            let progress = workers.iter().map(WorkerProgress::get);
            if let Some(found) = watch.look(Instant::now(), progress) {
                return stuck(found);
            }
        }
    })?;
    Ok(())
}

/// Since when each worker has been in its turn.
#[derive(Debug)]
struct TurnWatch {
    turns: Vec<(u64, Instant)>,
    looked: Instant,
}

impl TurnWatch {
    fn new(now: Instant) -> Self {
        Self { turns: Vec::new(), looked: now }
    }

    fn look(&mut self, now: Instant, progress: impl Iterator<Item = (u64, Step)>) -> Option<StuckWorker> {
        // If this thread got no processor or was stopped, so were the workers.
        let stood_still = now.saturating_duration_since(self.looked) > 3 * EVERY;
        self.looked = now;
        if stood_still {
            self.turns.clear();
        }
        for (worker, (turn, step)) in progress.enumerate() {
            let Some(seen) = self.turns.get_mut(worker) else {
                self.turns.push((turn, now));
                continue;
            };
            if step == Step::Waiting || seen.0 != turn {
                *seen = (turn, now);
            }
            let time = now.saturating_duration_since(seen.1);
            if time >= STUCK {
                return Some(StuckWorker { worker, step: step.name(), time });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once a second; returns the first finding, and when it was made.
    fn look_at(
        seconds: std::ops::RangeInclusive<u64>,
        progress: impl Fn(u64) -> [(u64, Step); 2],
    ) -> Option<(u64, StuckWorker)> {
        let start = Instant::now();
        let mut watch = TurnWatch::new(start);
        seconds.into_iter().find_map(|second| {
            let found = watch.look(start + Duration::from_secs(second), progress(second).into_iter())?;
            Some((second, found))
        })
    }

    #[test]
    fn a_worker_whose_turn_does_not_end_is_found_and_named_with_its_step() {
        let (second, found) = look_at(1..=60, |second| match second {
            0..10 => [(second, Step::Relay), (second, Step::Relay)],
            // Stuck regardless of the step: the worker may loop through several.
            _ if second % 2 == 0 => [(second, Step::Relay), (10, Step::Close)],
            _ => [(second, Step::Relay), (10, Step::Datagrams)],
        })
        .unwrap();
        assert_eq!((second, found.worker, found.step), (30, 1, "closing a frontend"));
        assert_eq!(found.time, STUCK);
    }

    #[test]
    fn workers_that_wait_or_are_busy_are_not_stuck() {
        assert_eq!(look_at(1..=600, |second| [(1, Step::Waiting), (second, Step::Relay)]), None);
    }

    #[test]
    fn a_process_that_was_stopped_is_not_stuck() {
        let start = Instant::now();
        let mut watch = TurnWatch::new(start);
        let mut look =
            |second| watch.look(start + Duration::from_secs(second), [(1, Step::Relay)].into_iter());
        assert_eq!(look(1), None);
        assert_eq!(look(100), None);
        assert!((101..120).all(|second| look(second).is_none()));
        assert!(look(120).is_some());
    }
}
