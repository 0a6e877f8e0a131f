//! Events: tells about objects what is news, once, and within limits. Best effort; what must not be lost is in conditions.
//! It must not know where Problems come from.

mod correlator;
mod event;
mod rate_limit;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::correlator::Correlator;
pub use self::event::{EventType, Occurrence, Uid};
use self::rate_limit::EventLimits;
use self::send::EventOutcome;

use crate::api::problem::{ObjectRef, Problem, ProblemChanges, reason};
use crate::controller::election::Leadership;
use crate::sources::connection::Connection;

/// So many Events may wait for the API server.
const QUEUE: usize = 256;
/// What RBAC calls Events, with their group.
const RESOURCE: &str = "events.events.k8s.io";
/// The action of Problems: what cannot be done as it should be.
const SERVE: &str = "Serve";

/// Writes Events in the background for one term of leadership. What waits when it is dropped is
/// still written while the term lasts.
#[derive(Debug)]
pub struct EventRecorder {
    instance: String,
    leadership: Leadership,
    novelty: Correlator,
    limits: EventLimits,
    queue: mpsc::Sender<Event>,
    dropped: Arc<AtomicU64>,
    /// Why the API server takes none, if it refused the last few.
    refused: watch::Receiver<Option<String>>,
}

impl EventRecorder {
    /// `instance` says which controller it was: its identity in the election. Must be called inside a Tokio runtime.
    pub fn start(connection: &Connection, instance: String, leadership: Leadership) -> Self {
        let (tell, refused) = watch::channel(None);
        let (writer, events) = Self::idle(instance, leadership.clone(), refused);
        let outcome = EventOutcome::new(Arc::clone(&writer.dropped), tell);
        tokio::spawn(send::send(connection.clone(), leadership, events, outcome));
        writer
    }

    fn idle(
        instance: String,
        leadership: Leadership,
        refused: watch::Receiver<Option<String>>,
    ) -> (Self, mpsc::Receiver<Event>) {
        let (queue, events) = mpsc::channel(QUEUE);
        let writer = Self {
            instance,
            leadership,
            novelty: Correlator::default(),
            limits: EventLimits::new(Instant::now()),
            queue,
            dropped: Arc::default(),
            refused,
        };
        (writer, events)
    }

    /// Problems that came become Events, unless they are about what is no object of the API.
    pub fn problems(&mut self, changes: &ProblemChanges, uid_of: impl Fn(&ObjectRef) -> Option<Uid>) {
        let changes = changes.about(|object| event::api_version(object.kind).is_some());
        self.novelty.follow(&changes);
        self.offer(&changes.came, uid_of);
    }

    /// Tries again what the limits held back, and what had no uid.
    pub fn again(&mut self, uid_of: impl Fn(&ObjectRef) -> Option<Uid>) {
        let untold = self.novelty.untold();
        self.offer(&untold, uid_of);
    }

    /// These Problems are of objects that may be others of the same name than before: of such ones nothing was told.
    pub fn offer<'a>(
        &mut self,
        problems: impl IntoIterator<Item = &'a Arc<Problem>>,
        uid_of: impl Fn(&ObjectRef) -> Option<Uid>,
    ) {
        if !self.leadership.holds() {
            return;
        }
        let mut novelty = std::mem::take(&mut self.novelty);
        for problem in problems {
            if let Some(uid) = uid_of(&problem.object) {
                novelty.offer(problem, uid, |problem, uid| self.enqueue(&warning(problem, uid)));
            }
        }
        self.novelty = novelty;
    }

    /// This happened. Nothing is written if the last one of its object, type, reason and action had the same note.
    pub fn tell(&mut self, occurrence: &Occurrence) {
        if !self.leadership.holds() || !self.novelty.is_new(occurrence) {
            return;
        }
        if self.enqueue(occurrence) {
            self.novelty.told(occurrence);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the task that writes has ended, which it never does unless it has panicked: no Event is written any
    /// more. Cancel safe.
    pub async fn ended(&self) {
        self.queue.closed().await;
    }

    /// How many Events were left out since the start: refused by the limits or by the API server. Problems that wait for
    /// the limits do not count.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// A Problem while the API server takes no Event.
    pub fn refused(&self) -> Option<Problem> {
        let why = self.refused.borrow().clone()?;
        Some(Problem {
            object: ObjectRef { kind: "Resource", namespace: "".into(), name: RESOURCE.into() },
            reason: reason::WRITE_REFUSED,
            field: String::new(),
            message: format!("the API server takes no Events, which are left out: {why}"),
            port: None,
        })
    }

    fn enqueue(&mut self, occurrence: &Occurrence) -> bool {
        let Some(version) = event::api_version(occurrence.object.kind) else { return false };
        let Ok(place) = self.queue.try_reserve() else { return false };
        if !self.limits.take(&occurrence.object, Instant::now()) {
            return false;
        }
        let unique = fastrand::u64(..);
        place.send(event::event(occurrence, version, &self.instance, Timestamp::now(), unique));
        true
    }
}

fn warning(problem: &Problem, uid: Uid) -> Occurrence {
    let note = match problem.field.as_str() {
        "" => problem.message.clone(),
        field => format!("{field}: {}", problem.message),
    };
    Occurrence {
        object: problem.object.clone(),
        uid,
        r#type: EventType::Warning,
        reason: problem.reason,
        action: SERVE,
        note,
    }
}
