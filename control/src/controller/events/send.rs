//! Writes Events, one after the other. It must not know which ones are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::connection::Connection;
use crate::controller::election::Leadership;
use crate::controller::names::FIELD_MANAGER;

/// How often one Event is tried.
const TRIES: u32 = 3;
/// The pause after the first try; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(500);

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
    dropped: Arc<AtomicU64>,
) {
    while let Some(event) = events.recv().await {
        if !deliver(&connection, &leadership, &event).await {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Events are best effort: after some tries, or when others lead, there are more important things.
async fn deliver(connection: &Connection, leadership: &Leadership, event: &Event) -> bool {
    let mut pause = PAUSE;
    for last in (0..TRIES).map(|it| it + 1 == TRIES) {
        if !leadership.holds() {
            return false;
        }
        let error = match post(connection, event).await {
            Sent::Done => return true,
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
        return false;
    }
    false
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
