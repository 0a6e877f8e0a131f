//! Carries out what the controller wants to be true of the objects of one API server (Services and AddressPools, or
//! MultiClusterServices): one write at a time per object, several objects side by side. It must not know why something is
//! wanted.

mod backoff;
pub mod next_step;
mod patch;
mod queue;
mod request;
mod target;
mod write_notice;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use self::queue::{Now, WriteJob, WriteQueue};
use self::request::Sender;
use self::target::{WriteSubject, WriteTarget};
pub use self::write_notice::WriteNotice;
use crate::api::address_pool::{AddressPool, AddressPoolStatus};
use crate::api::store::ServiceKey;
use crate::controller::api_writer::answer::Answer;
use crate::controller::desired_status::Desired;
use crate::controller::ownership::Ownership;
use crate::controller::service_object::ServiceObject;
use crate::sources::connection::Connection;

enum Command {
    Desire(WriteTarget, WriteSubject),
    Forget(WriteTarget),
}

/// Writes until it is dropped; a write that is under way then may still be done.
pub struct StatusWriter {
    commands: mpsc::UnboundedSender<Command>,
    troubles: mpsc::UnboundedReceiver<WriteNotice>,
    task: AbortHandle,
}

impl StatusWriter {
    /// Must be called inside a Tokio runtime. `leadership` is asked before each write for how long may still be written, and no
    /// write takes longer. As soon as it says nothing, everything that was desired so far is dropped.
    pub fn start(
        connection: &Connection,
        options: Ownership,
        leadership: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (told, troubles) = mpsc::unbounded_channel();
        let work =
            work(Sender::new(connection, &options), WriteQueue::new(options), leadership, received, told);
        let task = tokio::spawn(work).abort_handle();
        Self { commands, troubles, task }
    }

    /// What is to be true of this Service or MultiClusterService, decided by `object`, which is the newest there is. To be
    /// called whenever either changes, and as often as one likes: nothing is written that the object says already, and what
    /// only changes the words of its conditions is written at most once in 10 s.
    pub fn desire(&mut self, key: &ServiceKey, object: impl Into<ServiceObject>, desired: Desired) {
        let subject = WriteSubject::Service(object.into(), Arc::new(desired));
        self.command(Command::Desire(WriteTarget::Service(key.clone()), subject));
    }

    /// The object has gone.
    pub fn forget(&mut self, key: &ServiceKey) {
        self.command(Command::Forget(WriteTarget::Service(key.clone())));
    }

    /// What the status of this pool is to be; as [`desire`](Self::desire). At most one write in 5 s.
    pub fn desire_pool(&mut self, pool: &Arc<AddressPool>, status: AddressPoolStatus) {
        let target = WriteTarget::Pool(pool.metadata.name.as_deref().unwrap_or_default().into());
        self.command(Command::Desire(target, WriteSubject::Pool(Arc::clone(pool), Arc::new(status))));
    }

    /// The pool has gone.
    pub fn forget_pool(&mut self, name: &str) {
        self.command(Command::Forget(WriteTarget::Pool(name.into())));
    }

    /// The next thing that users should be told. None if the task that writes has ended, which it never does unless it has
    /// panicked: nothing is published any more. Cancel safe.
    pub async fn happened(&mut self) -> Option<WriteNotice> {
        self.troubles.recv().await
    }

    /// What else is to be told by now.
    pub fn at_hand(&mut self) -> impl Iterator<Item = WriteNotice> + '_ {
        std::iter::from_fn(|| self.troubles.try_recv().ok())
    }

    fn command(&self, command: Command) {
        // Fails if the task has ended: `happened` says so.
        self.commands.send(command).unwrap_or_default();
    }
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(
    sender: Sender,
    mut queue: WriteQueue,
    leadership: impl Fn() -> Option<Duration>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    troubles: mpsc::UnboundedSender<WriteNotice>,
) {
    let mut writes: JoinSet<(WriteJob, Answer)> = JoinSet::new();
    loop {
        while queue.may_write(now()) {
            let Some(rest) = leadership() else {
                queue.drop_everything();
                break;
            };
            let Some(job) = queue.next(now()) else { break };
            let sender = sender.clone();
            writes.spawn(async move {
                let answer = sender.send(&job, rest).await;
                (job, answer)
            });
        }
        for trouble in queue.happened() {
            if troubles.send(trouble).is_err() {
                return;
            }
        }
        let wake = queue.wakes_at().map(tokio::time::Instant::from_std);
        let timer = async move {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Desire(target, subject)) => queue.desire(target, subject, now()),
                Some(Command::Forget(target)) => queue.forget(&target),
                None => return,
            },
            Some(done) = writes.join_next() => match done {
                Ok((job, answer)) => queue.finished(&job, answer, now()),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            () = timer => {}
        }
    }
}

fn now() -> Now {
    Now { instant: Instant::now(), time: Timestamp::now() }
}

#[cfg(test)]
mod tests;
