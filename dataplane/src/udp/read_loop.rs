//! How a task reads a socket: woken by the reactor, batch after batch while there is more, but only so many at a time that the
//! worker's other tasks do not wait.

use std::io;
use std::time::Duration;

use tokio::{task, time};

use super::sockets::{READABLE, Socket};
use crate::sys::Errno;
use crate::sys::mmsg::BATCH;

/// Batches before the other tasks of the worker get their turn: 128 datagrams, or as many bundles.
const BATCHES_PER_POLL: usize = 4;

/// Batches that are still read off a socket that is about to close: more than its receive buffer holds by default.
const LAST_BATCHES: usize = 64;

/// Pause after an error that tells nothing about a peer (the kernel is out of memory): trying at once would only spin.
const PAUSE: Duration = Duration::from_millis(10);

/// What one batch says about the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Progress {
    /// There may be more.
    More,
    /// It is empty now.
    Drained,
    /// It cannot be read for the moment.
    Failed,
}

impl Progress {
    /// A batch of `count` messages. `recvmmsg` stops short only when the queue is empty, so the read that would say so
    /// again is saved. (An ICMP error after the first message stops it too; the next call of any kind reports that.)
    pub(super) fn of_count(count: usize) -> Self {
        if count == BATCH { Self::More } else { Self::Drained }
    }

    /// No batch.
    pub(super) fn of_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::Drained,
            io::ErrorKind::Interrupted => Self::More,
            // A router on the way has a smaller MTU. The kernel remembers it; nobody is to blame.
            _ if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => Self::More,
            _ => Self::Failed,
        }
    }
}

/// Calls `batch` whenever the socket has something, for ever. Ends only when the worker's reactor is gone.
pub(super) async fn run(socket: &Socket, mut batch: impl FnMut() -> Progress) {
    while let Ok(mut guard) = socket.ready(READABLE).await {
        match (0..BATCHES_PER_POLL).map(|_| batch()).find(|progress| *progress != Progress::More) {
            // The reactor tells of the next arrival: it runs on this thread, so none fell between batch and here.
            Some(Progress::Drained) => guard.clear_ready(),
            Some(Progress::Failed) => time::sleep(PAUSE).await,
            Some(Progress::More) | None => task::yield_now().await,
        }
    }
}

/// Calls `batch` while a socket that is about to close still has something.
pub(super) fn drain(mut batch: impl FnMut() -> Progress) {
    for _ in 0..LAST_BATCHES {
        if batch() != Progress::More {
            return;
        }
    }
}
