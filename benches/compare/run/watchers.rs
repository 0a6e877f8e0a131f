//! Watchers of a gateway while it forwards: open status pages and a Prometheus. They send the same requests as a browser and
//! Prometheus, on the gateway's own host, where the admin server listens.

use std::io::{ErrorKind, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::pause;
use crate::admin;
use crate::failure::Failure;
use crate::topology::Host;

/// Interval of scrapes.
const SCRAPE_EVERY: Duration = Duration::from_secs(5);

/// Interval of checks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// Request that a page makes each second besides its stream: the counters of the visible Services.
const TRAFFIC: &str = "/api/traffic?services=default/bench,default/s0,default/s1,default/s2,default/s3";

/// Threads that watch, which end when dropped.
#[derive(Debug)]
pub(super) struct Watchers {
    over: Arc<AtomicBool>,
    seen: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<Result<(), Failure>>>,
}

impl Watchers {
    /// Starts this many pages, and a Prometheus.
    pub(super) fn start(gateway: &Host, pages: u32) -> Result<Self, Failure> {
        let mut watchers = Self { over: Arc::default(), seen: Vec::new(), threads: Vec::new() };
        for _ in 0..pages {
            watchers.spawn(gateway, watch)?;
        }
        watchers.spawn(gateway, scrape)?;
        Ok(watchers)
    }

    fn spawn(
        &mut self,
        gateway: &Host,
        body: fn(&AtomicBool, &AtomicU64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (over, seen) = (Arc::clone(&self.over), Arc::<AtomicU64>::default());
        self.seen.push(Arc::clone(&seen));
        self.threads.push(gateway.spawn(move || body(&over, &seen))?);
        Ok(())
    }

    /// Ends all watchers. Fails if one of them has seen nothing, since the run was then not watched.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| Failure::ThreadGone("watcher"))??;
        }
        if self.seen.iter().any(|seen| seen.load(Ordering::Relaxed) == 0) {
            return Err(Failure::program("sheave", "a status page or a scrape got no answer"));
        }
        Ok(())
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic message is already on stderr.
            drop(thread.join());
        }
    }
}

/// Reads the stream of a page, reopens it when it ends, and requests counters with each event.
fn watch(over: &AtomicBool, seen: &AtomicU64) -> Result<(), Failure> {
    let mut buffer = vec![0; 64 << 10];
    while !over.load(Ordering::Relaxed) {
        let mut stream = admin::stream("/api/live", LOOK)?;
        while !over.load(Ordering::Relaxed) {
            match stream.read(&mut buffer) {
                // A gateway ends each stream after a while, and the browser reopens it.
                Ok(0) => break,
                Ok(length) if is_traffic(&buffer[..length]) => {
                    admin::fetch(TRAFFIC)?;
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(Failure::Io { what: "read /api/live".to_owned(), source: error }),
            }
        }
    }
    Ok(())
}

/// Whether the bytes contain the event of each second.
fn is_traffic(bytes: &[u8]) -> bool {
    const NAME: &[u8] = b"event: traffic";
    bytes.windows(NAME.len()).any(|part| part == NAME)
}

/// Scrapes at once, and then at the interval.
fn scrape(over: &AtomicBool, seen: &AtomicU64) -> Result<(), Failure> {
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            admin::fetch("/metrics")?;
            seen.fetch_add(1, Ordering::Relaxed);
            next += SCRAPE_EVERY;
        }
        pause(LOOK);
    }
    Ok(())
}
