//! Asks Karmada to collect the endpoints of MultiClusterServices: keeps a ServiceExport for each, and the PropagationPolicy
//! that brings it to the clusters. Both are owned by the MultiClusterService, so that the API server's garbage collector
//! removes them with it if nobody leads; what others made under these names is never touched. It must not know when a
//! MultiClusterService is ours.
//!
//! Nobody watches these kinds for it: both are listed at the begin of a term and every `LOOK_AGAIN`, and in between are as
//! we left them. So an undisturbed fleet costs two lists, and no write.

mod desired;
mod diff;
mod object;
mod send;
mod warning;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

pub use self::desired::{DesiredExport, desired_export};
use self::diff::{ExportDiff, Step};
pub use self::object::Export;
use self::send::{Answer, Sender};
pub use self::warning::ExportWarning;
use super::election::Leadership;
use crate::api::store::ServiceKey;
use crate::sources::connection::Connection;
use crate::time::wait_until;

/// What others changed or deleted of ours is seen after this at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// What was refused is tried again after this at the latest: a definition or a right may be there by then.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// After the first failure; each further one in a row waits twice as long, up to [`TRY_AGAIN`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// What is being deleted is looked at again after this: Karmada has finalizers of its own there.
const GOING: Duration = Duration::from_secs(5);

enum Command {
    Set(ServiceKey, DesiredExport),
    Forget(ServiceKey),
}

/// Writes until it is dropped; a write that is under way then may still be done.
pub struct ExportWriter {
    commands: mpsc::UnboundedSender<Command>,
    troubles: mpsc::UnboundedReceiver<ExportWarning>,
    task: AbortHandle,
}

impl ExportWriter {
    /// Must be called inside a Tokio runtime. `manager` says what is ours, and in whose name is written.
    pub fn start(connection: &Connection, manager: &str, leadership: &Leadership) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (told, troubles) = mpsc::unbounded_channel();
        let sender = Sender::new(connection, manager, leadership.clone());
        let task = tokio::spawn(ExportTask::new(sender, told).run(received)).abort_handle();
        Self { commands, troubles, task }
    }

    /// What is to be there for this MultiClusterService. May be said as often as one likes.
    pub fn set_desired(&self, key: &ServiceKey, wish: DesiredExport) {
        self.command(Command::Set(key.clone(), wish));
    }

    /// The MultiClusterService has gone.
    pub fn forget(&self, key: &ServiceKey) {
        self.command(Command::Forget(key.clone()));
    }

    /// The next thing that users should be told. None if the task has ended, which it never does unless it has panicked.
    /// Cancel safe.
    pub async fn happened(&mut self) -> Option<ExportWarning> {
        self.troubles.recv().await
    }

    fn command(&self, command: Command) {
        // Fails if the task has ended: `happened` says so.
        self.commands.send(command).unwrap_or_default();
    }
}

impl Drop for ExportWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task's own.
struct ExportTask {
    sender: Sender,
    tell: mpsc::UnboundedSender<ExportWarning>,
    ledger: ExportDiff,
    /// Whether it is known what is there.
    listed: bool,
    /// When to list the next time.
    look_at: Instant,
    /// Nothing is sent before.
    not_before: Instant,
    /// Failures in a row.
    failures: u32,
    /// What was told, and has not gone since.
    told: BTreeSet<String>,
    /// What was met since the last list.
    met: BTreeSet<String>,
}

