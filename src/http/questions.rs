//! What a gateway answers to administrators on the admin server, and to the controller on `report.listen`: its status and explanations.

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
use crate::views::explain::{Answer, Question, QuestionQuery};

/// The content type of every answer for programs.
pub(crate) const JSON: &str = "application/json";

/// Puts the questions to the gateway's loop.
pub(crate) fn router(queries: QuerySender) -> Router {
    Router::new().route(STATUS_PATH, get(status)).route(EXPLAIN_PATH, get(explain)).with_state(queries)
}

async fn status(State(queries): State<QuerySender>) -> Response {
    reply(&queries, Query::Status).await
}

/// The body has the same form whether the Service and port exist or not; the status code differs.
async fn explain(
    State(queries): State<QuerySender>,
    query: Result<UrlQuery<QuestionQuery>, QueryRejection>,
) -> Response {
    let question = match question(query) {
        Ok(question) => question,
        Err(why) => return bad_request(why),
    };
    let Ok(answer) = ask(&queries, |reply| Query::Explain(question, reply)).await else { return stuck() };
    let status = match answer {
        Answer::Explained(_) => StatusCode::OK,
        Answer::NotFound(_) => StatusCode::NOT_FOUND,
    };
    (status, [(header::CONTENT_TYPE, JSON)], answer.view().to_json()).into_response()
}

/// Reads a question of a URL.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn question(query: Result<UrlQuery<QuestionQuery>, QueryRejection>) -> Result<Question, String> {
    match query {
        Ok(UrlQuery(query)) => query.read(),
        Err(rejection) => Err(rejection.body_text()),
    }
}

/// Where a question cannot be read.
pub(crate) fn bad_request(why: String) -> Response {
    (StatusCode::BAD_REQUEST, why + "\n").into_response()
}

/// Answers with what the loop says, as JSON.
pub(crate) async fn reply(queries: &QuerySender, query: fn(oneshot::Sender<String>) -> Query) -> Response {
    match ask(queries, query).await {
        Ok(body) => ([(header::CONTENT_TYPE, JSON)], body).into_response(),
        Err(_) => stuck(),
    }
}

/// Where the loop does not answer.
pub(crate) fn stuck() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the gateway does not answer\n").into_response()
}
