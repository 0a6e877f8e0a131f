//! What workers tell the control loop of connections and flows that were refused: of each frontend the first since it last looked.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use tokio::sync::Notify;

use crate::counters::{FrontendUse, ShedReason};
use crate::sync::Mutex;
use sheave_model::FrontendAddr;

/// The frontends that were refused something of late.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    addrs: Mutex<BTreeSet<FrontendAddr>>,
    changed: Notify,
}

impl Refusals {
    /// A frontend was refused a connection, or flow. Locks only if the control loop has looked since the last one.
    pub(crate) fn count(&self, addr: FrontendAddr, usage: &FrontendUse, reason: ShedReason) {
        usage.add_shed(reason, 1);
        if usage.set_noticed() {
            self.addrs.lock().unwrap_or_else(PoisonError::into_inner).insert(addr);
            self.changed.notify_one();
        }
    }

    /// Waits until a frontend is refused something that was not since it was last [taken](Self::take). Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Those that were refused something since the last call.
    pub(crate) fn take(&self) -> BTreeSet<FrontendAddr> {
        std::mem::take(&mut *self.addrs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wants to know of the next refusal of a frontend.
    pub(crate) fn watch(&self, usage: &FrontendUse) {
        usage.clear_noticed();
    }
}
