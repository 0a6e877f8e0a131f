//! Tasks of a worker. One that panics leaves what it had in hand in no known state, so the worker is notified and ends.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::thread;

use tokio::sync::Notify;
use tokio::task::{self, AbortHandle};

thread_local! {
    /// Notified when a task of this thread panics.
    static PANICKED: Rc<Notify> = Rc::default();
}

/// Ends its task when dropped, and what that holds at once: a socket is closed then, and not when the worker finds time for it.
/// Only a task that ends itself so goes on to where it waits next.
pub(crate) struct Task {
    future: Rc<RefCell<Option<Work>>>,
    handle: AbortHandle,
}

type Work = Pin<Box<dyn Future<Output = ()>>>;

impl Task {
    /// Starts `future` on the present worker.
    pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) -> Self {
        let future: Work = Box::pin(future);
        let future = Rc::new(RefCell::new(Some(future)));
        let polled = Rc::clone(&future);
        let poll = poll_fn(move |cx| match polled.borrow_mut().as_mut() {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Ready(()),
        });
        Self { future, handle: spawn(poll) }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.handle).finish()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // It is borrowed while it is polled.
        let future = self.future.try_borrow_mut().ok().and_then(|mut future| future.take());
        drop(future);
        self.handle.abort();
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

/// Dropped by an unwinding task: the runtime catches the panic, and nothing else reports it.
struct Alarm;

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            PANICKED.with(|panicked| panicked.notify_one());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn what_a_task_holds_is_dropped_with_it_even_if_it_drops_itself() {
        let runtime = Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let held = Rc::new(());
            let holds = Rc::clone(&held);
            let task = Task::spawn(async move {
                std::future::pending::<()>().await;
                drop(holds);
            });
            task::yield_now().await;
            drop(task);
            assert_eq!(Rc::strong_count(&held), 1, "at once");

            let (own, went_on) = (Rc::new(RefCell::new(None)), Rc::new(Cell::new(false)));
            let (holds, slot, goes_on) = (Rc::clone(&held), Rc::clone(&own), Rc::clone(&went_on));
            *own.borrow_mut() = Some(Task::spawn(async move {
                slot.take();
                goes_on.set(true);
                std::future::pending::<()>().await;
                drop(holds);
            }));
            task::yield_now().await;
            task::yield_now().await;
            assert_eq!((went_on.get(), Rc::strong_count(&held)), (true, 1));
        });
    }
}
