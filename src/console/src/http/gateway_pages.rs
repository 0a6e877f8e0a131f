//! Status and explanations of a gateway, for administrators on the admin server and for the controller on `report.listen`.

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as UrlQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sheave_control::api::gateway_report::{EXPLAIN_PATH, STATUS_PATH};
use tokio::sync::oneshot;

use crate::http::query::{Query, QuerySender, ask};
use crate::views::View as _;
use crate::views::explain::{Answer, Question, QuestionQuery, shorten};

/// Content type of all JSON answers.
pub(crate) const JSON: &str = "application/json";

/// Type of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Gets full answers.
    Administrator,
    /// Queries all gateways, and gets shortened explanations.
    Controller,
}

/// Routes that query the gateway's loop.
pub(crate) fn router(queries: QuerySender, asker: Asker) -> Router {
    Router::new()
        .route(STATUS_PATH, get(status))
        .route(EXPLAIN_PATH, get(explain))
        .with_state((queries, asker))
}

async fn status(State((queries, _)): State<(QuerySender, Asker)>) -> Response {
    reply(&queries, Query::Status).await
}

/// Answers with a body of the same form whether or not the Service and port exist; only the status code differs.
async fn explain(
    State((queries, asker)): State<(QuerySender, Asker)>,
    query: Result<UrlQuery<QuestionQuery>, QueryRejection>,
) -> Response {
    let question = match question(query) {
        Ok(question) => question,
        Err(why) => return bad_request(why),
    };
    let Ok(answer) = ask(&queries, |reply| Query::Explain(question, reply)).await else { return stuck() };
    let (is_found, mut view) = match answer {
        Answer::Explained(view) => (true, view),
        Answer::NotFound(view) => (false, view),
    };
    let body = match asker {
        Asker::Administrator => view.to_json(),
        Asker::Controller => {
            shorten(&mut view);
            view.to_compact_json()
        }
    };
    answered(is_found, body)
}

/// Responds with a JSON view: 404 if what it is about does not exist.
pub(crate) fn answered(is_found: bool, body: String) -> Response {
    let status = if is_found { StatusCode::OK } else { StatusCode::NOT_FOUND };
    (status, [(header::CONTENT_TYPE, JSON)], body).into_response()
}

/// Parses a question from a URL.
///
/// # Errors
/// If the question is invalid, as text.
pub(crate) fn question(query: Result<UrlQuery<QuestionQuery>, QueryRejection>) -> Result<Question, String> {
    parsed(query)?.read()
}

/// The query of a URL.
///
/// # Errors
/// If it is invalid, as text.
pub(crate) fn parsed<T>(query: Result<UrlQuery<T>, QueryRejection>) -> Result<T, String> {
    query.map(|UrlQuery(query)| query).map_err(|rejection| rejection.body_text())
}

/// Response to an invalid question.
pub(crate) fn bad_request(why: String) -> Response {
    (StatusCode::BAD_REQUEST, why + "\n").into_response()
}

/// Responds with JSON that takes long to compute, or waits for a lock: on another thread.
pub(crate) async fn computed(body: impl FnOnce() -> String + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(body).await {
        Ok(body) => ([(header::CONTENT_TYPE, JSON)], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Responds with the loop's JSON.
pub(crate) async fn reply(queries: &QuerySender, query: fn(oneshot::Sender<String>) -> Query) -> Response {
    match ask(queries, query).await {
        Ok(body) => ([(header::CONTENT_TYPE, JSON)], body).into_response(),
        Err(_) => stuck(),
    }
}

/// Response if the loop does not answer.
pub(crate) fn stuck() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the gateway does not answer\n").into_response()
}
