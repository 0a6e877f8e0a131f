//! What workers ask when they meet a steered frontend for the first time. A frontend is in it before the kernel steers
//! anything there, so no connection meets a worker that does not know its frontend.
//!
//! It must not know how packets are steered.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sheave_model::FrontendAddr;

use crate::counters::FrontendCounters;

/// The steered frontends, with the counters of each worker.
#[derive(Debug, Default)]
pub(crate) struct Register(Mutex<HashMap<FrontendAddr, Vec<FrontendCounters>>>);

impl Register {
    /// Where this worker counts for the frontend; `None` if it is not steered (any more). Locks: the answer is kept.
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
