//! All workers: asked together, ended together, and restarted after a panic.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Deref;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::worker::context::Settings;
use crate::worker::{Command, WorkerHandle, WorkerSeed};

/// A worker that fails more often than this within [`WINDOW`] is not started again: what makes it panic lasts, and the
/// process shows that it needs a restart.
const RESTARTS: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

/// The running workers.
pub(crate) struct Workers {
    seed: WorkerSeed,
    handles: Vec<WorkerHandle>,
    restarts: u64,
    /// When those of the last minute were.
    recent: VecDeque<Instant>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("handles", &self.handles).finish_non_exhaustive()
    }
}

impl Deref for Workers {
    type Target = [WorkerHandle];

    fn deref(&self) -> &[WorkerHandle] {
        &self.handles
    }
}

impl Workers {
    /// Starts so many, and at least one.
    ///
    /// # Errors
    /// If a thread or its epoll instance cannot be made.
    pub(crate) fn start(count: usize, seed: WorkerSeed) -> io::Result<Self> {
        let handles = (0..count.max(1)).map(|index| start(index, &seed)).collect::<io::Result<_>>()?;
        Ok(Self { seed, handles, restarts: 0, recent: VecDeque::new() })
    }

    /// Whether none has ended. One that is stuck runs, too.
    pub(crate) fn run(&self) -> bool {
        self.handles.iter().all(WorkerHandle::runs)
    }

    /// Restarts workers that have panicked and whose thread is over, so that nothing else writes their counters. Returns which; they
    /// serve nothing yet.
    pub(crate) fn restart_failed(&mut self) -> Vec<usize> {
        let failed: Vec<usize> =
            (0..self.handles.len()).filter(|index| self.handles[*index].is_over()).collect();
        failed.into_iter().filter(|index| self.restart(*index)).collect()
    }

    fn restart(&mut self, index: usize) -> bool {
        let now = Instant::now();
        while self.recent.front().is_some_and(|at| now.duration_since(*at) > WINDOW) {
            self.recent.pop_front();
        }
        if self.recent.len() >= RESTARTS {
            return false;
        }
        self.recent.push_back(now);
        match start(index, &self.seed) {
            Ok(worker) => {
                tracing::error!(
                    bug = true,
                    worker = index,
                    "a worker panicked; its connections were cut, and it was started again"
                );
                self.handles[index] = worker;
                self.restarts += 1;
                true
            }
            Err(error) => {
                tracing::error!(worker = index, %error, "a worker panicked and cannot be started again");
                false
            }
        }
    }

    /// Lets them serve, if they were held.
    pub(crate) fn serve(&mut self) {
        self.seed.held = false;
        self.tell_all(|| Command::Serve);
    }

    /// Lets them go by these settings, and those that are started again.
    pub(crate) fn configure(&mut self, settings: Settings) {
        self.seed.shared.settings = settings;
        self.tell_all(|| Command::Configure(settings));
    }

    /// Sends each a command.
    pub(crate) fn tell_all(&self, command: impl Fn() -> Command) {
        self.handles.iter().for_each(|worker| worker.send(command()));
    }

    /// How often a worker was restarted.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Whether each answers a command within `patience`. They are asked at once; the answer can be awaited anywhere.
    pub(crate) fn all_reply(
        &self,
        ask: fn(oneshot::Sender<()>) -> Command,
        patience: Duration,
    ) -> impl Future<Output = bool> + Send + use<> {
        let replies = self.ask_all(ask);
        async move {
            // One that has ended must not keep the others from finishing: they are waited for all the same.
            let all = async {
                let mut all = true;
                for answer in replies {
                    all &= answer.await.is_ok();
                }
                all
            };
            tokio::time::timeout(patience, all).await.unwrap_or(false)
        }
    }

    /// Asks each, at once. One that has ended does not answer.
    pub(crate) fn ask_all<T>(&self, ask: fn(oneshot::Sender<T>) -> Command) -> Vec<oneshot::Receiver<T>> {
        let ask = |worker: &WorkerHandle| {
            let (reply, answer) = oneshot::channel();
            worker.send(ask(reply));
            answer
        };
        self.handles.iter().map(ask).collect()
    }

    /// Ends all, cutting what they serve. One that is stuck is left behind after `patience`.
    pub(crate) async fn end(self, patience: Duration) {
        let end = async {
            for worker in self.handles {
                worker.end().await;
            }
        };
        if tokio::time::timeout(patience, end).await.is_err() {
            tracing::warn!("a worker is stuck and is left behind");
        }
    }
}

fn start(index: usize, seed: &WorkerSeed) -> io::Result<WorkerHandle> {
    // The standard library's hasher keys are the system's random numbers.
    let random = RandomState::new().hash_one(index);
    WorkerHandle::start(WorkerSeed { index, random, ..seed.clone() })
}
