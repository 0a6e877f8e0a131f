//! Recorder of Events: reports new facts about objects once, within a rate limit. Best effort; conditions hold what must not be
//! lost.

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

/// How many Events can wait for the API server.
const QUEUE: usize = 256;
/// Events as RBAC rules name them.
const RESOURCE: &str = "events.events.k8s.io";
/// Action of Problems: serving failed.
const SERVE: &str = "Serve";

/// Writes Events in the background for one term of leadership. Queued Events are still written after it is dropped, while the
/// term lasts.
#[derive(Debug)]
pub struct EventRecorder {
    instance: String,
    leadership: Leadership,
    correlator: Correlator,
    limits: EventLimits,
    queue: mpsc::Sender<Event>,
    dropped: Arc<AtomicU64>,
    /// Why the API server rejects Events, if it rejected the last few.
    refused: watch::Receiver<Option<String>>,
}

impl EventRecorder {
    /// Starts the task that writes. `instance` is the controller's identity in the election. Must be called within a Tokio
    /// runtime.
    pub fn start(connection: &Connection, instance: String, leadership: Leadership) -> Self {
        let (report, refused) = watch::channel(None);
        let (writer, events) = Self::idle(instance, leadership.clone(), refused);
        let outcome = EventOutcome::new(Arc::clone(&writer.dropped), report);
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
            correlator: Correlator::default(),
            limits: EventLimits::new(Instant::now()),
            queue,
            dropped: Arc::default(),
            refused,
        };
        (writer, events)
    }

    /// Records an Event for each new Problem, except those about something that is not an API object.
    pub fn problems(&mut self, changes: &ProblemChanges, uid_of: impl Fn(&ObjectRef) -> Option<Uid>) {
        let changes = changes.about(|object| event::api_version(object.kind).is_some());
        self.correlator.follow(&changes);
        self.offer(&changes.came, uid_of);
    }

    /// Retries Problems that the rate limit held back or that had no uid.
    pub fn again(&mut self, uid_of: impl Fn(&ObjectRef) -> Option<Uid>) {
        let pending = self.correlator.pending();
        self.offer(&pending, uid_of);
    }

    /// Records Events for Problems of objects that may have been deleted and created again: the new objects have no Events yet.
    pub fn offer<'a>(
        &mut self,
        problems: impl IntoIterator<Item = &'a Arc<Problem>>,
        uid_of: impl Fn(&ObjectRef) -> Option<Uid>,
    ) {
        if !self.leadership.holds() {
            return;
        }
        let mut correlator = std::mem::take(&mut self.correlator);
        for problem in problems {
            if let Some(uid) = uid_of(&problem.object) {
                correlator.offer(problem, uid, |problem, uid| self.enqueue(&warning(problem, uid)));
            }
        }
        self.correlator = correlator;
    }

    /// Records one occurrence, unless the last one with its object, type, reason and action had the same note.
    pub fn record(&mut self, occurrence: &Occurrence) {
        if !self.leadership.holds() || !self.correlator.is_new(occurrence) {
            return;
        }
        if self.enqueue(occurrence) {
            self.correlator.recorded(occurrence);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the writing task has ended, which happens only if it panics: after that, no Event is written. Cancel safe.
    pub async fn ended(&self) {
        self.queue.closed().await;
    }

    /// Number of Events dropped since the start, by the rate limit or because the API server rejected them. Problems that wait
    /// for the rate limit do not count.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The Problem that is present while the API server rejects all Events.
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
