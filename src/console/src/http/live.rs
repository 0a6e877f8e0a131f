//! Live updates for status pages and `sheave top`: a stream of server-sent events for each, and the counters of the Services that a
//! page shows.
//!
//! One computation a second serves all pages, on a separate thread, and none runs without a page. A page that does not read is
//! disconnected, as is one that has been open for a while: its browser reopens the stream and continues where it was.

mod breakdown;
mod catch_up;
mod event;
mod shown_state;
mod stream;
mod ticker;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as UrlQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use sheave_control::api::store::ServiceKey;
use sheave_dataplane::Observer;
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::breakdown::TrafficBy;
use self::stream::EventStream;
use self::ticker::{Join, Ticker};
use crate::http::gateway_pages::{bad_request, computed, parsed};
use crate::http::query::QuerySender;
use crate::views::View as _;
use crate::views::explain::parse_service;
use crate::views::traffic::{TrafficKey, TrafficView};

/// Limit of concurrent streams. The admin server allows twice as many connections, so that others get through.
const MOST_STREAMS: usize = 16;
/// Limit of Services in one request for counters, which is more than a page shows.
const MOST_SERVICES: usize = 200;

/// Live updates of status pages. Clones share the computation.
#[derive(Clone)]
pub(super) struct LivePages {
    observer: Observer,
    started: Instant,
    joins: mpsc::Sender<Join>,
    room: Arc<Semaphore>,
}

impl LivePages {
    /// Starts the updates from `observer` of the data plane and `queries` to the control loop.
    pub(super) fn start(observer: Observer, queries: QuerySender) -> Self {
        let (joins, joining) = mpsc::channel(MOST_STREAMS);
        let started = Instant::now();
        tokio::spawn(Ticker::new(observer.clone(), queries, started).run(joining));
        Self { observer, started, joins, room: Arc::new(Semaphore::new(MOST_STREAMS)) }
    }

    /// Router of the stream and the counters.
    pub(crate) fn router(self) -> Router {
        Router::new().route("/api/live", get(live)).route("/api/traffic", get(traffic)).with_state(self)
    }
}

/// Query of a page that reopens the stream after it was hidden. A browser that reconnects on its own sends the event ID in a header
/// instead.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LiveQuery {
    last_event: Option<String>,
    /// Rows whose counters are added to the totals, separated by commas: all Services, endpoints or clients.
    #[serde(default, deserialize_with = "TrafficBy::list")]
    traffic: Vec<TrafficBy>,
}

/// Events of one page, from the last one that it has.
async fn live(
    State(pages): State<LivePages>,
    headers: HeaderMap,
    query: Result<UrlQuery<LiveQuery>, QueryRejection>,
) -> Response {
    let LiveQuery { last_event, traffic } = match parsed(query) {
        Ok(query) => query,
        Err(why) => return bad_request(why),
    };
    let Ok(place) = Arc::clone(&pages.room).try_acquire_owned() else {
        let full =
            format!("{MOST_STREAMS} status pages and `sheave top` are open, which is the most; close one\n");
        return (StatusCode::SERVICE_UNAVAILABLE, full).into_response();
    };
    let by_header = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let last_event = by_header.or(last_event);
    let (reply, joined) = oneshot::channel();
    let joining = async {
        pages.joins.send(Join { last_event, traffic, reply }).await.ok()?;
        joined.await.ok()
    };
    match joining.await {
        Some(subscription) => EventStream::new(subscription, place).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the gateway does not answer\n").into_response(),
    }
}

/// Names of Services whose counters are requested, separated by commas.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TrafficQuery {
    #[serde(default)]
    services: String,
    #[serde(default)]
    multi_cluster_services: String,
    /// Listeners of Gateways, as `namespace/gateway/listener`.
    #[serde(default)]
    listeners: String,
}

impl TrafficQuery {
    fn read(&self) -> Result<Vec<TrafficKey>, String> {
        let names = |text: &str| -> Result<Vec<ServiceKey>, String> {
            text.split(',').filter(|name| !name.is_empty()).map(parse_service).collect()
        };
        let mut keys = names(&self.services)?;
        let exposed = names(&self.multi_cluster_services)?;
        keys.extend(exposed.iter().map(|key| ServiceKey::multi_cluster(&key.namespace, &key.name)));
        let mut keys: Vec<TrafficKey> = keys.into_iter().map(TrafficKey::from).collect();
        let listeners = self.listeners.split(',').filter(|name| !name.is_empty());
        let listeners = listeners.map(TrafficKey::of_listener);
        keys.extend(listeners.collect::<Result<Vec<_>, _>>()?);
        if keys.len() > MOST_SERVICES {
            return Err(format!("ask for at most {MOST_SERVICES} at once"));
        }
        Ok(keys)
    }
}

async fn traffic(
    State(pages): State<LivePages>,
    query: Result<UrlQuery<TrafficQuery>, QueryRejection>,
) -> Response {
    let asked = match parsed(query).and_then(|query| query.read()) {
        Ok(asked) => asked,
        Err(why) => return bad_request(why),
    };
    let uptime = ticker::milliseconds(pages.started);
    computed(move || TrafficView::of_services(uptime, &pages.observer, &asked).to_json()).await
}
