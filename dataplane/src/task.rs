//! A task of a worker that ends with its owner.

use tokio::task::{self, AbortHandle};

/// Aborts its task when dropped.
#[derive(Debug)]
pub(crate) struct Task(AbortHandle);

impl Task {
    /// Starts `future` on the present worker.
    pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) -> Self {
        Self(task::spawn_local(future).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
