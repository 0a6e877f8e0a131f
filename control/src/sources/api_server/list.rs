//! Lists of all objects of one kind, streamed if the server supports it and otherwise in pages. Kept objects do not change until
//! a list is complete.

use kube::Client;
use kube::core::params::{ListParams, WatchParams};
use kube::core::request::Request;
use tokio::time::Instant;

use super::cache::{Cache, Staging};
use super::item::{Event, Item};
use super::limits::WatchLimits;
use super::page;
use super::request::{AnswerTimeouts, RequestFailure, get, uncompressed};
use crate::api::kinds::Kind;
use crate::backoff::Backoff;

/// Longest time until a refused stream is retried, in multiples of the first one.
const LONGEST_REFUSAL: u32 = 12;

/// A complete list.
pub(super) struct List<K: Kind> {
    pub(super) stage: Staging<K>,
    /// Version of the list, from which to watch.
    pub(super) version: String,
}

/// Result of a request for a streamed list.
#[must_use]
pub(super) enum Streamed<K: Kind> {
    Complete(List<K>),
    /// The server does not stream lists: it refuses, or ends the stream without marking the list as complete.
    NotHere,
}

/// Requests a streamed list: the server need not build the whole list, and the client need not hold it as text. The answer
/// continues as a watch, which is not used, because its long timeout would hide a dead connection.
pub(super) async fn streamed<K: Kind>(
    client: &Client,
    path: &str,
    kept: &Cache<K>,
    limits: &WatchLimits,
) -> Result<Streamed<K>, RequestFailure> {
    let seconds = u32::try_from(limits.list.as_secs()).ok();
    let params = WatchParams {
        timeout: seconds,
        send_initial_events: true,
        bookmarks: true,
        label_selector: selector::<K>(),
        ..Default::default()
    };
    let request = uncompressed(Request::new(path).watch(&params, ""));
    let mut answer = match get(client, request, patience(limits)).await {
        Err(failure) if refuses(&failure) => return Ok(Streamed::NotHere),
        answer => answer?,
    };
    let mut stage = Staging::default();
    loop {
        let line = match answer.line().await {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(Streamed::NotHere),
            Err(error) => return Err(error),
        };
        let event = match Event::read(line) {
            Err(failure) if refuses(&failure) => return Ok(Streamed::NotHere),
            event => event?,
        };
        match event {
            Event::Put(item) => kept.stage_one(&mut stage, item),
            Event::Gone(item) => stage.remove(&item.key),
            Event::Bookmark { ends_list: false, .. } => {}
            Event::Bookmark { version, ends_list: true } => {
                return Ok(Streamed::Complete(List { stage, version }));
            }
        }
    }
}

/// Whether the failure means that the server cannot stream, as opposed to a temporary one. A kind that it does not know cannot be
/// listed either.
fn refuses(failure: &RequestFailure) -> bool {
    matches!(failure, RequestFailure::Missing(_) | RequestFailure::Status { code: 400 | 405 | 422, .. })
}

/// Requests a list in pages. If the server has forgotten the version of the next page, the list is requested as a whole, as in
/// client-go's pager: a list that takes longer than the server's history could never complete.
pub(super) async fn paged<K: Kind>(
    client: &Client,
    path: &str,
    kept: &Cache<K>,
    limits: &WatchLimits,
) -> Result<List<K>, RequestFailure> {
    let all = ListParams { label_selector: selector::<K>(), ..Default::default() };
    let mut params = ListParams { limit: Some(limits.page), ..all.clone() };
    let mut stage = Staging::default();
    loop {
        let request = Request::new(path).list(&params);
        let text = match get(client, request, patience(limits)).await {
            Ok(answer) => answer.whole().await?,
            Err(RequestFailure::Expired(_)) if params.continue_token.is_some() => {
                params = all.clone();
                stage = Staging::default();
                continue;
            }
            Err(error) => return Err(error),
        };
        let page = page::read(&text, |value| match Item::new(value) {
            Some(item) => kept.stage_one(&mut stage, item),
            None => {
                tracing::debug!(kind = K::ROW.resource.kind, "the API server lists an object without a name");
            }
        });
        let page = page.map_err(|error| RequestFailure::Garbled(format!("in a list: {error}")))?;
        if page.resource_version.is_empty() {
            return Err(RequestFailure::Garbled("a list without a resourceVersion".to_owned()));
        }
        if page.next.is_empty() {
            return Ok(List { stage, version: page.resource_version });
        }
        params.continue_token = Some(page.next);
    }
}

