//! The gateway's report of failures to the controller, over HTTP and within the process.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use sheave_control::api::gateway_report::{self, GatewayReport, Trouble, TroubledFrontend};
use sheave_control::api::problem::Problem;
use sheave_model::FrontendAddr;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::http::server::{Connections, Server};

/// Something that the data plane could not do, and the frontend that it is about.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) problem: Problem,
    /// None if the object as a whole is affected.
    pub(crate) frontend: Option<FrontendAddr>,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { problem, frontend: None }
    }
}

/// The report of a gateway on `node` whose routing table has this generation.
pub(crate) fn report(node: &str, generation: u64, failures: &[Failure]) -> GatewayReport {
    let mut troubles: Vec<Trouble> = failures.iter().map(trouble).collect();
    troubles.sort_unstable();
    GatewayReport { node: node.to_owned(), generation, troubles }.bounded()
}

fn trouble(Failure { problem, frontend }: &Failure) -> Trouble {
    Trouble {
        kind: problem.object.kind.to_owned(),
        namespace: problem.object.namespace.as_ref().to_owned(),
        name: problem.object.name.as_ref().to_owned(),
        reason: problem.reason.to_owned(),
        message: problem.message.clone(),
        frontend: frontend.map(|addr| TroubledFrontend {
            address: addr.ip,
            port: addr.port,
            protocol: addr.protocol.name().to_owned(),
        }),
    }
}

/// Answers the controller on `listener` until the result is dropped.
pub(crate) fn serve(
    listener: TcpListener,
    report: watch::Receiver<GatewayReport>,
    connections: Connections,
) -> Server {
    let router = Router::new().route(gateway_report::PATH, get(answer)).with_state(report);
    Server::start(listener, router, connections)
}

async fn answer(State(report): State<watch::Receiver<GatewayReport>>) -> Response {
    let report = report.borrow().clone();
    ([(header::CACHE_CONTROL, "no-store")], Json(report)).into_response()
}
