//! Takeover counts for scrapes and the status.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sheave_console::views::status::TakeoverView;

/// Takeover counts of one process.
#[derive(Debug, Default)]
pub(super) struct TakeoverCounts {
    /// How long this process took to take over from its predecessor.
    pub(super) took: OnceLock<Duration>,
    /// Failed takeovers from this process.
    pub(super) failures: Arc<AtomicU64>,
}

impl TakeoverCounts {
    pub(super) fn view(&self) -> TakeoverView {
        TakeoverView {
            seconds: self.took.get().map(Duration::as_secs_f64),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}
