//! Reflector of one kind: lists it, watches it, and after each failure decides how to continue and how long to pause.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::core::params::WatchParams;
use kube::core::request::Request;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::GatewayApiMode;
use super::cache::Cache;
use super::discovery::{Availability, Discovery};
use super::item::Event;
use super::kind_problems;
use super::limits::{WatchLimits, spread};
use super::list::{self, List, Streamed, Streaming, selector};
use super::request::{Answer, AnswerTimeouts, RequestFailure, get, lasting, uncompressed};
use crate::api::kinds::{Definition, Kind};
use crate::api::object::Resource;
use crate::api::problem::Problem;
use crate::backoff::Backoff;
use crate::sources::connection::Connection;

/// A watch that ends sooner and brought nothing counts as a failure, to avoid a busy loop (client-go's "very short watch").
const VERY_SHORT: Duration = Duration::from_secs(1);

/// Number of 404s for a kind whose definition the server has, before they are logged.
const FIRST_FAILURES: u32 = 3;

/// How a watch ended.
#[must_use]
enum End {
    /// The watch brought something, or lasted: the next one continues where it ended.
    Used,
    /// The watch lasted but brought nothing, not even a bookmark.
    Quiet,
    /// The watch ended immediately.
    TooShort,
    /// The watch failed with this error.
    Failed(RequestFailure),
}

/// Whether watches of a kind work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watches {
    /// The last one ended normally, or there was none.
    Work,
    /// No watch has worked since this time.
    Fail(Instant),
    /// Like `Fail`, but the server answered another request in between: if the next watch fails, only watches fail.
    FailAlone,
    /// Lists replace watches. Each list is followed by one watch, in case it works again.
    Polled,
}

impl Watches {
    /// Restarts the time of failure, because a watch worked for a while, or other requests fail, too.
    fn excuse(&mut self) {
        if matches!(self, Self::Fail(_) | Self::FailAlone) {
            *self = Self::Fail(Instant::now());
        }
    }
}

/// The definition without which a kind is not watched.
pub(super) struct Requirement {
    pub(super) definition: Definition,
    pub(super) mode: GatewayApiMode,
    pub(super) discovery: Arc<Discovery>,
}

/// Reflector of the objects of one kind.
pub(super) struct Reflector<K: Kind> {
    connection: Connection,
    limits: WatchLimits,
    kept: Arc<Cache<K>>,
    requires: Option<Requirement>,
    /// API path of the kind in the version that the server has.
    path: String,
    backoff: Backoff,
    streaming: Streaming,
    watches: Watches,
    /// Whether a list was made since watches started to fail.
    listed: bool,
    /// Whether the last watch that lasted brought bookmarks.
    bookmarks: bool,
    /// Since when the server has refused the kind, or watches of it.
    refused: Option<Instant>,
    /// The kind, if it was asked for because the controller reads it.
    heeded: BTreeSet<&'static str>,
}

impl<K: Kind> Reflector<K> {
    pub(super) fn new(
        connection: Connection,
        limits: WatchLimits,
        kept: Arc<Cache<K>>,
        requires: Option<Requirement>,
    ) -> Self {
        let backoff = Backoff::new(limits.first_pause, limits.longest_pause);
        let streaming = Streaming::new(&limits);
        Self {
            connection,
            limits,
            kept,
            requires,
            path: K::ROW.resource.path(),
            backoff,
            streaming,
            watches: Watches::Work,
            listed: false,
            bookmarks: false,
            refused: None,
            heeded: BTreeSet::new(),
        }
    }

    /// Lists and watches forever.
    pub(super) async fn follow(mut self) {
        loop {
            self.await_definition().await;
            let Some(version) = self.list_until_complete().await else { continue };
            self.watch_until_lost(version).await;
        }
    }

    /// Waits until the server has the definition that the kind requires, if any.
    async fn await_definition(&mut self) {
        let Some(Requirement { definition, mode, discovery }) = &self.requires else { return };
        let since = Instant::now();
        let mut known = None;
        loop {
            let differing = discovery.differing(definition, known);
            let unconfirmed = matches!(known, Some(Availability::Absent | Availability::Outdated(_)));
            tokio::select! {
                availability = differing => known = Some(availability),
                () = sleep_until(since + self.limits.vanished), if unconfirmed => {
                    self.kept.stays_undefined();
                    known = Some(discovery.differing(definition, known).await);
                }
            }
            let problem = match known {
                Some(Availability::Served(api_version)) => {
                    if K::ROW.definition == Some(*definition) && !K::ROW.resource.is_built_in() {
                        self.path = Resource { api_version, ..K::ROW.resource }.path();
                    }
                    return self.kept.is_defined();
                }
                Some(Availability::Outdated(found)) => Some(kind_problems::outdated(&K::ROW.resource, found)),
                Some(Availability::Absent) | None => match (mode, K::ROW.remedy) {
                    (GatewayApiMode::On, Some(remedy)) => {
                        Some(kind_problems::missing(&K::ROW.resource, remedy))
                    }
                    _ => None,
                },
            };
            self.is_undefined(problem);
        }
    }

