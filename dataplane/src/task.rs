//! Tasks of a worker. One that panics leaves what it had in hand in no known state, so the worker ends, which it hears here.

use std::rc::Rc;
use std::thread;

use tokio::sync::Notify;
use tokio::task::{self, AbortHandle};

thread_local! {
    /// Notified when a task of this thread panics.
    static PANICKED: Rc<Notify> = Rc::default();
}

/// Aborts its task when dropped.
#[derive(Debug)]
pub(crate) struct Task(AbortHandle);

impl Task {
    /// Starts `future` on the present worker.
    pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn(future))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts `future` on the present worker, where it lives until it is done or the worker ends.
pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) -> AbortHandle {
    let watched = async move {
        let _alarm = Alarm;
        future.await;
    };
    task::spawn_local(watched).abort_handle()
}

/// Waits until a task of this thread has panicked.
pub(crate) async fn panicked() {
    let panicked = PANICKED.with(Rc::clone);
    panicked.notified().await;
}

/// Dropped by an unwinding task: the runtime catches the panic behind it, and nobody else would hear of it.
struct Alarm;

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            PANICKED.with(|panicked| panicked.notify_one());
        }
    }
}
