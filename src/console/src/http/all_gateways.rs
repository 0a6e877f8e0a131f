//! Queries to all gateways through a controller: `/api/fleet`, `/api/fleet/explain` and `/api/fleet/trace`.

mod traces;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as UrlQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::de::DeserializeOwned;
use sheave_control::api::gateway_report::{EXPLAIN_PATH, STATUS_PATH};
use sheave_control::controller::ControllerStatus;
use sheave_control::controller::all_gateways::{GatewayClient, GatewayLink, KnownGateway};
use sheave_control::text::one_line;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, timeout};

pub(crate) use self::traces::ALL_TRACE_PATH;
use crate::http::gateway_pages::{JSON, answered, bad_request, question};
use crate::views::View as _;
use crate::views::all_gateways::{
    AllGatewaysView, ExplanationsView, GatewayAnswer, GatewayExplanation, bounded_view,
};
use crate::views::explain::{Answer, Question, QuestionQuery};
use crate::views::status::collect;

/// Path of the explanations of all gateways.
pub(crate) const ALL_EXPLAIN_PATH: &str = "/api/fleet/explain";

/// How long an answer is reused, regardless of the number of clients.
const FRESH: Duration = Duration::from_secs(2);
/// Time limit of an answer: less than the 20 s that `sheave` waits for it, and enough to query gateways twice.
const DEADLINE: Duration = Duration::from_secs(17);
/// Time that gateways need to apply a change that others have already applied.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Size limit of a status in bytes. Lists in a status are short, so a valid one is smaller.
const LONGEST_STATUS: usize = 1 << 17;
/// Size limit of an explanation in bytes. Gateways shorten theirs.
const LONGEST_EXPLANATION: usize = 1 << 20;
/// How many bytes of a gateway's error are shown.
const LONGEST_REFUSAL: usize = 200;
/// Concurrent explanations, each of which queries all gateways.
const EXPLAINING: usize = 4;
/// Concurrent traces: as many as a gateway runs.
const TRACING: usize = 2;
/// Error for a gateway that was not queried in time.
const NO_TIME: &str = "not asked in time: too many gateways are slow";
/// Error for a gateway that cannot be queried.
const NO_PORT: &str =
    "its Service has no port named `report` (`gateways.service` in the config of the controller)";
/// Error for a gateway that only answers its report.
const REPORT_ALONE: &str = "it answers nothing but its report: it runs an older version, or its report.listen has no authorization (`report.authorization`)";

/// State of all gateways, queried on demand. Clones share it.
#[derive(Clone)]
pub struct AllGateways {
    node: String,
    client: GatewayClient,
    status: watch::Receiver<ControllerStatus>,
    last: Arc<Mutex<Option<LastAnswer>>>,
    explaining: Arc<Semaphore>,
    tracing: Arc<Semaphore>,
    /// One file of a capture at a time.
    fetching: Arc<Semaphore>,
}

/// Last answer or error, and when it was made.
struct LastAnswer {
    at: Instant,
    json: Result<Arc<str>, String>,
}

impl AllGateways {
    /// Created by a controller on `node`.
    pub fn new(node: String, client: GatewayClient, status: watch::Receiver<ControllerStatus>) -> Self {
        let [explaining, tracing, fetching] =
            [EXPLAINING, TRACING, 1].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { node, client, status, last: Arc::default(), explaining, tracing, fetching }
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/api/fleet", get(all))
            .route(ALL_EXPLAIN_PATH, get(explain))
            .merge(traces::router())
            .with_state(self)
    }

    /// The state as JSON. Concurrent requests share the same answer or error.
    async fn json(&self) -> Result<Arc<str>, String> {
        shared(&self.last, || async {
            let mut view = self.ask().await?;
            if view.tables_differ() {
                tokio::time::sleep(CATCH_UP).await;
                view = self.ask().await?;
            }
            Ok(view.to_json().into())
        })
        .await
    }

    async fn ask(&self) -> Result<AllGatewaysView, String> {
        let mut answers = Vec::new();
        let take = |gateway, answer: Option<GatewayAnswer>| {
            answers.push((gateway, answer.unwrap_or_else(|| GatewayAnswer::Silent(NO_TIME.to_owned()))));
        };
        self.client.ask(self.gateways().await?, Duration::ZERO, status_of, take).await;
        let controller = collect::of_controller(&self.status.borrow());
        Ok(AllGatewaysView::new(&self.node, controller, answers))
    }

    /// Explanations of all gateways.
    async fn explain(&self, question: &Question) -> Result<ExplanationsView, String> {
        let path: Arc<str> = question.path(EXPLAIN_PATH).into();
        let ask = |gateway| explanation_of(gateway, Arc::clone(&path));
        let mut view = ExplanationsView::default();
        let take = |gateway, answer: Option<GatewayExplanation>| {
            view.add(gateway, answer.unwrap_or_else(|| Err(NO_TIME.to_owned())));
        };
        self.client.ask(self.gateways().await?, Duration::ZERO, ask, take).await;
        Ok(view.sorted())
    }

    async fn gateways(&self) -> Result<Vec<KnownGateway>, String> {
        self.client.gateways().await.map_err(|error| {
            format!("this controller does not lead, and the API server does not list the gateways: {error}")
        })
    }
}

/// Returns the last answer if it is fresh, else makes a new one.
async fn shared<F: Future<Output = Result<Arc<str>, String>>>(
    last: &Mutex<Option<LastAnswer>>,
    ask: impl FnOnce() -> F,
) -> Result<Arc<str>, String> {
    let mut last = last.lock().await;
    if let Some(last) = last.as_ref().filter(|last| last.at.elapsed() < FRESH) {
        return last.json.clone();
    }
    let json = in_time(Duration::ZERO, ask()).await;
    *last = Some(LastAnswer { at: Instant::now(), json: json.clone() });
    json
}