    /// Records that the server does not have the definition.
    fn is_undefined(&self, problem: Option<Problem>) {
        let kind = K::ROW.resource.kind;
        let told = problem.as_ref().map(Problem::to_string);
        if !self.kept.is_undefined(problem) {
            return;
        }
        if let Some(told) = told {
            tracing::warn!("{told}");
        } else if self.kept.was_listed() {
            tracing::warn!(kind, server = %self.connection.server(), "the API server no longer has the kind; its known objects stay in use");
        } else {
            tracing::debug!(kind, server = %self.connection.server(), "the API server does not have the kind");
        }
    }

    /// Lists until a list is complete. Returns its version; `None` if the server no longer has the definition.
    async fn list_until_complete(&mut self) -> Option<String> {
        loop {
            match self.list().await {
                Ok(List { stage, version }) => {
                    self.kept.replace(stage);
                    self.is_readable();
                    if self.watches == Watches::Work {
                        self.heard();
                    } else {
                        self.kept.answered();
                    }
                    return Some(version);
                }
                Err(failure @ RequestFailure::Missing(_)) if self.requires.is_some() => {
                    self.settle_undefined(&failure).await;
                    return None;
                }
                Err(failure) => {
                    self.watches.excuse();
                    let pause = self.settle(&failure).await;
                    self.rest(pause).await;
                }
            }
        }
    }

    /// Pauses, but no longer than until the controller reads the kind.
    async fn rest(&mut self, pause: Duration) {
        let Some(Requirement { discovery, .. }) = &self.requires else { return sleep(pause).await };
        let kind = BTreeSet::from([K::ROW.resource.plural]);
        tokio::select! {
            () = sleep(pause) => {}
            () = discovery.hints.hinted(&kind, &mut self.heeded) => {
                sleep(self.limits.some_of_relist().min(pause)).await;
            }
        }
    }

    async fn list(&mut self) -> Result<List<K>, RequestFailure> {
        let client = self.connection.reader();
        // A streamed list is a watch.
        if self.watches != Watches::Polled && self.streaming.is_due() {
            match list::streamed(&client, &self.path, &self.kept, &self.limits).await {
                Ok(Streamed::Complete(list)) => {
                    self.streaming.worked();
                    return Ok(list);
                }
                Ok(Streamed::NotHere) => {
                    self.streaming.refused();
                    tracing::debug!(kind = K::ROW.resource.kind, "the API server does not stream lists");
                }
                Err(failure) => {
                    self.streaming.failed();
                    return Err(failure);
                }
            }
        }
        list::paged(&client, &self.path, &self.kept, &self.limits).await
    }

    /// Watches from `version` on, repeatedly, until a new list is needed.
    async fn watch_until_lost(&mut self, mut version: String) {
        loop {
            let lost = match self.watch(&mut version).await {
                End::Used => {
                    self.watches_work();
                    false
                }
                End::Quiet => {
                    self.watches_work();
                    self.is_ahead_of_the_server(&version).await
                }
                End::TooShort => self.lists_after(None).await,
                End::Failed(failure) => self.lists_after(Some(failure)).await,
            };
            if lost {
                return;
            }
            self.kept.restarted();
        }
    }

    fn watches_work(&mut self) {
        (self.watches, self.listed) = (Watches::Work, false);
        self.backoff.reset();
    }

    /// Decides how to continue after a watch failed or ended immediately, and pauses. Returns whether to list.
    async fn lists_after(&mut self, failure: Option<RequestFailure>) -> bool {
        let forgotten = matches!(
            failure,
            Some(RequestFailure::Expired(_) | RequestFailure::Missing(_) | RequestFailure::Garbled(_))
        );
        if matches!(failure, Some(RequestFailure::Missing(_))) {
            self.kept.is_unknown();
        }
        let pause = self.settle_watch(failure.as_ref()).await;
        // The server forgets versions from time to time, for example across an outage, but not that of a list that was just made.
        if forgotten && !self.listed && self.watches != Watches::Polled {
            (self.watches, self.listed) = (Watches::Fail(Instant::now()), true);
            sleep(self.limits.some_of_relist()).await;
            return true;
        }
        sleep(pause).await;
        match self.watches {
            Watches::Work => self.watches = Watches::Fail(Instant::now()),
            Watches::Fail(since) if since.elapsed() < self.limits.unwatched => {}
            Watches::Fail(_) if !forgotten => {
                // An outage of the server shows nothing about watches.
                self.watches = if self.answers().await { Watches::FailAlone } else { Watches::Work };
            }
            Watches::Fail(_) | Watches::FailAlone => {
                self.watches = Watches::Polled;
                let told = self.polled(failure.as_ref());
                tracing::warn!(kind = K::ROW.resource.kind, server = %self.connection.server(), "{told}");
            }
            Watches::Polled => {}
        }
        forgotten || self.watches == Watches::Polled
    }

