//! Admin pages of a controller: health, metrics and status.

use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sheave_control::controller::ControllerStatus;
use tokio::sync::watch;

use crate::http::admin_guard;
use crate::http::all_gateways::AllGateways;
use crate::http::metrics::{self, scrape::CONTENT_TYPE};
use crate::http::page;
use crate::views::View as _;
use crate::views::status::{ProcessView, collect};

/// State behind the pages.
#[derive(Clone)]
pub struct ControllerPages {
    /// Start of the process.
    pub started: Instant,
    /// Name of the Node.
    pub node: String,
    /// API server that the objects come from.
    pub server: String,
    /// Source of the Karmada control plane's objects, if there is one.
    pub karmada: Option<String>,
    /// Current status of the controller.
    pub status: watch::Receiver<ControllerStatus>,
    /// Lines of the process log that were dropped until now.
    pub dropped_log_lines: fn() -> u64,
    /// Client of all gateways.
    pub gateways: AllGateways,
}

impl ControllerPages {
    /// Router of all pages.
    pub fn router(self) -> Router {
        let here = Router::new().route("/api/status", get(status_page)).with_state(self.clone());
        let here = here.merge(self.gateways.clone().router()).merge(page::of_controller());
        let here = here.merge(self.clone().metrics_router());
        Router::new()
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(self.clone())
            .merge(admin_guard::guarded(here, &self.node))
    }

    /// Router for metrics alone.
    pub fn metrics_router(self) -> Router {
        Router::new().route("/metrics", get(metrics)).with_state(self)
    }

    fn view(&self) -> ProcessView {
        let now = self.status.borrow();
        ProcessView {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: "controller".to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            source: collect::of_api(&self.server, &now.kinds),
            karmada: self.karmada.as_ref().map(|server| collect::of_api(server, &now.karmada_kinds)),
            guard: collect::of_guard(&now.held),
            problems: now.problems,
            controller: Some(collect::of_controller(&now)),
            not_ready: not_ready(&now).map(str::to_owned),
            ..ProcessView::default()
        }
    }
}

/// Reason why the controller is not ready, if any. A candidate is ready to take over. A leader is ready once it has
/// listed all objects that it needs.
fn not_ready(now: &ControllerStatus) -> Option<&'static str> {
    (now.leading && !now.synced)
        .then_some("leading, but objects have not been listed from the API server yet")
}

async fn ready(State(page): State<ControllerPages>) -> Response {
    match not_ready(&page.status.borrow()) {
        Some(why) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}; see /api/status\n")).into_response()
        }
        None => "ok\n".into_response(),
    }
}

async fn metrics(State(page): State<ControllerPages>) -> Response {
    let text = metrics::of_controller(&page.view(), &page.status.borrow(), (page.dropped_log_lines)());
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

async fn status_page(State(page): State<ControllerPages>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], page.view().to_json()).into_response()
}
