//! Steady load: threads on a host that repeat a request until they are stopped, and record failures.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::host::Host;
use super::patience::{eventually, let_pass};

/// Limit of recorded failures per thread; the first ones are the most telling.
const KEPT_FAILURES: usize = 5;

/// Pause of a thread between two requests. Every request leaves a port in TIME_WAIT for a minute on the client and on the
/// gateway. Without a pause, a test of a minute would run out of ports, whatever is in between.
const PAUSE: Duration = Duration::from_millis(4);

/// Running load.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts threads that repeat `request` on the host, with the thread's number as its argument.
    pub fn start<E: Display>(
        host: &Host,
        threads: usize,
        request: impl Fn(usize) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(host, threads, Some(PAUSE), request)
    }

    /// Like [`Load::start`], without pauses: for requests that leave no port in TIME_WAIT.
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

    /// Waits until `more` requests have ended after this call, so that the load has met the present state.
    pub fn wait_for(&self, more: u64) {
        let target = self.done.load(Ordering::SeqCst) + more;
        eventually(&format!("{more} more requests end"), || {
            let done = self.done.load(Ordering::SeqCst);
            if done >= target { Ok(()) } else { Err(format!("{} missing", target - done)) }
        });
    }

    /// Stops the load, and returns the number of requests with the first failures.
    pub fn stop(mut self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::SeqCst);
        let threads = self.threads.drain(..);
        let failures = threads.flat_map(|thread| thread.join().expect("requests do not panic")).collect();
        (self.done.load(Ordering::SeqCst), failures)
    }

    /// Stops the load, and returns the number of requests. Panics if any request failed.
    pub fn expect_no_failure(self) -> u64 {
        let (done, failures) = self.stop();
        assert!(failures.is_empty(), "of {done} requests failed:\n{}", failures.join("\n"));
        done
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
