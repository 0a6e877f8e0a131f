//! Watchers of a gateway while it forwards: open status pages and a Prometheus. They send the same requests as a browser and
//! Prometheus, on the gateway's own host, where the admin server listens.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sheave_test_support::host::Host;
use sheave_test_support::load::Load;
use sheave_test_support::patience::let_pass;

use crate::admin;
use crate::failure::{During, Failure};

/// Interval of scrapes.
const SCRAPE_EVERY: Duration = Duration::from_secs(5);

/// Interval of checks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// Request that a page makes each second besides its stream: the counters of the visible Services.
const TRAFFIC: &str = "/api/traffic?services=default/bench,default/s0,default/s1,default/s2,default/s3";

/// Starts this many pages, and a Prometheus.
pub(super) fn start(gateway: &Host, pages: u32) -> Vec<Load> {
    let scraped = Mutex::new(None);
    let prometheus = Load::start_restless(gateway, 1, move |_| scrape(&scraped));
    let page = |_| {
        let stream = Mutex::new(None);
        Load::start_restless(gateway, 1, move |_| watch(&stream))
    };
    (0..pages).map(page).chain([prometheus]).collect()
}

/// Reads the stream of a page to the event of the next second, and requests counters. Reopens the stream when it ends.
fn watch(stream: &Mutex<Option<TcpStream>>) -> Result<(), Failure> {
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let mut open = stream.take().map_or_else(|| admin::stream("/api/live"), Ok)?;
        let length = open.read(&mut buffer).during("read /api/live")?;
        // A gateway ends each stream after a while, and the browser reopens it.
        *stream = (length > 0).then_some(open);
        if is_traffic(&buffer[..length]) {
            return admin::fetch(TRAFFIC).map(drop);
        }
    }
}

/// Whether the bytes contain the event of each second.
fn is_traffic(bytes: &[u8]) -> bool {
    const NAME: &[u8] = b"event: traffic";
    bytes.windows(NAME.len()).any(|part| part == NAME)
}

/// Scrapes at once, and then at the interval.
fn scrape(scraped: &Mutex<Option<Instant>>) -> Result<(), Failure> {
    let mut scraped = scraped.lock().unwrap_or_else(PoisonError::into_inner);
    if scraped.is_none_or(|last| last.elapsed() >= SCRAPE_EVERY) {
        *scraped = Some(Instant::now());
        admin::fetch("/metrics")?;
    }
    let_pass(LOOK);
    Ok(())
}
