//! Notifications of refusals from workers to the control loop: for each frontend the first one since the last check.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use tokio::sync::Notify;

use crate::counters::{FrontendUse, ShedReason};
use crate::sync::Mutex;
use sheave_model::FrontendAddr;

/// Frontends with recent refusals.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    addrs: Mutex<BTreeSet<FrontendAddr>>,
    changed: Notify,
}

impl Refusals {
    /// Counts the refusal of a connection or flow. Locks only if the control loop has checked the frontend since its last refusal.
    pub(crate) fn count(&self, addr: FrontendAddr, usage: &FrontendUse, reason: ShedReason) {
        usage.add_shed(reason, 1);
        if usage.set_noticed() {
            self.addrs.lock().unwrap_or_else(PoisonError::into_inner).insert(addr);
            self.changed.notify_one();
        }
    }

    /// Waits for a frontend's first refusal since the last [`take`](Self::take). Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the frontends with refusals since the last call.
    pub(crate) fn take(&self) -> BTreeSet<FrontendAddr> {
        std::mem::take(&mut *self.addrs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Requests a notification of the next refusal of a frontend.
    pub(crate) fn watch(&self, usage: &FrontendUse) {
        usage.clear_noticed();
    }
}
