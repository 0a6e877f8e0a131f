//! Writes Events, one after the other. It must not know which ones are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::api::names::FIELD_MANAGER;
use crate::controller::election::Leadership;
use crate::sources::connection::Connection;
use crate::text::{LONGEST_MESSAGE, cut_middle};

/// How often one Event is tried.
const TRIES: u32 = 3;
/// The pause after the first try; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(500);

/// So many Events that are refused in a row are no matter of single objects or Namespaces.
const TOLD_AFTER: u32 = 5;
/// Of what the server says, in bytes.
const LONGEST_QUOTED: usize = LONGEST_MESSAGE / 2;

/// What becomes of the Events, for those who do not see them.
#[derive(Debug)]
pub(super) struct Outcome {
    dropped: Arc<AtomicU64>,
    refused: watch::Sender<Option<String>>,
    in_a_row: u32,
}

impl Outcome {
    pub(super) fn new(dropped: Arc<AtomicU64>, refused: watch::Sender<Option<String>>) -> Self {
        Self { dropped, refused, in_a_row: 0 }
    }

    fn written(&mut self) {
        if self.in_a_row >= TOLD_AFTER {
            tracing::info!("the API server takes Events again");
            self.refused.send_replace(None);
        }
        self.in_a_row = 0;
    }

    fn failed(&mut self, error: &kube::Error) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if !concerns_all(error) {
            return;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row == TOLD_AFTER {
            let error = cut_middle(error.to_string(), LONGEST_QUOTED);
            tracing::error!(error, "the API server takes no Events: they are left out");
            self.refused.send_replace(Some(error));
        }
    }
}

/// Whether other Events would be refused as well: not because a Namespace is going, or has gone, or the server is away.
fn concerns_all(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400..=499)
        && ![404, 429].contains(&status.code)
        && !status.message.contains("being terminated"))
}

/// What became of a try.
#[must_use]
enum Sent {
    Done,
    /// It will never be taken.
    Refused(kube::Error),
    /// It may be taken later.
    Failed(kube::Error),
}

/// Writes what comes until nobody can send any more.
pub(super) async fn send(
    connection: Connection,
    leadership: Leadership,
    mut events: mpsc::Receiver<Event>,
    mut outcome: Outcome,
) {
    while let Some(event) = events.recv().await {
        deliver(&connection, &leadership, &event, &mut outcome).await;
    }
}

/// Events are best effort: after some tries, or when others lead, there are more important things.
async fn deliver(connection: &Connection, leadership: &Leadership, event: &Event, outcome: &mut Outcome) {
    let mut pause = PAUSE;
    for last in (0..TRIES).map(|it| it + 1 == TRIES) {
        if !leadership.holds() {
            return;
        }
        let error = match post(connection, event).await {
            Sent::Done => return outcome.written(),
            Sent::Failed(_) if !last => {
                sleep(pause).await;
                pause *= 2;
                continue;
            }
            Sent::Failed(error) | Sent::Refused(error) => error,
        };
        let regarding = event.regarding.as_ref();
        tracing::debug!(
            %error,
            namespace = regarding.and_then(|it| it.namespace.as_deref()),
            name = regarding.and_then(|it| it.name.as_deref()),
            reason = event.reason,
            "an Event could not be written: it is left out"
        );
        return outcome.failed(&error);
    }
}

async fn post(connection: &Connection, event: &Event) -> Sent {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let answer = Api::<Event>::namespaced(connection.writer(), namespace).create(&params, event).await;
    if let Err(error) = &answer {
        connection.heed(error).await;
    }
    match answer {
        Ok(_) => Sent::Done,
        Err(kube::Error::Api(status)) => match status.code {
            // The answer to an earlier try was lost: nobody else has this name.
            409 if status.reason == "AlreadyExists" => Sent::Done,
            // In a namespace that is going, without the right to, or as the server does not like it.
            400 | 402..=428 | 430..=499 => Sent::Refused(kube::Error::Api(status)),
            _ => Sent::Failed(kube::Error::Api(status)),
        },
        Err(error) => Sent::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_stay_refused_are_reported_until_one_is_taken() {
        let (tell, refused) = watch::channel(None);
        let mut outcome = Outcome::new(Arc::default(), tell);
        let failure = |code: u16, message: &str| {
            let status =
                kube::core::response::Status { code, message: message.to_owned(), ..Default::default() };
            kube::Error::Api(Box::new(status))
        };
        for _ in 0..TOLD_AFTER {
            outcome.failed(&failure(403, "namespace \"old\" is being terminated"));
            outcome.failed(&failure(404, "namespaces \"old\" not found"));
            outcome.failed(&failure(503, "the server is away"));
        }
        assert_eq!(*refused.borrow(), None, "one Namespace may be going");
        for _ in 0..TOLD_AFTER {
            outcome.failed(&failure(403, &format!("may not: {}", "x".repeat(100_000))));
        }
        assert!(refused.borrow().as_ref().is_some_and(|why| why.contains("may not") && why.len() <= 512));
        assert_eq!(outcome.dropped.load(Ordering::Relaxed), u64::from(4 * TOLD_AFTER));
        outcome.written();
        assert_eq!(*refused.borrow(), None);
    }
}
