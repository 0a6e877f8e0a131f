//! What workers look up when they meet a steered frontend for the first time. A frontend is registered before the kernel steers
//! anything to it, so no connection meets a worker that does not know its frontend.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sheave_model::FrontendAddr;

use crate::counters::FrontendCounters;

/// The steered frontends, with the counters of each worker.
#[derive(Debug, Default)]
pub(crate) struct SteeredFrontends(Mutex<HashMap<FrontendAddr, Vec<FrontendCounters>>>);

impl SteeredFrontends {
    /// The counters of this worker for the frontend; `None` if it is not steered (any more). Takes a lock, so workers keep the
    /// answer.
    pub(crate) fn counters(&self, addr: FrontendAddr, worker: usize) -> Option<FrontendCounters> {
        self.all().get(&addr)?.get(worker).cloned()
    }

    pub(super) fn insert(&self, addr: FrontendAddr, counters: &[FrontendCounters]) {
        self.all().insert(addr, counters.to_vec());
    }

    /// Whether it was there.
    pub(super) fn remove(&self, addr: FrontendAddr) -> bool {
        self.all().remove(&addr).is_some()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<FrontendAddr, Vec<FrontendCounters>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
