//! What workers look up when they meet a steered frontend for the first time. A frontend is registered before the kernel steers
//! anything to it, so no connection meets a worker that does not know its frontend.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sheave_model::FrontendAddr;

use crate::counters::FrontendCounters;

/// The steered frontends, with the counters of each worker.
#[derive(Debug, Default)]
pub(crate) struct SteeredFrontends(Mutex<HashMap<FrontendAddr, Arc<[FrontendCounters]>>>);

impl SteeredFrontends {
    /// The counters of each worker for the frontend; `None` if it is not steered (any more). Takes a lock, so workers keep the
    /// answer.
    pub(crate) fn counters(&self, addr: FrontendAddr) -> Option<Arc<[FrontendCounters]>> {
        self.all().get(&addr).cloned()
    }

    pub(crate) fn insert(&self, addr: FrontendAddr, counters: &Arc<[FrontendCounters]>) {
        self.all().insert(addr, Arc::clone(counters));
    }

    pub(super) fn remove(&self, addr: FrontendAddr) {
        self.all().remove(&addr);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<FrontendAddr, Arc<[FrontendCounters]>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
