//! Takeover counts for scrapes and the status.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, CounterFn};
use sheave_console::http::metrics::families::{TAKEOVER_FAILURES, TAKEOVER_SECONDS};
use sheave_console::views::status::TakeoverView;

/// Takeover counts of one process.
#[derive(Debug, Default)]
pub(super) struct TakeoverCounts {
    /// How long this process took to take over from its predecessor.
    took: OnceLock<Duration>,
    /// Failed takeovers from this process.
    failures: AtomicU64,
}

impl TakeoverCounts {
    /// Records how long the takeover took. Happens at most once.
    pub(super) fn took(&self, time: Duration) {
        metrics::gauge!(TAKEOVER_SECONDS.name).set(time);
        self.took.get_or_init(|| time);
    }

    /// A counter of failures, for scrapes and for the status.
    pub(super) fn failures(self: &Arc<Self>) -> Counter {
        let scraped = metrics::counter!(TAKEOVER_FAILURES.name);
        Counter::from_arc(Arc::new(BothCounters { scraped, counts: Arc::clone(self) }))
    }

    pub(super) fn view(&self) -> TakeoverView {
        TakeoverView {
            seconds: self.took.get().map(Duration::as_secs_f64),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

/// Counter that also counts for the status, since counters of the recorder can only be read by scrapes.
struct BothCounters {
    scraped: Counter,
    counts: Arc<TakeoverCounts>,
}

impl CounterFn for BothCounters {
    fn increment(&self, value: u64) {
        self.scraped.increment(value);
        self.counts.failures.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.scraped.absolute(value);
        self.counts.failures.fetch_max(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_what_scrapes_have() {
        let counts = Arc::<TakeoverCounts>::default();
        assert_eq!(counts.view(), TakeoverView::default());
        counts.failures().increment(1);
        counts.failures().increment(1);
        counts.took(Duration::from_millis(250));
        assert_eq!(counts.view(), TakeoverView { seconds: Some(0.25), failures: 2 });
    }
}
