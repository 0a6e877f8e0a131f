//! Carries out what the controller wants to be true of the objects of one API server (Services and AddressPools, or
//! MultiClusterServices): one write at a time per object, several objects side by side. It must not know why something is
//! wanted.

mod answer;
mod backoff;
mod desk;
mod request;
mod subject;
mod write_trouble;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use self::answer::Answer;
use self::desk::{Desk, Job, Moment};
use self::request::Sender;
use self::subject::{Subject, Target};
pub use self::write_trouble::WriteTrouble;
use super::publication::{Desired, Exposed, PublishOptions};
use crate::address_pool::{AddressPool, AddressPoolStatus};
use crate::connection::Connection;
use crate::store::ServiceKey;

enum Command {
    Desire(Target, Subject),
    Forget(Target),
}

/// Writes until it is dropped; a write that is under way then may still be done.
pub struct Publisher {
    commands: mpsc::UnboundedSender<Command>,
    troubles: mpsc::UnboundedReceiver<WriteTrouble>,
    task: AbortHandle,
}

impl Publisher {
    /// Must be called inside a Tokio runtime. `leadership` is asked before each write for how long may still be written, and no
    /// write takes longer. As soon as it says nothing, everything that was desired so far is dropped.
    pub fn start(
        connection: &Connection,
        options: PublishOptions,
        leadership: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (told, troubles) = mpsc::unbounded_channel();
        let work = work(Sender::new(connection, &options), Desk::new(options), leadership, received, told);
        let task = tokio::spawn(work).abort_handle();
        Self { commands, troubles, task }
    }

    /// What is to be true of this Service or MultiClusterService, decided by `object`, which is the newest there is. To be
    /// called whenever either changes, and as often as one likes: nothing is written that the object says already, and what
    /// only changes the words of its conditions is written at most once in 10 s.
    pub fn desire(&mut self, key: &ServiceKey, object: impl Into<Exposed>, desired: Desired) {
        let subject = Subject::Service(object.into(), Arc::new(desired));
        self.command(Command::Desire(Target::Service(key.clone()), subject));
    }

    /// The object has gone.
    pub fn forget(&mut self, key: &ServiceKey) {
        self.command(Command::Forget(Target::Service(key.clone())));
    }

    /// What the status of this pool is to be; as [`desire`](Self::desire). At most one write in 5 s.
    pub fn desire_pool(&mut self, pool: &Arc<AddressPool>, status: AddressPoolStatus) {
        let target = Target::Pool(pool.metadata.name.as_deref().unwrap_or_default().into());
        self.command(Command::Desire(target, Subject::Pool(Arc::clone(pool), Arc::new(status))));
    }

    /// The pool has gone.
    pub fn forget_pool(&mut self, name: &str) {
        self.command(Command::Forget(Target::Pool(name.into())));
    }

    /// The next thing that users should be told. None if the task that writes has ended, which it never does unless it has
    /// panicked: nothing is published any more. Cancel safe.
    pub async fn happened(&mut self) -> Option<WriteTrouble> {
        self.troubles.recv().await
    }

    /// What else is to be told by now.
    pub fn at_hand(&mut self) -> impl Iterator<Item = WriteTrouble> + '_ {
        std::iter::from_fn(|| self.troubles.try_recv().ok())
    }

    fn command(&self, command: Command) {
        // Fails if the task has ended: `happened` says so.
        self.commands.send(command).unwrap_or_default();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(
    sender: Sender,
    mut desk: Desk,
    leadership: impl Fn() -> Option<Duration>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    troubles: mpsc::UnboundedSender<WriteTrouble>,
) {
    let mut writes: JoinSet<(Job, Answer)> = JoinSet::new();
    loop {
        while desk.may_write(now()) {
            let Some(rest) = leadership() else {
                desk.drop_everything();
                break;
            };
            let Some(job) = desk.next(now()) else { break };
            let sender = sender.clone();
            writes.spawn(async move {
                let answer = sender.send(&job, rest).await;
                (job, answer)
            });
        }
        for trouble in desk.happened() {
            if troubles.send(trouble).is_err() {
                return;
            }
        }
        let wake = desk.wakes_at().map(tokio::time::Instant::from_std);
        let timer = async move {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Desire(target, subject)) => desk.desire(target, subject, now()),
                Some(Command::Forget(target)) => desk.forget(&target),
                None => return,
            },
            Some(done) = writes.join_next() => match done {
                Ok((job, answer)) => desk.finished(&job, answer, now()),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            () = timer => {}
        }
    }
}

fn now() -> Moment {
    Moment { instant: Instant::now(), time: Timestamp::now() }
}

#[cfg(test)]
mod tests;
