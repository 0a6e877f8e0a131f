//! Computation behind all open pages: once a second while there is a page, and a little longer.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use sheave_dataplane::Observer;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant as Moment, MissedTickBehavior, interval};

use super::breakdown::TrafficBy;
use super::shown_state::{PageEvents, ShownState};
use super::stream::Subscription;
use crate::http::query::{Query, QuerySender, Unanswered, ask};

const TICK: Duration = Duration::from_secs(1);
/// Ticks that a page may lag behind before it is disconnected.
const QUEUED: usize = 16;
/// Lifetime of a stream. Shorter than the server's time limit for an answer, so that the stream ends between two events.
const LIFETIME: Duration = Duration::from_secs(45);
/// How long the computation continues without a page. Browsers reopen an ended stream after about a second, and a single page would
/// otherwise get everything again each time.
const LINGER: Duration = Duration::from_secs(10);

/// Request of a page for events.
#[derive(Debug)]
pub(super) struct Join {
    /// ID of the last event, if the page had the stream before.
    pub(super) last_event: Option<String>,
    /// Rows whose counters it wants.
    pub(super) traffic: Vec<TrafficBy>,
    pub(super) reply: oneshot::Sender<Subscription>,
}

/// Page that has joined.
struct OpenPage {
    since: Moment,
    traffic: Vec<TrafficBy>,
    events: mpsc::Sender<Bytes>,
}

/// Computes events and sends them to pages.
pub(super) struct Ticker {
    observer: Observer,
    queries: QuerySender,
    started: Instant,
}

impl Ticker {
    pub(super) fn new(observer: Observer, queries: QuerySender, started: Instant) -> Self {
        Self { observer, queries, started }
    }

    /// Serves pages until their server has ended.
    pub(super) async fn run(self, mut joins: mpsc::Receiver<Join>) {
        while let Some(first) = joins.recv().await {
            self.serve(first, &mut joins).await;
        }
    }

    /// Serves pages from the first one until all have been gone for a while, or the loop has ended.
    async fn serve(&self, first: Join, joins: &mut mpsc::Receiver<Join>) {
        let mut shown = ShownState::new();
        let mut pages: Vec<OpenPage> = Vec::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let Some((begun, _)) = self.advance(shown, &[]).await else { return };
        shown = begun;
        let mut next = Some(first);
        let mut seen = Moment::now();
        loop {
            if let Some(join) = next.take() {
                let Some(joined) = self.admit(shown, join, &mut pages).await else { return };
                shown = joined;
            }
            tokio::select! {
                join = joins.recv() => {
                    let Some(join) = join else { return };
                    next = Some(join);
                }
                _ = ticks.tick() => {
                    pages.retain(|page| !page.events.is_closed() && page.since.elapsed() < LIFETIME);
                    if !pages.is_empty() {
                        seen = Moment::now();
                    } else if seen.elapsed() >= LINGER {
                        return;
                    }
                    let wanted: Vec<TrafficBy> = pages.iter().flat_map(|page| &page.traffic).copied().collect();
                    let Some((advanced, events)) = self.advance(shown, &wanted).await else { return };
                    shown = advanced;
                    pages.retain(|page| page.events.try_send(events.of(&page.traffic)).is_ok());
                }
            }
        }
    }

    /// Computes the next state and its events; `None` if there will be no viewers.
    async fn advance(&self, shown: ShownState, wanted: &[TrafficBy]) -> Option<(ShownState, PageEvents)> {
        let known = shown.revision();
        let answer = match ask(&self.queries, |reply| Query::Overview(known, reply)).await {
            Ok(overview) => Some(overview),
            Err(Unanswered::Late) => None,
            Err(Unanswered::Gone) => return None,
        };
        let (observer, uptime) = (self.observer.clone(), milliseconds(self.started));
        let wanted = wanted.to_vec();
        let advanced = tokio::task::spawn_blocking(move || {
            let mut shown = shown;
            let events = shown.advance(answer, &observer, uptime, &wanted);
            (shown, events)
        });
        advanced.await.ok()
    }

    /// Sends a page what it is missing, and adds it to the pages.
    async fn admit(&self, shown: ShownState, join: Join, pages: &mut Vec<OpenPage>) -> Option<ShownState> {
        let Join { last_event, traffic, reply } = join;
        if reply.is_closed() {
            return Some(shown);
        }
        let (observer, uptime) = (self.observer.clone(), milliseconds(self.started));
        let wanted = traffic.clone();
        let caught_up = tokio::task::spawn_blocking(move || {
            let mut shown = shown;
            let mut first = shown.since(last_event.as_deref());
            first.extend(wanted.into_iter().map(|by| shown.all_traffic(by, &observer, uptime)));
            (shown, first)
        });
        let (shown, first) = caught_up.await.ok()?;
        let (events, next) = mpsc::channel(QUEUED);
        if reply.send(Subscription { first, next }).is_ok() {
            pages.push(OpenPage { since: Moment::now(), traffic, events });
        }
        Some(shown)
    }
}

pub(super) fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
