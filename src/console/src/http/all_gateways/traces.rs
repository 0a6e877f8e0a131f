//! `/api/fleet/trace` and `/api/fleet/capture/NODE`: a controller traces through all gateways at once, and captures on all of them. It keeps no
//! file: each gateway has its own until it is fetched.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path as UrlPath, Query as UrlQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sheave_control::api::gateway_report::{CAPTURE_PATH, TRACE_PATH};
use sheave_control::controller::all_gateways::{GatewayLink, KnownGateway};

use super::{AllGateways, NO_TIME, in_time, refused, unavailable, view_of};
use crate::http::gateway_pages::{answered, bad_request, question};
use crate::http::trace::{PCAP, capture_time, with_capture};
use crate::views::View as _;
use crate::views::all_gateways::{GatewayTrace, TracesView};
use crate::views::explain::{Question, QuestionQuery};
use crate::views::trace::CaptureView;

/// Path of the traces of all gateways; with a capture, of as many seconds as stand behind it.
pub(crate) const ALL_TRACE_PATH: &str = "/api/fleet/trace";
/// Path of the last captures, by node.
const ALL_CAPTURE_PATH: &str = "/api/fleet/capture";
/// Time that a gateway takes for a trace, and for sending a file.
const TRACE_TIME: Duration = Duration::from_secs(3);
/// Size limit of a trace in bytes.
const LONGEST_TRACE: usize = 1 << 17;
/// Size limit of a capture's file in bytes: more than any gateway makes.
const LONGEST_FILE: usize = 5 << 20;
/// Error for a gateway that does not trace for a controller.
const NO_TRACES: &str = "it does not trace for controllers: it runs an older version, or its report.listen has no authorization (`report.authorization`)";
/// Hint for a controller that a gateway does not trace for.
const NO_RIGHT: &str = "the controller may not trace there: its account needs the right to get /api/trace";

/// Routes of traces and captures.
pub(super) fn router() -> Router<AllGateways> {
    Router::new()
        .route(ALL_TRACE_PATH, get(trace))
        .route(&format!("{ALL_TRACE_PATH}/{{seconds}}"), get(trace_with_capture))
        .route(&format!("{ALL_CAPTURE_PATH}/{{node}}"), get(file))
}

async fn trace(
    State(gateways): State<AllGateways>,
    query: Result<UrlQuery<QuestionQuery>, QueryRejection>,
) -> Response {
    match question(query) {
        Ok(question) => answer(&gateways, &question, None).await,
        Err(why) => bad_request(why),
    }
}

async fn trace_with_capture(
    State(gateways): State<AllGateways>,
    seconds: Result<UrlPath<u64>, PathRejection>,
    query: Result<UrlQuery<QuestionQuery>, QueryRejection>,
) -> Response {
    match (capture_time(seconds), question(query)) {
        (Ok(time), Ok(question)) => answer(&gateways, &question, Some(time)).await,
        (Err(why), _) | (_, Err(why)) => bad_request(why),
    }
}

async fn answer(gateways: &AllGateways, question: &Question, capture: Option<Duration>) -> Response {
    let Ok(_place) = gateways.tracing.try_acquire() else {
        return unavailable("other traces are running; try again".to_owned());
    };
    let work = TRACE_TIME + capture.unwrap_or_default();
    let path: Arc<str> = question.path(&with_capture(TRACE_PATH, capture)).into();
    let traced = in_time(work, async {
        let mut answers = Vec::new();
        let ask = |gateway| trace_of(gateway, Arc::clone(&path));
        let take = |gateway: KnownGateway, answer: Option<GatewayTrace>| {
            let answer = answer.unwrap_or_else(|| Err(NO_TIME.to_owned()));
            answers.push((gateway, answer));
        };
        gateways.client.ask(gateways.gateways().await?, work, ask, take).await;
        Ok(with_files(answers))
    });
    match traced.await {
        Ok(view) => answered(view.is_found() || view.gateways.is_empty(), view.to_json()),
        Err(why) => unavailable(why),
    }
}

/// Tells where this controller has the files.
fn with_files(answers: Vec<(KnownGateway, GatewayTrace)>) -> TracesView {
    let mut view = TracesView::new(answers);
    for gateway in &mut view.gateways {
        if let Some(CaptureView { path, file, .. }) = &mut gateway.trace.capture {
            *path = format!("{ALL_CAPTURE_PATH}/{}", gateway.trace.node);
            *file = None;
        }
    }
    view
}

async fn trace_of(gateway: GatewayLink, path: Arc<str>) -> GatewayTrace {
    let why = |status, body: &[u8]| match status {
        StatusCode::NOT_FOUND => NO_TRACES.to_owned(),
        StatusCode::FORBIDDEN => NO_RIGHT.to_owned(),
        status => refused(status, body),
    };
    view_of(gateway, &path, LONGEST_TRACE, why).await
}

async fn file(State(gateways): State<AllGateways>, node: Result<UrlPath<String>, PathRejection>) -> Response {
    let UrlPath(node) = match node {
        Ok(node) => node,
        Err(rejection) => return bad_request(rejection.body_text()),
    };
    let fetched = in_time(TRACE_TIME, async {
        // One file at a time is in memory. The semaphore is never closed.
        let _place = gateways.fetching.acquire().await;
        let mut known = gateways.gateways().await?;
        known.retain(|gateway| gateway.node == node);
        let mut answer = None;
        let ask = |gateway: GatewayLink| async move { gateway.get(CAPTURE_PATH, LONGEST_FILE).await };
        gateways.client.ask(known, TRACE_TIME, ask, |_, taken| answer = Some(taken)).await;
        match answer {
            None => Err(format!("there is no gateway on node {node}")),
            Some(None) => Err(NO_TIME.to_owned()),
            Some(Some(Err(error))) => Err(error.to_string()),
            Some(Some(Ok((StatusCode::OK, body)))) => Ok(body),
            Some(Some(Ok((status, body)))) => Err(refused(status, &body)),
        }
    });
    match fetched.await {
        Ok(body) => ([(header::CONTENT_TYPE, PCAP)], body).into_response(),
        Err(why) => unavailable(why),
    }
}
