//! Lookup of steered frontends by workers. A frontend is registered before the kernel steers packets to it, so that every
//! worker knows the frontend of a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sheave_model::FrontendAddr;

use crate::counters::FrontendCounters;

/// The steered frontends, with the counters of each worker.
#[derive(Debug, Default)]
pub(crate) struct SteeredFrontends(Mutex<HashMap<FrontendAddr, Arc<[FrontendCounters]>>>);

impl SteeredFrontends {
    /// The frontend's counters by worker; `None` if it is not steered. Takes a lock, so workers cache the result.
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