    /// Handles a failed watch. Returns the pause.
    async fn settle_watch(&mut self, failure: Option<&RequestFailure>) -> Duration {
        if self.watches == Watches::Polled {
            self.polled(failure);
            let asked = failure.and_then(RequestFailure::retry_after);
            return self.backoff.pause(asked).max(spread(self.limits.poll));
        }
        match failure {
            // The list will show the cause.
            None | Some(RequestFailure::Expired(_) | RequestFailure::Missing(_)) => self.backoff.pause(None),
            // A later request shows whether lists are refused as well.
            Some(failure @ RequestFailure::Forbidden(_)) => {
                self.refused_for(failure);
                self.backoff.pause(None)
            }
            Some(failure) => self.settle(failure).await,
        }
    }

    /// Records that lists replace watches. Returns a text about it.
    fn polled(&self, failure: Option<&RequestFailure>) -> String {
        if let Some(RequestFailure::Forbidden(message)) = failure {
            let problem = kind_problems::unwatched(&K::ROW, self.limits.poll, message);
            self.kept.is_denied(problem.clone());
            return problem.to_string();
        }
        let why = failure.map_or_else(|| "they end at once".to_owned(), RequestFailure::to_string);
        let told = format!(
            "watches of {} fail ({why}); they are listed every {} to {} s instead",
            K::ROW.resource.plural,
            self.limits.poll.as_secs(),
            2 * self.limits.poll.as_secs()
        );
        self.kept.failed(&told);
        told
    }

    /// Whether the server answers a request for the kind.
    async fn answers(&mut self) -> bool {
        match list::version::<K>(&self.connection.reader(), &self.path, &self.limits).await {
            Ok(_) => true,
            Err(failure) => {
                self.settle(&failure).await;
                false
            }
        }
    }

    /// Runs one watch, and advances `version` with its events.
    async fn watch(&mut self, version: &mut String) -> End {
        let is_optional = self.requires.is_some();
        let asked = if self.bookmarks { self.limits.lasting_watch(is_optional) } else { self.limits.watch };
        let timeout = spread(asked).as_secs().max(1);
        let params = WatchParams { label_selector: selector::<K>(), ..Default::default() };
        let request = Request::new(&self.path).watch(&params, version);
        let request = lasting(uncompressed(request), timeout);
        let whole = Duration::from_secs(timeout) + self.limits.grace;
        let piece = if self.bookmarks { self.limits.bookmark.min(whole) } else { whole };
        let patience = AnswerTimeouts { head: self.limits.silence, piece, whole };
        let started = Instant::now();
        let mut answer = match get(&self.connection.reader(), request, patience).await {
            Ok(answer) => answer,
            Err(failure) => return End::Failed(failure),
        };
        let mut brought = false;
        // Each watch must bring a bookmark anew.
        self.bookmarks = false;
        match self.take(&mut answer, version, &mut brought).await {
            // Interrupted, or silent for longer than it should last: the next request shows whether the server is available.
            Ok(()) | Err(RequestFailure::Unreachable(_) | RequestFailure::Silent) if brought => End::Used,
            Ok(()) | Err(RequestFailure::Unreachable(_) | RequestFailure::Silent)
                if started.elapsed() < VERY_SHORT =>
            {
                End::TooShort
            }
            Ok(()) | Err(RequestFailure::Unreachable(_) | RequestFailure::Silent) => End::Quiet,
            Err(failure) => End::Failed(failure),
        }
    }

