//! Report of a gateway's failures to the controller, over HTTP and within the process, and the gateway's answers to the controller's
//! queries.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use sheave_control::api::gateway_report::{self, GatewayReport, TRACE_PATH, Trouble, TroubledFrontend};
use sheave_control::api::problem::Problem;
use sheave_control::sources::api_server::KindHints;
use sheave_control::sources::connection::Connection;
use sheave_model::FrontendAddr;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::http::admin::LookingPages;
use crate::http::gateway_pages::{self, Asker};
use crate::http::query::QuerySender;
use crate::http::server::guarded::{Authorization, GuardedListener, Page};
use crate::http::server::{Connections, Server};

/// A failure of the data plane, with the affected frontend.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Reason and message.
    pub problem: Problem,
    /// `None` if the whole object is affected.
    pub frontend: Option<FrontendAddr>,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { problem, frontend: None }
    }
}

/// Builds the report of a gateway on `node`, with the generation of its routing table.
pub fn report(node: &str, generation: u64, failures: &[Failure]) -> GatewayReport {
    let mut troubles: Vec<Trouble> = failures.iter().map(trouble).collect();
    troubles.sort_unstable();
    GatewayReport { node: node.to_owned(), generation, troubles, ..GatewayReport::default() }.bounded()
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

/// Adds the configured authorization to `listener`.
///
/// # Errors
/// If tokens must be checked by an API server, and there is none.
pub fn guard(
    listener: Option<TcpListener>,
    authorization: &Authorization,
    connection: Option<&Connection>,
) -> Result<Option<GuardedListener>, String> {
    let page =
        Page { section: "report", path: gateway_report::PATH, audience: Some(gateway_report::AUDIENCE) };
    let guard = (authorization, None);
    listener.map(|listener| GuardedListener::new(listener, page, guard, connection)).transpose()
}

/// What the controller is answered, and where its hints go.
type Told = (watch::Receiver<GatewayReport>, Option<KindHints>);

/// Serves the controller on `listener` until the result is dropped. Without authorization it only serves the report, since status,
/// explanations and traces reveal and cost more. Traces need a right of their own.
pub fn serve(
    listener: GuardedListener,
    told: Told,
    queries: QuerySender,
    looking: &LookingPages,
    connections: Connections,
) -> Server {
    let router = Router::new().route(gateway_report::PATH, get(answer)).with_state(told);
    let router = if listener.is_open() {
        router
    } else {
        let traces = listener.restrict(looking.tracer().router(Asker::Controller), TRACE_PATH);
        router.merge(gateway_pages::router(queries, Asker::Controller)).merge(traces)
    };
    listener.serve(router, connections)
}

async fn answer(State((report, hints)): State<Told>, headers: HeaderMap) -> Response {
    let kinds = headers.get(gateway_report::KINDS_HEADER).and_then(|kinds| kinds.to_str().ok());
    if let Some((hints, kinds)) = hints.zip(kinds) {
        hints.hear(kinds);
    }
    let report = report.borrow().clone();
    ([(header::CACHE_CONTROL, "no-store")], Json(report)).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_answer_takes_the_hints_of_the_controller() {
        let (_report, told) = watch::channel(GatewayReport::default());
        let hints = KindHints::new(Duration::ZERO);
        for (text, heard) in
            [("gateways,widgets", &["gateways"][..]), ("gateways,nodes", &["gateways", "nodes"])]
        {
            let headers = [(gateway_report::KINDS_HEADER, text)];
            let headers = headers.map(|(name, text)| (name.parse().unwrap(), text.parse().unwrap()));
            let answered =
                answer(State((told.clone(), Some(hints.clone()))), headers.into_iter().collect()).await;
            assert_eq!(answered.status(), axum::http::StatusCode::OK);
            assert!(hints.heard().iter().eq(heard));
        }
        // An older controller.
        let _answered = answer(State((told, Some(hints.clone()))), HeaderMap::new()).await;
        assert_eq!(hints.heard().len(), 2);
    }
}