/// `work` is what an answer takes beyond those to queries.
async fn in_time<T>(work: Duration, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let deadline = DEADLINE + work;
    let late = |_| Err(format!("the gateways were not all asked within {} s", deadline.as_secs()));
    timeout(deadline, answer).await.unwrap_or_else(late)
}

async fn all(State(gateways): State<AllGateways>) -> Response {
    match gateways.json().await {
        Ok(json) => ([(header::CONTENT_TYPE, JSON)], json.as_ref().to_owned()).into_response(),
        Err(why) => unavailable(why),
    }
}

/// Responds like a single gateway: 404 if no gateway knows the Service or port.
async fn explain(
    State(gateways): State<AllGateways>,
    query: Result<UrlQuery<QuestionQuery>, QueryRejection>,
) -> Response {
    let question = match question(query) {
        Ok(question) => question,
        Err(why) => return bad_request(why),
    };
    let explained = in_time(Duration::ZERO, async {
        // The semaphore is never closed.
        let _place = gateways.explaining.acquire().await;
        gateways.explain(&question).await
    });
    match explained.await {
        Ok(view) => answered(view.is_found(), view.to_json()),
        Err(why) => unavailable(why),
    }
}

fn unavailable(why: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, why + "\n").into_response()
}

/// Queries a gateway's status, or else its report.
async fn status_of(gateway: GatewayLink) -> GatewayAnswer {
    if !gateway.can_be_asked() {
        return GatewayAnswer::Silent(NO_PORT.to_owned());
    }
    let why = match gateway.get(STATUS_PATH, LONGEST_STATUS).await {
        Ok((StatusCode::OK, body)) => match bounded_view(&body) {
            Ok(status) => return GatewayAnswer::of_status(status),
            Err(error) => format!("its status cannot be read, as of another version: {error}"),
        },
        Ok((StatusCode::NOT_FOUND, _)) => REPORT_ALONE.to_owned(),
        Ok((status, body)) => return GatewayAnswer::Silent(refused(status, &body)),
        Err(error) => return GatewayAnswer::Silent(error.to_string()),
    };
    match gateway.report().await {
        Ok(report) => GatewayAnswer::of_report(report, why),
        Err(error) => GatewayAnswer::Silent(error.to_string()),
    }
}

/// Queries a gateway's explanation.
async fn explanation_of(gateway: GatewayLink, path: Arc<str>) -> GatewayExplanation {
    let why = |status, body: &[u8]| match status {
        StatusCode::NOT_FOUND => REPORT_ALONE.to_owned(),
        status => refused(status, body),
    };
    let (is_found, view) = view_of(gateway, &path, LONGEST_EXPLANATION, why).await?;
    Ok(if is_found { Answer::Explained(view) } else { Answer::NotFound(view) })
}

/// Queries a gateway's view, and whether what it is about exists there. `refusal` is the error message for any other answer.
async fn view_of<T: DeserializeOwned>(
    gateway: GatewayLink,
    path: &str,
    longest: usize,
    refusal: impl FnOnce(StatusCode, &[u8]) -> String,
) -> Result<(bool, T), String> {
    if !gateway.can_be_asked() {
        return Err(NO_PORT.to_owned());
    }
    let (status, body) = gateway.get(path, longest).await.map_err(|error| error.to_string())?;
    match (status, bounded_view(&body)) {
        (StatusCode::OK, Ok(view)) => Ok((true, view)),
        (StatusCode::NOT_FOUND, Ok(view)) => Ok((false, view)),
        (StatusCode::OK, Err(error)) => {
            Err(format!("its answer cannot be read, as of another version: {error}"))
        }
        (status, _) => Err(refusal(status, &body)),
    }
}

/// Error message for a refused query.
fn refused(status: StatusCode, body: &[u8]) -> String {
    let mut why = String::from_utf8_lossy(body).trim().to_owned();
    one_line(&mut why, LONGEST_REFUSAL);
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            " (`gateways.tokenFile` in the config of the controller)"
        }
        StatusCode::SERVICE_UNAVAILABLE if why.contains("token") => " (does it reach the API server?)",
        _ => "",
    };
    format!("it answers {status}: {why}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_at_the_same_time_share_a_failure() {
        let last = Mutex::default();
        let slow = |text: &'static str| async move {
            tokio::time::sleep(Duration::from_secs(7)).await;
            Err(text.to_owned())
        };
        let began = Instant::now();
        let (one, other) = tokio::join!(shared(&last, || slow("first")), shared(&last, || slow("second")));
        assert_eq!((one, other), (Err("first".to_owned()), Err("first".to_owned())));
        assert_eq!(began.elapsed().as_secs(), 7);
        tokio::time::sleep(FRESH).await;
        assert_eq!(shared(&last, || slow("third")).await, Err("third".to_owned()));
        let stuck = shared(&Mutex::default(), std::future::pending).await;
        assert_eq!(stuck, Err("the gateways were not all asked within 17 s".to_owned()));
    }

    #[test]
    fn a_refusal_is_told_in_one_line_with_what_to_do() {
        let text = refused(StatusCode::SERVICE_UNAVAILABLE, b"the token cannot be checked now\n");
        assert_eq!(
            text,
            "it answers 503 Service Unavailable: the token cannot be checked now (does it reach the API server?)"
        );
        let hostile = [&b"\x1b[31m\xff"[..], &[b'x'; 9000]].concat();
        let text = refused(StatusCode::FORBIDDEN, &hostile);
        assert!(text.len() < 400 && text.starts_with("it answers 403 Forbidden:  [31m"), "{text}");
        assert!(text.ends_with("... (`gateways.tokenFile` in the config of the controller)"), "{text}");
    }
}
