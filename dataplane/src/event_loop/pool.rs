//! Worker pool: sends commands to all workers, restarts those that panicked, and ends them together.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Deref;
use std::sync::{Arc, mpsc as thread_channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::worker::context::Settings;
use crate::worker::{Command, WorkerHandle};

use super::{EventLoop, WorkerSeed};

/// Maximum number of restarts within [`WINDOW`]. Beyond it a failed worker stays down: the cause of the panic persists, and the
/// process reports that it needs a restart.
const RESTARTS: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

/// The running workers.
pub(crate) struct Workers {
    seed: WorkerSeed,
    handles: Vec<WorkerHandle>,
    restarts: u64,
    /// When the restarts of the last [`WINDOW`] took place.
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
    /// Starts `count` workers, and at least one.
    ///
    /// # Errors
    /// Returns an error if a thread or its epoll instance cannot be created.
    pub(crate) fn start(count: usize, seed: WorkerSeed) -> io::Result<Self> {
        let handles = (0..count.max(1)).map(|index| start(index, &seed)).collect::<io::Result<_>>()?;
        Ok(Self { seed, handles, restarts: 0, recent: VecDeque::new() })
    }

    /// Whether no worker has ended. A stuck worker counts as running.
    pub(crate) fn run(&self) -> bool {
        self.handles.iter().all(WorkerHandle::runs)
    }

    /// Restarts workers that have panicked and whose thread has ended, so that no other thread writes their counters. Returns the
    /// indices of those restarted, which serve nothing yet.
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

    /// Lets the workers serve, if they were held.
    pub(crate) fn serve(&mut self) {
        self.seed.held = false;
        self.tell_all(|| Command::Serve);
    }

    /// Applies these settings to the running workers, and to those restarted later.
    pub(crate) fn configure(&mut self, settings: Settings) {
        self.seed.shared.settings = settings;
        self.tell_all(|| Command::Configure(settings));
    }

    /// Sends a command to every worker.
    pub(crate) fn tell_all(&self, command: impl Fn() -> Command) {
        self.handles.iter().for_each(|worker| worker.send(command()));
    }

    /// How often a worker was restarted.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Whether every worker replies to a command within `patience`. All are asked at once; the future can be awaited on any thread.
    pub(crate) fn all_reply(
        &self,
        ask: fn(oneshot::Sender<()>) -> Command,
        patience: Duration,
    ) -> impl Future<Output = bool> + Send + use<> {
        let replies = self.ask_all(ask);
        async move {
            // A worker that has ended fails the result, but the replies of the others are still awaited.
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

    /// Sends every worker a command with a reply channel. The channel of a worker that has ended closes without a reply.
    pub(crate) fn ask_all<T>(&self, ask: fn(oneshot::Sender<T>) -> Command) -> Vec<oneshot::Receiver<T>> {
        let ask = |worker: &WorkerHandle| {
            let (reply, answer) = oneshot::channel();
            worker.send(ask(reply));
            answer
        };
        self.handles.iter().map(ask).collect()
    }

    /// Ends all workers, which cuts their connections and flows. A stuck worker is abandoned after `patience`.
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

/// Starts the worker `index` with a random number of its own.
fn start(index: usize, seed: &WorkerSeed) -> io::Result<WorkerHandle> {
    // The standard library seeds its hasher keys from the system's random numbers.
    let random = RandomState::new().hash_one(index);
    start_thread(WorkerSeed { index, random, ..seed.clone() })
}

/// Starts a worker's thread.
///
/// # Errors
/// Returns an error if the thread or its epoll instance cannot be created.
pub(crate) fn start_thread(seed: WorkerSeed) -> io::Result<WorkerHandle> {
    let (commands, inbox) = mpsc::unbounded_channel();
    let (started, outcome) = thread_channel::channel();
    let (alive, over) = oneshot::channel();
    let (index, ports) = (seed.index, Arc::clone(&seed.shared.ports));
    thread::Builder::new().name(format!("sheave-w{index}")).spawn(move || {
        // Declared before the loop, so that it is dropped after it.
        let _alive = alive;
        match EventLoop::new(seed, inbox) {
            Ok(event_loop) => {
                started.send(Ok(())).ok();
                if let Err(error) = event_loop.run() {
                    tracing::error!(worker = index, %error, "a worker gets no more events");
                }
            }
            Err(error) => drop(started.send(Err(error))),
        }
    })?;
    outcome.recv().map_err(io::Error::other)??;
    Ok(WorkerHandle::new(commands, ports, index, over))
}
