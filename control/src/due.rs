//! Waiting for a moment that may not come. It must not know for what.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// How long it is until then by the wall clock; nothing if that has been.
pub fn wait(due: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default()
}

/// Waits until then; for ever if there is no such moment. Cancel safe.
pub async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
