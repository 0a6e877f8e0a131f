//! Steady load: threads on a host that repeat one request until told to stop, and remember what failed.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::host::Host;
use super::patience::{eventually, let_pass};

/// Failures kept per thread; the first ones tell the story.
const KEPT_FAILURES: usize = 5;

/// Pause of a thread between two requests. Every request leaves a port in TIME_WAIT for a minute on the client and on the
/// gateway; without a pause a minute's test would run out of them, whatever is in between.
const PAUSE: Duration = Duration::from_millis(4);

/// Running load.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts threads that repeat `request` on the host. The request gets the thread's number.
    pub fn start<E: Display>(
        host: &Host,
        threads: usize,
        request: impl Fn(usize) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(host, threads, Some(PAUSE), request)
    }

    /// As [`Load::start`], without a pause between two requests of a thread: for requests that leave no port in
    /// TIME_WAIT.
    pub fn start_restless<E: Display>(
        host: &Host,
        threads: usize,
        request: impl Fn(usize) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(host, threads, None, request)
    }

    fn start_with<E: Display>(
        host: &Host,
        threads: usize,
        pause: Option<Duration>,
        request: impl Fn(usize) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let request = Arc::new(request);
        let start = |number| {
            let (stop, done, request) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&request));
            host.spawn(move || {
                let mut failures = Vec::new();
                while !stop.load(Ordering::SeqCst) && failures.len() < KEPT_FAILURES {
                    if let Err(error) = request(number) {
                        failures.push(format!("request {}: {error}", done.load(Ordering::SeqCst)));
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                    pause.into_iter().for_each(let_pass);
                }
                failures
            })
        };
        let threads = (0..threads).map(start).collect();
        Self { stop, done, threads }
    }

    /// Waits until `more` requests came to their end after this call: the load has met the present state.
    pub fn wait_for(&self, more: u64) {
        let target = self.done.load(Ordering::SeqCst) + more;
        eventually(&format!("{more} more requests end"), || {
            let done = self.done.load(Ordering::SeqCst);
            if done >= target { Ok(()) } else { Err(format!("{} missing", target - done)) }
        });
    }

    /// Stops; panics if any request failed. Returns how many there were.
    pub fn expect_no_failure(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        let failures: Vec<String> = self
            .threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("requests do not panic"))
            .collect();
        let done = self.done.load(Ordering::SeqCst);
        assert!(failures.is_empty(), "of {done} requests failed:\n{}", failures.join("\n"));
        done
    }
}
