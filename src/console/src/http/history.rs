//! Memory of a gateway: what has changed, and how much traffic each Service had, in a fixed amount of memory. The changes outlive the
//! process in its state folder.

mod changes;
mod compact;
mod event;
mod event_file;
mod recorder;
mod sampler;
mod series;
mod timeline;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as UrlQuery, State};
use axum::response::Response;
use axum::routing::get;
use jiff::Timestamp;
use serde::Deserialize;
use sheave_control::api::store::ServiceKey;
use sheave_dataplane::Observer;

use self::event_file::EventFile;
use self::recorder::{Memory, Recorder};
use self::series::{LONG, Reading, SHORT, Span};
use crate::http::gateway_pages::{bad_request, computed, parsed};
use crate::http::query::QuerySender;
use crate::views::View as _;
use crate::views::events::{EventView, EventsView};
use crate::views::explain::parse_service;
use crate::views::history::{HistoryView, SamplesView};
use crate::views::traffic::TrafficKey;

/// Path of the timeline.
pub(crate) const EVENTS_PATH: &str = "/api/events";
/// Path of the samples.
pub(crate) const HISTORY_PATH: &str = "/api/history";

/// Memory of this gateway. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct History {
    node: String,
    memory: Arc<Mutex<Memory>>,
}

impl History {
    /// Reads what earlier processes left in `state_dir`, and records until the control loop behind `queries` has ended. Without a folder,
    /// the memory ends with this process.
    pub(crate) fn start(
        observer: Observer,
        queries: QuerySender,
        state_dir: Option<&Path>,
        node: &str,
    ) -> Self {
        let file = state_dir.map(EventFile::in_folder);
        let memory = Arc::<Mutex<Memory>>::default();
        let recorder = Recorder { observer, queries, memory: Arc::clone(&memory), file };
        tokio::spawn(recorder.run());
        Self { node: node.to_owned(), memory }
    }

    /// Routes of the timeline and the samples.
    pub(crate) fn router(self) -> Router {
        Router::new().route(EVENTS_PATH, get(events)).route(HISTORY_PATH, get(history)).with_state(self)
    }

    /// Events that concern the Service or the whole gateway since then, oldest first.
    fn events(&self, wanted: Option<&ServiceKey>, since: Timestamp) -> EventsView {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let name = wanted.map(ToString::to_string);
        let concerns = |event: &&event::Event| {
            let service = event.service.as_ref().zip(name.as_ref());
            // A listener of a Gateway stands behind its name.
            service.is_none_or(|(of, name)| {
                of.strip_prefix(name.as_str()).is_some_and(|it| it.is_empty() || it.starts_with('/'))
            })
        };
        let recent = memory.timeline.events().filter(|event| event.time >= since);
        let events = recent.filter(concerns).map(|event| EventView {
            time: event.time,
            service: event.service.clone(),
            source: event.source.clone(),
            change: event.change.clone(),
            message: event.change.to_text(),
        });
        let events = events.collect();
        EventsView { node: self.node.clone(), service: name, events }
    }

    fn samples(&self, key: Option<&TrafficKey>) -> HistoryView {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let [short, long] = memory.sampler.read(key);
        drop(memory);
        HistoryView {
            node: self.node.clone(),
            service: key.map(ToString::to_string),
            end: Timestamp::now(),
            recent: samples(SHORT, &short),
            day: samples(LONG, &long),
        }
    }
}

fn samples(span: Span, readings: &[Reading]) -> SamplesView {
    let column = |of: fn(&Reading) -> u64| readings.iter().map(of).collect();
    let times = |which: usize| readings.iter().map(|it| it.times[which].map(series::bound)).collect();
    SamplesView {
        seconds: span.seconds,
        opened: column(|it| it.opened),
        open: column(|it| it.open),
        client_bytes: column(|it| it.client_bytes),
        endpoint_bytes: column(|it| it.endpoint_bytes),
        errors: column(|it| it.errors),
        connect_p50: times(0),
        connect_p99: times(1),
    }
}

/// Query of the timeline.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct EventsQuery {
    service: Option<String>,
    /// How far back, in seconds.
    since: Option<u32>,
}

async fn events(
    State(history): State<History>,
    query: Result<UrlQuery<EventsQuery>, QueryRejection>,
) -> Response {
    match parsed(query).and_then(|query| query.read()) {
        Ok((service, since)) => computed(move || history.events(service.as_ref(), since).to_json()).await,
        Err(why) => bad_request(why),
    }
}

impl EventsQuery {
    /// The Service, and the time of the first event.
    fn read(&self) -> Result<(Option<ServiceKey>, Timestamp), String> {
        let service = self.service.as_deref().map(parse_service).transpose()?;
        let back = self.since.map(|seconds| Duration::from_secs(seconds.into()));
        let since = back.and_then(|back| Timestamp::now().checked_sub(back).ok());
        Ok((service, since.unwrap_or(Timestamp::MIN)))
    }
}

/// Query of the samples: one Service, one listener of a Gateway, or all traffic.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HistoryQuery {
    service: Option<String>,
    multi_cluster_service: Option<String>,
    listener: Option<String>,
}

async fn history(
    State(history): State<History>,
    query: Result<UrlQuery<HistoryQuery>, QueryRejection>,
) -> Response {
    match parsed(query).and_then(|query| query.key()) {
        Ok(key) => computed(move || history.samples(key.as_ref()).to_compact_json()).await,
        Err(why) => bad_request(why),
    }
}

impl HistoryQuery {
    fn key(&self) -> Result<Option<TrafficKey>, String> {
        match (&self.service, &self.multi_cluster_service, &self.listener) {
            (None, None, None) => Ok(None),
            (Some(name), None, None) => parse_service(name).map(|key| Some(key.into())),
            (None, Some(name), None) => parse_service(name)
                .map(|key| Some(ServiceKey::multi_cluster(&key.namespace, &key.name).into())),
            (None, None, Some(listener)) => TrafficKey::of_listener(listener).map(Some),
            _ => Err("ask for one Service, MultiClusterService or listener".to_owned()),
        }
    }
}