    /// Processes the events of a watch until it ends.
    async fn take(
        &mut self,
        answer: &mut Answer,
        version: &mut String,
        brought: &mut bool,
    ) -> Result<(), RequestFailure> {
        // If watches have failed, starting one proves little: it must bring an event or last for a while.
        let mut works = self.watches == Watches::Work;
        loop {
            if works {
                self.watches.excuse();
                self.heard();
            }
            let patience = if works { Duration::MAX } else { VERY_SHORT };
            let Ok(line) = timeout(patience, answer.line()).await else {
                works = true;
                continue;
            };
            let Some(line) = line? else { return Ok(()) };
            let event = Event::read(line)?;
            *brought = true;
            works = true;
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
                Event::Bookmark { version, .. } => {
                    self.bookmarks = true;
                    version
                }
            };
            if !seen.is_empty() {
                *version = seen;
            }
        }
    }

    /// Whether the server's version is older than `version`, as after etcd was restored from a backup: the watch is then silent
    /// until the server gets there, and changes until then would be lost. Versions of one server can be compared (KEP-5504).
    async fn is_ahead_of_the_server(&mut self, version: &str) -> bool {
        let Ok(current) = list::version::<K>(&self.connection.reader(), &self.path, &self.limits).await
        else {
            return false;
        };
        self.heard();
        match (current.parse::<u64>(), version.parse::<u64>()) {
            (Ok(current), Ok(version)) => current < version,
            _ => false,
        }
    }

    /// Handles a failure. Returns the pause.
    async fn settle(&mut self, failure: &RequestFailure) -> Duration {
        match (failure, K::ROW.remedy) {
            (RequestFailure::Missing(_), Some(remedy)) => {
                if self.kept.is_missing(kind_problems::missing(&K::ROW.resource, remedy)) {
                    tracing::warn!("{}", kind_problems::missing(&K::ROW.resource, remedy));
                }
                spread(self.limits.absent)
            }
            (RequestFailure::Forbidden(message), _) => {
                let pause = self.backoff.pause(None);
                if self.requires.is_some() {
                    self.kept.excuse();
                }
                let refused = self.refused_for(failure);
                let left = self.limits.refused.saturating_sub(refused);
                if left.is_zero() {
                    let problem = kind_problems::denied(&K::ROW, message);
                    if self.kept.is_denied(problem.clone()) {
                        self.log_denial(&problem);
                    }
                    if self.requires.is_some() { self.limits.while_refused(refused) } else { pause }
                } else {
                    pause.min(left)
                }
            }
            (failure, _) => {
                self.lost(failure);
                match failure {
                    RequestFailure::Unauthorized(_) => self.connection.reopen().await,
                    _ => self.connection.reopen_if_changed().await,
                };
                self.backoff.pause(failure.retry_after())
            }
        }
    }

    /// Has the definition looked for again, because the server does not know the kind, and pauses.
    async fn settle_undefined(&mut self, failure: &RequestFailure) {
        if let Some(Requirement { discovery, .. }) = &self.requires {
            discovery.refresh();
        }
        self.kept.is_unknown();
        let pause = self.backoff.pause(None);
        // A definition that was just installed or removed is known to one part of the server before another.
        if self.backoff.failures() > FIRST_FAILURES {
            self.lost(failure);
        }
        sleep(pause).await;
    }

    fn is_readable(&mut self) {
        if let Some(Requirement { discovery, .. }) = &self.requires
            && !K::ROW.resource.is_built_in()
        {
            discovery.is_readable();
            self.backoff.reset();
        }
    }

    /// Logs that the kind may not be read. Where none of the Gateway API may be, it is probably not wanted.
    fn log_denial(&self, problem: &Problem) {
        match &self.requires {
            Some(Requirement { mode: GatewayApiMode::Auto, discovery, .. }) if !discovery.reads_others() => {
                if discovery.is_first_denial() {
                    tracing::info!(
                        server = %self.connection.server(),
                        "the API server has the Gateway API, but does not let Sheave read it, so no Gateway is served; \
                         `kubectl apply -k deploy/gateway-api` permits it, and `gatewayAPI: {{mode: off}}` in the \
                         configuration ends this message"
                    );
                }
            }
            _ => tracing::warn!("{problem}"),
        }
    }

    /// How long the server has refused the kind. Refusals are not logged at first.
    fn refused_for(&mut self, failure: &RequestFailure) -> Duration {
        let kept = &self.kept;
        let since = self.refused.get_or_insert_with(|| {
            kept.failed(&failure.to_string());
            Instant::now()
        });
        since.elapsed()
    }

    fn lost(&self, failure: &RequestFailure) {
        if self.kept.failed(&failure.to_string()) {
            let (kind, server) = (K::ROW.resource.kind, self.connection.server());
            tracing::warn!(kind, %server, "{failure}; what is known of its {} stays in use", K::ROW.resource.plural);
        }
    }

    fn heard(&mut self) {
        self.refused = None;
        if self.kept.heard() {
            let (kind, server) = (K::ROW.resource.kind, self.connection.server());
            tracing::info!(kind, %server, "the API server's {} can be read now", K::ROW.resource.plural);
        }
    }
}