/// Current resource version of the server.
pub(super) async fn version<K: Kind>(
    client: &Client,
    path: &str,
    limits: &WatchLimits,
) -> Result<String, RequestFailure> {
    let params = ListParams { limit: Some(1), label_selector: selector::<K>(), ..Default::default() };
    let request = Request::new(path).list(&params);
    let text = get(client, request, patience(limits)).await?.whole().await?;
    let page =
        page::read(&text, drop).map_err(|error| RequestFailure::Garbled(format!("in a list: {error}")))?;
    Ok(page.resource_version)
}

/// The label selector for requests.
pub(super) fn selector<K: Kind>() -> Option<String> {
    (!K::ROW.selector.is_empty()).then(|| K::ROW.selector.to_owned())
}

/// Timeouts of a list.
pub(super) fn patience(limits: &WatchLimits) -> AnswerTimeouts {
    AnswerTimeouts { head: limits.silence, piece: limits.silence, whole: limits.list }
}

/// Whether to request the next list of a kind as a stream. Streaming is the best way if it works. A failure does not mean that it
/// keeps failing, so streams are retried after every failure, sooner or later.
#[derive(Debug)]
pub(super) struct Streaming {
    /// How long a refusal counts.
    refusals: Backoff,
    /// End of the last refusal.
    refused_until: Option<Instant>,
    /// Whether the last stream failed, for whatever reason. If the server has a problem, pages fail as well, and the next list is
    /// a stream again; if only streams have one, pages work.
    failed: bool,
}

impl Streaming {
    pub(super) fn new(limits: &WatchLimits) -> Self {
        let refusals = Backoff::new(limits.unstreamed, limits.unstreamed * LONGEST_REFUSAL);
        Self { refusals, refused_until: None, failed: false }
    }

    /// Whether to request a stream now. After a failure the result is false once.
    pub(super) fn is_due(&mut self) -> bool {
        let failed = std::mem::take(&mut self.failed);
        !failed && self.refused_until.is_none_or(|until| until <= Instant::now())
    }

    /// Records that a streamed list completed.
    pub(super) fn worked(&mut self) {
        self.refusals.reset();
        self.refused_until = None;
    }

    /// Records that the server refused to stream a list.
    pub(super) fn refused(&mut self) {
        self.refused_until = Some(Instant::now() + self.refusals.pause(None));
    }

    /// Records that a stream failed for a reason other than a refusal.
    pub(super) fn failed(&mut self) {
        self.failed = true;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[test]
    fn a_failure_costs_one_stream() {
        let mut streaming = Streaming::new(&WatchLimits::default());
        assert!(streaming.is_due());
        streaming.failed();
        assert!(!streaming.is_due());
        assert!(streaming.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_for_minutes_and_the_next_one_for_longer() {
        let mut streaming = Streaming::new(&WatchLimits::default());
        for minutes in [5, 10, 20, 40, 60, 60] {
            let longest = Duration::from_secs(minutes * 60);
            streaming.refused();
            advance(longest / 2 - Duration::from_secs(1)).await;
            assert!(!streaming.is_due(), "{longest:?}");
            advance(longest / 2 + Duration::from_secs(1)).await;
            assert!(streaming.is_due(), "{longest:?}");
        }
        streaming.worked();
        streaming.refused();
        advance(Duration::from_secs(5 * 60)).await;
        assert!(streaming.is_due());
    }
}