impl ExportTask {
    fn new(sender: Sender, tell: mpsc::UnboundedSender<ExportWarning>) -> Self {
        let now = Instant::now();
        Self {
            sender,
            tell,
            ledger: ExportDiff::default(),
            listed: false,
            look_at: now,
            not_before: now,
            failures: 0,
            told: BTreeSet::new(),
            met: BTreeSet::new(),
        }
    }

    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Set(key, wish)) => self.ledger.set_desired(key, wish),
                    Some(Command::Forget(key)) => self.ledger.forget(key),
                    None => return,
                },
                // Commands that wait come first: they may make a write needless.
                () = wait_until(self.due()), if commands.is_empty() => self.turn().await,
            }
        }
    }

    /// When there is something to do.
    fn due(&self) -> Option<Instant> {
        if self.ledger.is_empty() {
            return None;
        }
        let rests = self.listed && self.ledger.next().is_none();
        Some(if rests { self.look_at.max(self.not_before) } else { self.not_before })
    }

    /// One list, or one write.
    async fn turn(&mut self) {
        if !self.listed || self.look_at <= Instant::now() {
            return self.look().await;
        }
        let Some(key) = self.ledger.next().cloned() else { return };
        let step = self.ledger.step(&key);
        match &step {
            Step::Nothing => self.ledger.close(&key),
            Step::Wait => {
                self.ledger.close(&key);
                self.look_within(GOING);
            }
            Step::Taken(part) => {
                let what = format!("{} {}", part.kind(), part.name(&key));
                self.tell(ExportWarning::Taken { object: key.object(), what });
                self.give_up(&key);
            }
            Step::Create(..) | Step::Apply(..) | Step::Delete(..) => self.write(&key, &step).await,
        }
    }

    /// Asks what is there.
    async fn look(&mut self) {
        let trouble = match self.sender.list().await {
            Ok(all) => {
                self.ledger.replace(all, self.sender.manager());
                self.listed = true;
                self.look_at = Instant::now() + LOOK_AGAIN;
                // What was not met again has gone.
                self.told = std::mem::take(&mut self.met);
                return;
            }
            Err((part, Answer::Forbidden(message))) => {
                Some(ExportWarning::Forbidden { verb: "list", resource: part.definition(), message })
            }
            Err((part, Answer::Stale)) => Some(ExportWarning::Undefined { definition: part.definition() }),
            Err((part, answer)) => {
                tracing::debug!(
                    resource = part.definition(),
                    ?answer,
                    "could not be listed: tried again later"
                );
                None
            }
        };
        if let Some(trouble) = trouble {
            self.tell(trouble);
        }
        self.fail();
    }

    async fn write(&mut self, key: &ServiceKey, step: &Step) {
        let (part, verb) = match step {
            Step::Create(part, _) => (*part, "create"),
            Step::Apply(part, ..) => (*part, "patch"),
            Step::Delete(part, _) => (*part, "delete"),
            Step::Taken(_) | Step::Wait | Step::Nothing => return,
        };
        match self.sender.send(key, step).await {
            Answer::Written(object) => {
                match object {
                    Some(object) => self.ledger.put(part, *object, self.sender.manager()),
                    None => self.ledger.remove(key, part),
                }
                self.failures = 0;
            }
            // Somebody else was there in between.
            Answer::Stale => {
                self.ledger.close(key);
                self.look_within(self.pause());
                self.failures = self.failures.saturating_add(1);
            }
            Answer::Lost(why) => {
                tracing::debug!(object = %key.object(), why, "an export could not be written: tried again later");
                self.ledger.pass(key);
                self.fail();
            }
            Answer::Forbidden(message) => {
                self.tell(ExportWarning::Forbidden { verb, resource: part.definition(), message });
                self.give_up(key);
            }
            Answer::Refused(message) => {
                let what = format!("{} {}", part.kind(), part.name(key));
                self.tell(ExportWarning::Refused { object: key.object(), what, message });
                self.give_up(key);
            }
        }
    }

    /// Leaves it as it is for now.
    fn give_up(&mut self, key: &ServiceKey) {
        self.ledger.close(key);
        self.look_within(TRY_AGAIN);
    }

    fn look_within(&mut self, pause: Duration) {
        self.look_at = self.look_at.min(Instant::now() + pause);
    }

    fn fail(&mut self) {
        self.not_before = Instant::now() + self.pause();
        self.failures = self.failures.saturating_add(1);
    }

    fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.failures.min(6)).min(TRY_AGAIN)
    }

    /// Tells what is new.
    fn tell(&mut self, trouble: ExportWarning) {
        // Messages of API servers may name versions and times: what differs in them alone is the same.
        let what = match &trouble {
            ExportWarning::Undefined { definition } => definition.clone(),
            ExportWarning::Forbidden { verb, resource, .. } => format!("{verb} {resource}"),
            ExportWarning::Refused { object, what, .. } => format!("{object} {what}"),
            ExportWarning::Taken { object, what } => format!("{object} {what} taken"),
        };
        self.met.insert(what.clone());
        if self.told.insert(what) {
            // Fails if nobody listens any more, and then the term is over.
            self.tell.send(trouble).unwrap_or_default();
        }
    }
}
