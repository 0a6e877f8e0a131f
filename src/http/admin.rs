//! The gateway's admin server: health, metrics, routes, explanations and status, on loopback by default.
//!
//! It holds no state. Each query goes to the event loop, which also proves that the loop runs. Metrics are rendered on another thread;
//! the loop only adds what it alone knows.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as UrlQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sheave_control::sources::connection::Connection;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::config::Metrics;
use crate::http::metrics::LoopFacts;
use crate::http::metrics::scrape::ScrapeQueue;
use crate::http::server::guarded::{GuardedListener, Page};
use crate::http::server::{Connections, Server};
use crate::views::View as _;
use crate::views::explain::{Answer, Question, QuestionQuery};

/// How long a question may wait before the gateway counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// The content type of every answer for programs.
const JSON: &str = "application/json";

/// A question to the gateway, with where to send the answer.
#[derive(Debug)]
pub(crate) enum Query {
    /// Can the process go on? If not: why it must be started anew.
    Live(oneshot::Sender<ProbeResult>),
    /// Is there a table, and do the workers answer? If not: what is missing.
    Ready(oneshot::Sender<ProbeResult>),
    /// What a scrape shows besides what can be read off the data plane.
    Metrics(oneshot::Sender<LoopFacts>),
    /// The routing table as JSON.
    Routes(oneshot::Sender<String>),
    /// The gateways, and who announces which address, as JSON.
    Gateways(oneshot::Sender<String>),
    /// How the process is, as JSON.
    Status(oneshot::Sender<String>),
    /// Why a client goes where it goes.
    Explain(Question, oneshot::Sender<Answer>),
}

/// All is well, or what is not.
pub(crate) type ProbeResult = Result<(), &'static str>;

/// Where queries are put.
pub(crate) type QuerySender = mpsc::Sender<Query>;

/// Answers on `listener` until the result is dropped.
pub(crate) fn serve(
    listener: TcpListener,
    queries: QuerySender,
    scrapes: ScrapeQueue,
    connections: Connections,
) -> Server {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/api/routes", get(routes))
        .route("/api/gateways", get(gateways))
        .route("/api/status", get(status))
        .route("/api/explain", get(explain))
        .with_state(queries.clone())
        .merge(metrics_page(queries, scrapes));
    Server::start(listener, router, connections)
}

/// Answers scrapes alone on `listener` until the result is dropped.
pub(crate) fn serve_metrics(
    listener: GuardedListener,
    queries: QuerySender,
    scrapes: ScrapeQueue,
    connections: Connections,
) -> Server {
    listener.serve(metrics_page(queries, scrapes), connections)
}

fn metrics_page(queries: QuerySender, scrapes: ScrapeQueue) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state((queries, scrapes))
}

/// Opens the address that the configuration gives to scrapers, if it does.
///
/// # Errors
/// As [`bind`], and what is wrong with the environment.
pub(crate) async fn bind_metrics(config: &Metrics) -> Result<Option<TcpListener>, String> {
    match config.listen {
        Some(listen) => bind("metrics", listen.addr()?).await.map(Some),
        None => Ok(None),
    }
}

/// Lets in on `listener` whom the configuration names.
///
/// # Errors
/// As [`GuardedListener::new`].
pub(crate) fn guard_metrics(
    listener: Option<TcpListener>,
    config: &Metrics,
    connection: Option<&Connection>,
) -> Result<Option<GuardedListener>, String> {
    let page = Page { section: "metrics", path: "/metrics", audience: None };
    let guard = (&config.authorization, config.tls.as_ref());
    listener.map(|listener| GuardedListener::new(listener, page, guard, connection)).transpose()
}

/// Opens the address that `section` of the configuration gives.
///
/// # Errors
/// As bind(2), with the address and what to change.
pub(crate) async fn bind(section: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(addr).await.map_err(|error| {
        format!("{section} address {addr}: {error}; choose another with {section}.listen in the config")
    })
}

/// The process answers, and so does the loop that everything depends on.
async fn livez(State(queries): State<QuerySender>) -> Response {
    verdict(&queries, Query::Live, "not live").await
}

async fn readyz(State(queries): State<QuerySender>) -> Response {
    verdict(&queries, Query::Ready, "not ready").await
}

async fn verdict(
    queries: &QuerySender,
    query: fn(oneshot::Sender<ProbeResult>) -> Query,
    otherwise: &str,
) -> Response {
    match ask(queries, query).await {
        Some(Ok(())) => (StatusCode::OK, "ok\n").into_response(),
        Some(Err(why)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{otherwise}: {why}\n")).into_response(),
        None => stuck(),
    }
}

async fn metrics(State((queries, scrapes)): State<(QuerySender, ScrapeQueue)>) -> Response {
    scrapes.answer(ask(&queries, Query::Metrics)).await.unwrap_or_else(stuck)
}

async fn routes(State(queries): State<QuerySender>) -> Response {
    reply(&queries, Query::Routes).await
}

async fn gateways(State(queries): State<QuerySender>) -> Response {
    reply(&queries, Query::Gateways).await
}

async fn status(State(queries): State<QuerySender>) -> Response {
    reply(&queries, Query::Status).await
}

/// The body has the same form whether the Service and port exist or not; the status code differs.
async fn explain(
    State(queries): State<QuerySender>,
    query: Result<UrlQuery<QuestionQuery>, QueryRejection>,
) -> Response {
    let question = match query {
        Ok(UrlQuery(query)) => query.read(),
        Err(rejection) => Err(rejection.body_text()),
    };
    let question = match question {
        Ok(question) => question,
        Err(why) => return (StatusCode::BAD_REQUEST, why + "\n").into_response(),
    };
    let Some(answer) = ask(&queries, |reply| Query::Explain(question, reply)).await else { return stuck() };
    let status = match answer {
        Answer::Explained(_) => StatusCode::OK,
        Answer::NotFound(_) => StatusCode::NOT_FOUND,
    };
    (status, [(header::CONTENT_TYPE, JSON)], answer.view().to_json()).into_response()
}

async fn reply(queries: &QuerySender, query: fn(oneshot::Sender<String>) -> Query) -> Response {
    match ask(queries, query).await {
        Some(body) => ([(header::CONTENT_TYPE, JSON)], body).into_response(),
        None => stuck(),
    }
}

fn stuck() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the gateway does not answer\n").into_response()
}

/// `None` if the gateway is gone or too busy to answer.
async fn ask<T>(queries: &QuerySender, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let asking = async {
        queries.send(query(answer)).await.ok()?;
        answered.await.ok()
    };
    tokio::time::timeout(PATIENCE, asking).await.ok().flatten()
}
