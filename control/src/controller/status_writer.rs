//! Writes the desired state of the objects of one API server: Services and AddressPools, or MultiClusterServices and the objects
//! that make Karmada collect their endpoints. Each object has one write at a time; different objects are written concurrently.

pub mod next_step;
mod patch;
mod queue;
mod request;
mod sent;
mod target;
mod write_notice;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use self::queue::{Now, WriteJob, WriteQueue};
use self::request::request;
pub use self::sent::{Deciding, SentStatuses};
use self::sent::{NextSend, WriteId};
use self::target::{WriteSubject, WriteTarget};
pub use self::write_notice::WriteNotice;
use super::api_writer::{API_TIMEOUT, ApiAnswer, ApiWriter};
use super::desired_status::Desired;
use super::gateway_status::{GatewayApiKey, GatewayApiSubject};
use super::ownership::Ownership;
use super::service_exports::{self, DesiredExport, ExportList, LeaseRead};
use super::service_object::ServiceObject;
use crate::api::address_pool::{AddressPool, AddressPoolStatus};
use crate::api::store::ServiceKey;
use crate::sources::connection::Connection;
use crate::time::wait_until;

enum Command {
    Set(WriteTarget, WriteSubject),
    Forget(WriteTarget),
    SetExport(ServiceKey, DesiredExport),
    ForgetExport(ServiceKey),
}

/// Writes until dropped. A write in flight at that time may still take effect.
pub struct StatusWriter {
    commands: mpsc::UnboundedSender<Command>,
    notices: mpsc::UnboundedReceiver<WriteNotice>,
    task: AbortHandle,
}

impl StatusWriter {
    /// Starts the writer, which records in `sent` what it sends. Must be called within a Tokio runtime. Before each write, `leadership`
    /// returns the time in which writing is allowed, which limits the write. Once it returns `None`, all desired states so far are
    /// dropped.
    pub fn start(
        connection: &Connection,
        ownership: Ownership,
        sent: SentStatuses,
        leadership: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (notify, notices) = mpsc::unbounded_channel();
        let writers = FieldManagers {
            services: ApiWriter::new(connection, ownership.field_manager()),
            gateway_api: ApiWriter::new(connection, ownership.gateway_field_manager()),
        };
        let work = work(writers, (WriteQueue::new(ownership), sent), leadership, received, notify);
        let task = tokio::spawn(work).abort_handle();
        Self { commands, notices, task }
    }

    /// Sets the desired state of a Service or MultiClusterService, which was derived from `object`, the newest version. Call it
    /// whenever either changes, as often as needed: nothing is written that the object already has. A change of a condition's
    /// status is written at once, and after six changes in a row every 20 s. A change only of texts in conditions is written at
    /// most every 10 s, and a change of the announcing gateways once it has lasted for 10 s.
    pub fn set_desired(&mut self, key: &ServiceKey, object: impl Into<ServiceObject>, desired: Desired) {
        let subject = WriteSubject::Service(object.into(), Arc::new(desired));
        self.command(Command::Set(WriteTarget::Service(key.clone()), subject));
    }

    /// Drops the desired state of an object that is gone.
    pub fn forget(&mut self, key: &ServiceKey) {
        self.command(Command::Forget(WriteTarget::Service(key.clone())));
    }

    /// Sets the desired status of a pool; see [`set_desired`](Self::set_desired). At most one write in 5 s.
    pub fn set_pool(&mut self, pool: &Arc<AddressPool>, status: AddressPoolStatus) {
        let target = WriteTarget::Pool(pool.metadata.name.as_deref().unwrap_or_default().into());
        self.command(Command::Set(target, WriteSubject::Pool(Arc::clone(pool), Arc::new(status))));
    }

    /// Drops the desired status of a pool that is gone.
    pub fn forget_pool(&mut self, name: &str) {
        self.command(Command::Forget(WriteTarget::Pool(name.into())));
    }

    /// Sets the desired status of an object of the Gateway API; see [`set_desired`](Self::set_desired).
    pub fn set_gateway_api(&mut self, key: GatewayApiKey, subject: GatewayApiSubject) {
        self.command(Command::Set(WriteTarget::GatewayApi(key), WriteSubject::GatewayApi(subject)));
    }

    /// Drops the desired status of an object of the Gateway API that is gone.
    pub fn forget_gateway_api(&mut self, key: GatewayApiKey) {
        self.command(Command::Forget(WriteTarget::GatewayApi(key)));
    }

