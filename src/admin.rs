//! The admin server: health, metrics and the routing table over HTTP, on loopback by default.
//!
//! It holds no state: every question is put to the gateway's own loop, which also proves that the loop runs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// How long a question may wait before the gateway counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question to the gateway, with where to send the answer.
#[derive(Debug)]
pub(crate) enum Query {
    /// Can the process go on? If not: why it must be started anew.
    Live(oneshot::Sender<Verdict>),
    /// Is there a table, and do the workers answer? If not: what is missing.
    Ready(oneshot::Sender<Verdict>),
    /// The metrics as Prometheus text.
    Metrics(oneshot::Sender<String>),
    /// The routing table as JSON.
    Routes(oneshot::Sender<String>),
}

/// All is well, or what is not.
pub(crate) type Verdict = Result<(), &'static str>;

/// Where questions are put.
pub(crate) type Questions = mpsc::Sender<Query>;

/// Answers on `listener` until dropped.
///
/// # Errors
/// If the listener fails for good.
pub(crate) async fn serve(listener: TcpListener, questions: Questions) -> io::Result<()> {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/routes", get(routes))
        .with_state(questions);
    axum::serve(listener, router).await
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
async fn livez(State(questions): State<Questions>) -> Response {
    verdict(&questions, Query::Live, "not live").await
}

async fn readyz(State(questions): State<Questions>) -> Response {
    verdict(&questions, Query::Ready, "not ready").await
}

async fn verdict(
    questions: &Questions,
    query: fn(oneshot::Sender<Verdict>) -> Query,
    otherwise: &str,
) -> Response {
    match ask(questions, query).await {
        Some(Ok(())) => (StatusCode::OK, "ok\n").into_response(),
        Some(Err(why)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{otherwise}: {why}\n")).into_response(),
        None => stuck(),
    }
}

async fn metrics(State(questions): State<Questions>) -> Response {
    reply(&questions, Query::Metrics, "text/plain; version=0.0.4; charset=utf-8").await
}

async fn routes(State(questions): State<Questions>) -> Response {
    reply(&questions, Query::Routes, "application/json").await
}

async fn reply(
    questions: &Questions,
    query: fn(oneshot::Sender<String>) -> Query,
    content_type: &'static str,
) -> Response {
    match ask(questions, query).await {
        Some(body) => ([(header::CONTENT_TYPE, content_type)], body).into_response(),
        None => stuck(),
    }
}

fn stuck() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the gateway does not answer\n").into_response()
}

/// `None` if the gateway is gone or too busy to answer.
async fn ask<T>(questions: &Questions, query: fn(oneshot::Sender<T>) -> Query) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let asking = async {
        questions.send(query(answer)).await.ok()?;
        answered.await.ok()
    };
    tokio::time::timeout(PATIENCE, asking).await.ok().flatten()
}
