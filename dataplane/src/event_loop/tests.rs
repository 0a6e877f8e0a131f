//! Tests: a worker's thread ends when its handle is dropped, and a stuck one does not block its owner.

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Wake, Waker};

use std::time::Duration;

use std::sync::mpsc as thread_channel;

use tokio::sync::oneshot;

use super::pool::start_thread;
use super::*;
use crate::worker::WorkerHandle;

fn start() -> WorkerHandle {
    start_thread(WorkerSeed::for_tests(Timeouts::all(Duration::from_secs(1)))).unwrap()
}

/// Waker that blocks the thread that calls it until the channel closes.
struct Trap {
    caught: thread_channel::Sender<()>,
    release: Mutex<thread_channel::Receiver<()>>,
}

impl Wake for Trap {
    fn wake(self: Arc<Self>) {
        self.caught.send(()).unwrap();
        self.release.lock().unwrap().recv().unwrap_err();
    }
}

#[test]
fn a_stuck_worker_does_not_hold_its_owner_and_shows_its_step() {
    let seed = WorkerSeed::for_tests(Timeouts::all(Duration::from_secs(1)));
    let progress = Arc::clone(&seed.shared.progress);
    let worker = start_thread(seed).unwrap();
    let (caught, is_caught) = thread_channel::channel();
    let (release, released) = thread_channel::channel();
    let waker = Waker::from(Arc::new(Trap { caught, release: Mutex::new(released) }));
    let (reply, answer) = oneshot::channel();
    let mut answer = pin!(answer);
    assert_eq!(answer.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    worker.send(Command::Ping(reply));
    // The worker wakes the task that awaits its reply, and is trapped from here on.
    is_caught.recv().unwrap();
    assert!(worker.runs());
    let (turn, step) = progress[0].get();
    assert_eq!((step, progress[0].get()), (Step::Command, (turn, step)));
    drop(worker);
    drop(release);
}

#[tokio::test]
async fn a_worker_that_has_ended_is_told_from_one_that_runs() {
    let worker = start();
    let (reply, answer) = oneshot::channel();
    worker.send(Command::Ping(reply));
    answer.await.unwrap();
    assert!(worker.runs());
    worker.end().await;
}
