//! Follows one kind for ever: lists it, watches it, and decides after each failure what it means and how long to pause. It
//! must not know what the objects are for.

use std::sync::Arc;
use std::time::Duration;

use kube::core::params::WatchParams;
use kube::core::request::Request;
use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::event::Event;
use super::kept::Kept;
use super::kind::Watched;
use super::limits::{Limits, spread};
use super::list::{self, List, Streamed};
use super::request::{Answer, Failure, Patience, get, uncompressed};
use super::trouble;
use crate::connection::Connection;

/// A watch that ends sooner and brought nothing is a failure, or we would ask in a loop (client-go's "very short watch").
const VERY_SHORT: Duration = Duration::from_secs(1);

/// What became of a watch.
#[must_use]
enum End {
    /// It brought something, or lasted: the next one takes up where it ended.
    Used,
    /// It lasted and brought nothing, not even a bookmark.
    Quiet,
    /// It was over before it began.
    TooShort,
    /// It failed.
    Failed(Failure),
}

/// Follows the objects of one kind.
pub(super) struct Follower<T: Watched> {
    connection: Connection,
    limits: Limits,
    kept: Arc<Kept<T>>,
    backoff: Backoff,
    /// Whether the server is thought to stream lists.
    streams: bool,
}

impl<T: Watched> Follower<T> {
    pub(super) fn new(connection: Connection, limits: Limits, kept: Arc<Kept<T>>) -> Self {
        Self { connection, backoff: Backoff::new(&limits), limits, kept, streams: true }
    }

    /// Never ends.
    pub(super) async fn follow(mut self) {
        // Whether the list before was of no use either: the server refused to watch from where it ended.
        let mut in_vain = false;
        loop {
            let version = self.list_until_complete().await;
            if self.watch_until_lost(version).await {
                in_vain = false;
            } else if std::mem::replace(&mut in_vain, true) {
                sleep(self.backoff.pause(None)).await;
            }
        }
    }

    /// Answers as of which version the list is.
    async fn list_until_complete(&mut self) -> String {
        loop {
            match self.list().await {
                Ok(List { stage, version }) => {
                    self.kept.replace(stage);
                    self.heard();
                    return version;
                }
                Err(failure) => self.settle(failure).await,
            }
        }
    }

    async fn list(&mut self) -> Result<List<T>, Failure> {
        let client = self.connection.reader();
        if self.streams {
            match list::streamed(&client, &self.kept, &self.limits).await? {
                Streamed::Complete(list) => return Ok(list),
                Streamed::NotHere => {
                    self.streams = false;
                    tracing::debug!(kind = T::RESOURCE.kind, "the API server does not stream lists");
                }
            }
        }
        list::paged(&client, &self.kept, &self.limits).await
    }

    /// Watches from `version` on, again and again, until the server has forgotten what was next. Answers whether any of
    /// the watches was of use.
    async fn watch_until_lost(&mut self, mut version: String) -> bool {
        let mut used = false;
        loop {
            match self.watch(&mut version).await {
                End::Used => {
                    used = true;
                    self.backoff.reset();
                }
                End::Quiet => {
                    used = true;
                    self.backoff.reset();
                    if self.is_ahead_of_the_server(&version).await {
                        return used;
                    }
                }
                End::TooShort => sleep(self.backoff.pause(None)).await,
                // The list says what it is about.
                End::Failed(Failure::Expired(_) | Failure::Missing(_)) => return used,
                End::Failed(failure @ Failure::Garbled(_)) => {
                    self.lost(&failure);
                    return used;
                }
                End::Failed(failure) => self.settle(failure).await,
            }
            self.kept.restarted();
        }
    }

