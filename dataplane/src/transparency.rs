//! Whether this process may speak from its clients' addresses, as every worker needs to know. It must not know what that
//! takes.

use std::sync::atomic::{AtomicBool, Ordering};

/// Off until someone has seen to it that answers find their way back.
#[derive(Debug, Default)]
pub struct Transparency(AtomicBool);

impl Transparency {
    /// Whether sockets may be bound to clients' addresses.
    pub fn available(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Says so to all who share it.
    pub fn set(&self, available: bool) {
        self.0.store(available, Ordering::Relaxed);
    }
}