    /// Sets the desired export of a MultiClusterService, which makes Karmada collect its endpoints.
    pub fn set_export(&mut self, key: &ServiceKey, desired: DesiredExport) {
        self.command(Command::SetExport(key.clone(), desired));
    }

    /// Drops the desired export of a MultiClusterService that is gone.
    pub fn forget_export(&mut self, key: &ServiceKey) {
        self.command(Command::ForgetExport(key.clone()));
    }

    /// The next notice for users, or `None` if the writing task has ended. That happens only if it panics: after that, nothing is
    /// published. Cancel safe.
    pub async fn next_notice(&mut self) -> Option<WriteNotice> {
        self.notices.recv().await
    }

    /// The notices that are already queued.
    pub fn pending_notices(&mut self) -> impl Iterator<Item = WriteNotice> + '_ {
        std::iter::from_fn(|| self.notices.try_recv().ok())
    }

    fn command(&self, command: Command) {
        // Fails if the task has ended, which `next_notice` reports.
        self.commands.send(command).unwrap_or_default();
    }
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A writer for each field manager of an installation. The one of Services is named after their class, the one of the Gateway API
/// after the controller of the GatewayClasses.
struct FieldManagers {
    services: ApiWriter,
    gateway_api: ApiWriter,
}

impl FieldManagers {
    fn of(&self, target: &WriteTarget) -> &ApiWriter {
        if matches!(target, WriteTarget::GatewayApi(_)) { &self.gateway_api } else { &self.services }
    }
}

impl Command {
    fn apply(self, queue: &mut WriteQueue) {
        match self {
            Self::Set(target, subject) => queue.set_desired(target, subject, now()),
            Self::Forget(target) => queue.forget(&target),
            Self::SetExport(key, desired) => queue.set_export(key, desired),
            Self::ForgetExport(key) => queue.forget_export(key),
        }
    }
}

async fn work(
    writers: FieldManagers,
    (mut queue, sent): (WriteQueue, SentStatuses),
    leadership: impl Fn() -> Option<Duration>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    notify: mpsc::UnboundedSender<WriteNotice>,
) {
    let mut decisions = sent.decisions();
    let mut writes: JoinSet<(WriteJob, Option<WriteId>, ApiAnswer)> = JoinSet::new();
    let mut lists: JoinSet<ExportList> = JoinSet::new();
    let mut reads: JoinSet<LeaseRead> = JoinSet::new();
    loop {
        while queue.may_write(now()) {
            let Some(rest) = leadership() else {
                queue.drop_everything();
                break;
            };
            let next = || {
                while let Ok(command) = commands.try_recv() {
                    command.apply(&mut queue);
                }
                queue.next(now())
            };
            match sent.send(Instant::now(), next) {
                None => break,
                Some(NextSend::Wait(job, until)) => queue.postpone(&job, until, now()),
                Some(NextSend::Write(job, id)) => {
                    let writer = writers.of(&job.target).clone();
                    writes.spawn(write(writer, (job, id), Instant::now() + rest.min(API_TIMEOUT)));
                }
            }
        }
        if queue.start_list(now()) {
            let writer = writers.services.clone();
            lists.spawn(async move { service_exports::list(&writer).await });
        }
        if queue.start_collector_read(now()) {
            let writer = writers.services.clone();
            reads.spawn(async move { service_exports::read_collector(&writer).await });
        }
        for notice in queue.take_notices() {
            if notify.send(notice).is_err() {
                return;
            }
        }
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => command.apply(&mut queue),
                None => return,
            },
            _ = decisions.changed() => {}
            Some(done) = writes.join_next() => {
                let (job, id, answer) = ended(done);
                sent.answered(id, &job.target, &answer);
                queue.finished(&job, answer, now());
            }
            Some(done) = lists.join_next() => queue.listed(ended(done), now()),
            Some(done) = reads.join_next() => queue.on_collector(&ended(done), now()),
            () = wait_until(queue.wakes_at()) => {}
        }
    }
}

/// Sends a write. On a busy machine that may start late.
async fn write(
    writer: ApiWriter,
    (job, id): (WriteJob, Option<WriteId>),
    deadline: Instant,
) -> (WriteJob, Option<WriteId>, ApiAnswer) {
    let rest = deadline.saturating_duration_since(Instant::now());
    let answer = writer.send(request(&job, &writer), rest).await;
    (job, id, answer)
}

/// The result of a finished task. A panic is a bug: it is resumed and ends the term.
fn ended<T>(done: Result<T, tokio::task::JoinError>) -> T {
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn now() -> Now {
    Now { instant: Instant::now(), time: Timestamp::now() }
}

#[cfg(test)]
mod tests;
