//! Admin server of a gateway: health, metrics, routes, explanations, status and the status page, on loopback by default.
//!
//! Stateless. Each query goes to the event loop, which also proves that the loop runs. Metrics are rendered on another thread; the
//! loop only adds what it alone knows.

use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sheave_control::sources::connection::Connection;
use sheave_dataplane::Observer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::http::admin_guard;
use crate::http::gateway_pages::{self, Asker, reply, stuck};
use crate::http::history::History;
use crate::http::live::LivePages;
use crate::http::metrics::scrape::ScrapeQueue;
use crate::http::page;
use crate::http::query::{ProbeResult, Query, QuerySender, ask};
use crate::http::server::guarded::{Authorization, GuardedListener, Page};
use crate::http::server::tls::TlsFiles;
use crate::http::server::{Connections, Server};
use crate::http::trace::Tracer;

/// Pages that look at more than the control loop knows.
pub struct LookingPages {
    live: LivePages,
    history: History,
    tracer: Tracer,
}

impl LookingPages {
    /// Starts the live updates and the memory of events, which is kept in `state_dir` if there is one.
    pub fn start(observer: &Observer, queries: &QuerySender, state_dir: Option<&Path>, node: &str) -> Self {
        Self {
            live: LivePages::start(observer.clone(), queries.clone()),
            history: History::start(observer.clone(), queries.clone(), state_dir, node),
            tracer: Tracer::new(observer.clone(), queries.clone()),
        }
    }

    /// The tracer, to serve the controller within the same limits.
    pub(crate) fn tracer(&self) -> Tracer {
        self.tracer.clone()
    }
}

/// Serves on `listener` until the result is dropped.
pub fn serve(
    listener: TcpListener,
    queries: QuerySender,
    scrapes: ScrapeQueue,
    LookingPages { live, history, tracer }: LookingPages,
    node: &str,
    connections: Connections,
) -> Server {
    let probes =
        Router::new().route("/livez", get(livez)).route("/readyz", get(readyz)).with_state(queries.clone());
    let router = Router::new()
        .route("/api/routes", get(routes))
        .route("/api/gateways", get(gateways))
        .with_state(queries.clone())
        .merge(gateway_pages::router(queries.clone(), Asker::Administrator))
        .merge(live.router())
        .merge(history.router())
        .merge(tracer.router(Asker::Administrator))
        .merge(page::of_gateway())
        .merge(metrics_page(queries, scrapes));
    Server::start(listener, admin_guard::guarded(router, node).merge(probes), connections)
}

/// Serves only metrics on `listener` until the result is dropped.
pub fn serve_metrics(
    listener: GuardedListener,
    queries: QuerySender,
    scrapes: ScrapeQueue,
    node: &str,
    connections: Connections,
) -> Server {
    let router = for_scrapers(metrics_page(queries, scrapes), &listener, node);
    listener.serve(router, connections)
}

/// Prepares the metrics `router` for `listener`. A listener without a token is on loopback, and gets the admin server's protection
/// against browsers.
pub fn for_scrapers(router: Router, listener: &GuardedListener, node: &str) -> Router {
    if listener.is_open() { admin_guard::guarded(router, node) } else { router }
}

fn metrics_page(queries: QuerySender, scrapes: ScrapeQueue) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state((queries, scrapes))
}

/// Adds the configured authorization to `listener`.
///
/// # Errors
/// If tokens must be checked by an API server, and there is none.
pub fn guard_metrics(
    listener: Option<TcpListener>,
    (authorization, tls): (&Authorization, Option<&TlsFiles>),
    connection: Option<&Connection>,
) -> Result<Option<GuardedListener>, String> {
    let page = Page { section: "metrics", path: "/metrics", audience: None };
    listener
        .map(|listener| GuardedListener::new(listener, page, (authorization, tls), connection))
        .transpose()
}

/// Binds the address of a `section` of the configuration.
///
/// # Errors
/// If the address cannot be bound. The message names the address and the setting to change.
pub async fn bind(section: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(addr).await.map_err(|error| {
        format!("{section} address {addr}: {error}; choose another with {section}.listen in the config")
    })
}

/// Answers whether the process and its event loop respond.
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
        Ok(Ok(())) => (StatusCode::OK, "ok\n").into_response(),
        Ok(Err(why)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{otherwise}: {why}\n")).into_response(),
        Err(_) => stuck(),
    }
}

async fn metrics(State((queries, scrapes)): State<(QuerySender, ScrapeQueue)>) -> Response {
    scrapes.answer(async { ask(&queries, Query::Metrics).await.ok() }).await.unwrap_or_else(stuck)
}

async fn routes(State(queries): State<QuerySender>) -> Response {
    reply(&queries, Query::Routes).await
}

async fn gateways(State(queries): State<QuerySender>) -> Response {
    reply(&queries, Query::Gateways).await
}
