//! Sends Events to the API server, one at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::Resource as _;
use kube::api::Request;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::api::names::FIELD_MANAGER;
use crate::backoff::Backoff;
use crate::controller::api_writer::{ApiAnswer, ApiWriter};
use crate::controller::election::Leadership;
use crate::sources::connection::Connection;

/// How often an Event is attempted.
const TRIES: u32 = 3;
/// Largest pause after the first attempt. The next one is twice as long.
const PAUSE: Duration = Duration::from_millis(750);

/// After this many rejected Events in a row, the cause is not a single object or Namespace.
const REPORTED_AFTER: u32 = 5;

/// How long no Event is sent to a Namespace that takes none because it is being terminated. One of its name may come afterwards.
const CLOSED: Duration = Duration::from_secs(60);

/// Namespaces that take no Events because they are being terminated, and until when that is believed.
#[derive(Debug, Default)]
struct ClosedNamespaces(HashMap<String, Instant>);

impl ClosedNamespaces {
    fn has(&mut self, namespace: &str, now: Instant) -> bool {
        self.0.retain(|_, until| *until > now);
        self.0.contains_key(namespace)
    }

    fn close(&mut self, namespace: &str, now: Instant) {
        tracing::debug!(namespace, "the Namespace is being terminated: Events about its objects are dropped");
        self.0.insert(namespace.to_owned(), now + CLOSED);
    }
}

/// Counts and reports Events that were not written.
#[derive(Debug)]
pub(super) struct EventOutcome {
    dropped: Arc<AtomicU64>,
    refused: watch::Sender<Option<String>>,
    in_a_row: u32,
}

impl EventOutcome {
    pub(super) fn new(dropped: Arc<AtomicU64>, refused: watch::Sender<Option<String>>) -> Self {
        Self { dropped, refused, in_a_row: 0 }
    }

    fn written(&mut self) {
        if self.in_a_row >= REPORTED_AFTER {
            tracing::info!("the API server accepts Events again");
            self.refused.send_replace(None);
        }
        self.in_a_row = 0;
    }

    fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&mut self, answer: &ApiAnswer) {
        self.dropped();
        if !concerns_all(answer) {
            return;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row == REPORTED_AFTER {
            let error = answer.to_string();
            tracing::error!(error, "the API server refuses Events: they are dropped");
            self.refused.send_replace(Some(error));
        }
    }
}

/// Whether the API server would reject other Events as well, as opposed to a Namespace that is terminating or gone, or an outage.
fn concerns_all(answer: &ApiAnswer) -> bool {
    match answer {
        ApiAnswer::Unauthenticated(_) => true,
        ApiAnswer::Forbidden(_) | ApiAnswer::Refused(_) => !is_terminating(answer),
        _ => false,
    }
}

/// Whether the Namespace takes nothing new (apiserver `admission/plugin/namespace/lifecycle`).
fn is_terminating(answer: &ApiAnswer) -> bool {
    matches!(answer, ApiAnswer::Forbidden(why) | ApiAnswer::Refused(why) if why.contains("being terminated"))
}

/// Writes Events until the recorder is dropped.
pub(super) async fn send(
    connection: Connection,
    leadership: Leadership,
    mut events: mpsc::Receiver<Event>,
    mut outcome: EventOutcome,
) {
    let writer = ApiWriter::new(&connection, FIELD_MANAGER);
    let mut closed = ClosedNamespaces::default();
    while let Some(event) = events.recv().await {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        if closed.has(namespace, Instant::now()) {
            outcome.dropped();
        } else if deliver(&writer, &leadership, &event, &mut outcome)
            .await
            .is_some_and(|it| is_terminating(&it))
        {
            closed.close(namespace, Instant::now());
        }
    }
}

/// Sends one Event. Events are best effort: after a few attempts, or at the end of leadership, it is dropped. Returns the answer with which
/// the API server refused it.
async fn deliver(
    writer: &ApiWriter,
    leadership: &Leadership,
    event: &Event,
    outcome: &mut EventOutcome,
) -> Option<ApiAnswer> {
    let path = Request::new(Event::url_path(&(), event.metadata.namespace.as_deref()));
    let body = serde_json::to_vec(event).ok()?;
    let mut backoff = Backoff::new(PAUSE, PAUSE * 2);
    for last in (0..TRIES).map(|it| it + 1 == TRIES) {
        let rest = leadership.remaining()?;
        match writer.send(path.create(&writer.post_params(), body.clone()), rest).await {
            // If the name exists, the answer to an earlier attempt was lost, because the name is unique.
            ApiAnswer::Done(_) | ApiAnswer::Exists => {
                outcome.written();
                return None;
            }
            answer if !last && (matches!(answer, ApiAnswer::Failed(_)) || answer.outage().is_some()) => {
                sleep(backoff.pause(None)).await;
            }
            answer => {
                let regarding = event.regarding.as_ref();
                tracing::debug!(
                    %answer,
                    namespace = regarding.and_then(|it| it.namespace.as_deref()),
                    name = regarding.and_then(|it| it.name.as_deref()),
                    reason = event.reason,
                    "an Event could not be written: it is dropped"
                );
                outcome.failed(&answer);
                return Some(answer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_closed_for_a_while() {
        let (mut closed, now) = (ClosedNamespaces::default(), Instant::now());
        closed.close("old", now);
        assert!(closed.has("old", now + CLOSED / 2) && !closed.has("shop", now + CLOSED / 2));
        assert!(!closed.has("old", now + CLOSED));
        assert!(closed.0.is_empty());
    }

    #[test]
    fn events_that_stay_refused_are_reported_until_one_is_taken() {
        let (report, refused) = watch::channel(None);
        let mut outcome = EventOutcome::new(Arc::default(), report);
        for _ in 0..REPORTED_AFTER {
            outcome.failed(&ApiAnswer::Refused("namespace \"old\" is being terminated".to_owned()));
            outcome.failed(&ApiAnswer::Gone);
            outcome.failed(&ApiAnswer::Unreachable { reason: "the server is away".to_owned() });
        }
        assert_eq!(*refused.borrow(), None, "one Namespace may be going");
        for _ in 0..REPORTED_AFTER {
            outcome.failed(&ApiAnswer::Forbidden("may not".to_owned()));
        }
        assert!(refused.borrow().as_ref().is_some_and(|why| why == "may not"));
        assert_eq!(outcome.dropped.load(Ordering::Relaxed), u64::from(4 * REPORTED_AFTER));
        outcome.written();
        assert_eq!(*refused.borrow(), None);
        for _ in 0..REPORTED_AFTER {
            outcome.failed(&ApiAnswer::Unauthenticated("Unauthorized".to_owned()));
        }
        assert_eq!(refused.borrow().as_deref(), Some("Unauthorized"), "they are dropped silently");
    }
}
