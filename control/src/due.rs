//! Waiting for a moment that may not come. It must not know for what.

use std::time::Instant;

/// Waits until then; for ever if there is no such moment. Cancel safe.
pub async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