    /// One watch. `version` moves on with what it brings.
    async fn watch(&mut self, version: &mut String) -> End {
        let timeout = spread(self.limits.watch).as_secs().max(1);
        let params = WatchParams {
            timeout: u32::try_from(timeout).ok(),
            label_selector: T::RESOURCE.selector(),
            ..Default::default()
        };
        let request = uncompressed(Request::new(T::RESOURCE.path).watch(&params, version));
        let whole = Duration::from_secs(timeout) + self.limits.grace;
        let patience = Patience { head: self.limits.silence, piece: whole, whole };
        let started = Instant::now();
        let mut answer = match get(&self.connection.reader(), request, patience).await {
            Ok(answer) => answer,
            Err(failure) => return End::Failed(failure),
        };
        self.heard();
        let mut brought = false;
        match self.take(&mut answer, version, &mut brought).await {
            // Cut, or silent for longer than it should last: whether the server is there at all is seen next.
            Ok(()) | Err(Failure::Unreachable(_) | Failure::Silent) if brought => End::Used,
            Ok(()) | Err(Failure::Unreachable(_) | Failure::Silent) if started.elapsed() < VERY_SHORT => {
                End::TooShort
            }
            Ok(()) | Err(Failure::Unreachable(_) | Failure::Silent) => End::Quiet,
            Err(failure) => End::Failed(failure),
        }
    }

    /// Takes in what a watch brings until it ends.
    async fn take(
        &self,
        answer: &mut Answer,
        version: &mut String,
        brought: &mut bool,
    ) -> Result<(), Failure> {
        while let Some(line) = answer.line().await? {
            let event = Event::read(line)?;
            *brought = true;
            self.heard();
            let seen = match event {
                Event::Put(item) => {
                    let seen = item.version.clone();
                    self.kept.put(item);
                    seen
                }
                Event::Gone(item) => {
                    self.kept.remove(&item.key);
                    item.version
                }
                Event::Bookmark { version, .. } => version,
            };
            if !seen.is_empty() {
                *version = seen;
            }
        }
        Ok(())
    }

    /// Whether the server is not as far as `version`, as after etcd was restored from a backup: it then is silent until it
    /// gets there, and what comes until then would be lost. Versions of one server may be compared (KEP-5504).
    async fn is_ahead_of_the_server(&self, version: &str) -> bool {
        let Ok(current) = list::version::<T>(&self.connection.reader(), &self.limits).await else {
            return false;
        };
        self.heard();
        match (current.parse::<u64>(), version.parse::<u64>()) {
            (Ok(current), Ok(version)) => current < version,
            _ => false,
        }
    }

    /// Does what a failure calls for, and pauses.
    async fn settle(&mut self, failure: Failure) {
        match (failure, T::RESOURCE.definition) {
            (Failure::Missing(_), Some(definition)) => {
                if self.kept.is_missing(trouble::missing(&T::RESOURCE, &definition)) {
                    tracing::warn!("{}", trouble::missing(&T::RESOURCE, &definition));
                }
                sleep(spread(self.limits.absent)).await;
            }
            (Failure::Forbidden(message), _) => {
                let problem = trouble::denied(&T::RESOURCE, &message);
                if self.kept.is_denied(problem.clone()) {
                    tracing::warn!("{problem}");
                }
                // A server that has just started says so until it has read its own roles.
                sleep(self.backoff.pause(None)).await;
            }
            (failure, _) => {
                self.lost(&failure);
                match failure {
                    Failure::Unauthorized(_) => self.connection.reopen().await,
                    _ => self.connection.reopen_if_changed().await,
                };
                sleep(self.backoff.pause(failure.retry_after())).await;
            }
        }
    }

    fn lost(&self, failure: &Failure) {
        if self.kept.failed(&failure.to_string()) {
            let (kind, server) = (T::RESOURCE.kind, self.connection.server());
            tracing::warn!(kind, %server, "{failure}; what is known of its {} stays in use", T::RESOURCE.plural);
        }
    }

    fn heard(&self) {
        if self.kept.heard() {
            let (kind, server) = (T::RESOURCE.kind, self.connection.server());
            tracing::info!(kind, %server, "the API server's {} can be read now", T::RESOURCE.plural);
        }
    }
}
