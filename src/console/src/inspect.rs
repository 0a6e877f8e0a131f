//! `sheave routes`, `explain`, `events`, `status` and `gateways`: the decisions of a gateway, projected from manifests or queried from a
//! running one.

use std::time::Duration;

use serde::de::DeserializeOwned;
use sheave_control::api::gateway_report::EXPLAIN_PATH;
use sheave_control::sources::connection::default_namespace;

use crate::admin_client::{self, Reply};
use crate::admin_server::{self, AdminServer};
use crate::arguments::{Events, Explain, Gateways, Routes, RunningArgs, Status, TableFormat};
use crate::exit::Exit;
use crate::http::all_gateways::ALL_EXPLAIN_PATH;
use crate::http::history::EVENTS_PATH;
use crate::manifests::ManifestProjection;
use crate::options::Options;
use crate::stdout::{complain, print, render};
use crate::views::View as _;
use crate::views::all_gateways::{AllGatewaysView, ExplanationsView};
use crate::views::escape;
use crate::views::events::EventsView;
use crate::views::explain::{Answer, Question};
use crate::views::gateways::GatewaysView;
use crate::views::routes::RoutesView;
use crate::views::status::ProcessView;

/// Default namespace of objects, if the context sets none.
const DEFAULT_NAMESPACE: &str = "default";

/// Prints the routing table of manifests, or of a running gateway.
pub fn routes(command: &Routes, config: &Options) -> Exit {
    let sources = &command.sources;
    let view: Result<RoutesView, Exit> = match sources.manifests.folders() {
        Some(folders) => ManifestProjection::read(folders, config).map(|projected| projected.routes(config)),
        None => routes_of_gateway(&sources.running, config),
    };
    match (view, command.output) {
        (Err(exit), _) => exit,
        (Ok(view), TableFormat::Table) => print(&escape::lines(&view.to_text())),
        (Ok(view), TableFormat::Wide) => print(&escape::lines(&view.to_wide_text())),
        (Ok(view), TableFormat::Json) => print(&view.to_json()),
        (Ok(view), TableFormat::Yaml) => print(&view.to_yaml()),
    }
}

/// Queries the routing table of a running gateway.
pub(crate) fn routes_of_gateway(running: &RunningArgs, config: &Options) -> Result<RoutesView, Exit> {
    query(running, config, "/api/routes").map(|(_, view)| view)
}

/// Prints why a client reaches an endpoint, from manifests or a running gateway.
pub fn explain(command: &Explain, config: &Options) -> Exit {
    let folders = command.sources.manifests.folders();
    let namespace = || match folders {
        // Manifests without a namespace are read into this one, regardless of the kubeconfig.
        Some(_) => DEFAULT_NAMESPACE.to_owned(),
        None => namespace_of_context(config),
    };
    let question = match command.asked.question(namespace) {
        Ok(question) => question,
        Err(why) => {
            complain(&why);
            return Exit::Usage;
        }
    };
    if command.fleet {
        return explain_by_all(command, &question, config);
    }
    let answer = match folders {
        Some(folders) => {
            ManifestProjection::read(folders, config).map(|projected| projected.explain(&question))
        }
        None => AdminServer::of_process(&command.sources.running, config).and_then(|server| {
            let answer = explained(&server.authority, &question.path(EXPLAIN_PATH));
            answer.map_err(|error| unanswered(&server.authority, &error))
        }),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    let view = answer.view();
    match (print(&render(view, || answer.to_text(), command.output)), answer) {
        (Exit::Ok, Answer::NotFound(_)) => Exit::Data,
        (exit, _) => exit,
    }
}

/// Prints which gateways the client reaches and what each would do, as collected by a controller.
fn explain_by_all(command: &Explain, question: &Question, config: &Options) -> Exit {
    let path = question.path(ALL_EXPLAIN_PATH);
    let running = &command.sources.running;
    let (_, status, view) = match of_all::<ExplanationsView>(running, config, admin_client::PATIENCE, &path) {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    match (print(&render(&view, || view.to_text(), command.output)), status) {
        (Exit::Ok, _) if view.groups.is_empty() => Exit::Unavailable,
        (Exit::Ok, NOT_FOUND) => Exit::Data,
        (exit, _) => exit,
    }
}

/// Namespace of objects that are named without one.
pub(crate) fn namespace_of_context(config: &Options) -> String {
    let of_context = default_namespace(config.kubeconfig.as_deref(), config.context.as_deref());
    of_context.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

/// Queries a running gateway with the path of a question.
///
/// # Errors
/// If it does not answer, with the reason as text.
pub(crate) fn explained(authority: &str, path: &str) -> Result<Answer, String> {
    parsed(authority, path).map(|(status, view)| match status {
        NOT_FOUND => Answer::NotFound(view),
        _ => Answer::Explained(view),
    })
}

/// Prints the state of a running process. The exit code is that of a monitoring check.
pub fn status(command: &Status, config: &Options) -> Exit {
    let Ok((_, view)) = query::<ProcessView>(&command.running, config, "/api/status") else {
        return Exit::Down;
    };
    match print(&render(&view, || view.to_text(), command.output)) {
        Exit::Ok => view.exit(),
        failed => failed,
    }
}

/// Prints the state of all gateways, as collected by a controller.
pub fn all_gateways(command: &Status, config: &Options) -> Exit {
    let asked = of_all::<AllGatewaysView>(&command.running, config, admin_client::PATIENCE, "/api/fleet");
    let Ok((_, _, view)) = asked else {
        return Exit::Down;
    };
    match print(&render(&view, || view.to_text(), command.output)) {
        Exit::Ok => view.exit(),
        failed => failed,
    }
}

/// Prints what has changed on a running gateway.
pub fn events(command: &Events, config: &Options) -> Exit {
    let service = match command.service(|| namespace_of_context(config)) {
        Ok(service) => service,
        Err(why) => {
            complain(&why);
            return Exit::Usage;
        }
    };
    let service = service.map(|service| format!("service={service}"));
    let since = command.since.map(|since| format!("since={}", since.as_secs()));
    let wanted: Vec<String> = service.into_iter().chain(since).collect();
    let path = format!("{EVENTS_PATH}?{}", wanted.join("&"));
    match query::<EventsView>(&command.running, config, &path) {
        Ok((_, view)) => print(&render(&view, || view.to_text(), command.output)),
        Err(exit) => exit,
    }
}

/// Prints the gateways as the queried gateway sees them.
pub fn gateways(command: &Gateways, config: &Options) -> Exit {
    match query::<GatewaysView>(&command.running, config, "/api/gateways") {
        Ok((_, view)) => print(&render(&view, || view.to_text(), command.output)),
        Err(exit) => exit,
    }
}

const OK: u16 = 200;
/// Status code for a Service or port that does not exist.
pub(crate) const NOT_FOUND: u16 = 404;

/// Queries a controller about all gateways, and reports a failure. Returns the controller as well, for more questions.
pub(crate) fn of_all<T: DeserializeOwned>(
    running: &RunningArgs,
    config: &Options,
    patience: Duration,
    path: &str,
) -> Result<(AdminServer, u16, T), Exit> {
    let namespace = &config.namespace;
    let advice = format!(
        "ask a controller, as in `kubectl -n {namespace} exec deployment/sheave-controller -- /sheave status --fleet`"
    );
    let unanswered = |authority: &str, error: String| {
        complain(&format!("http://{authority} does not answer for all gateways: {error}; {advice}"));
        Exit::Unavailable
    };
    if let Some(server) = AdminServer::here(running, config) {
        let authority = &server.authority;
        let reply = admin_client::get_within(patience, authority, path);
        let reply = reply.map_err(|error| unanswered(authority, error))?;
        match read(&reply, path) {
            Ok((status, view)) => return Ok((server, status, view)),
            // A gateway or another program has the port on this machine.
            Err(_) if admin_server::may_be_elsewhere(running) && reply.status == NOT_FOUND => {
                let not_here = |error| format!("no controller listens on http://{authority}, and {error}");
                return of_cluster(config, (patience, path), &advice, not_here);
            }
            Err(error) => return Err(unanswered(authority, error)),
        }
    }
    of_cluster(config, (patience, path), &advice, |error| admin_server::not_here(running, config, &error))
}

/// Queries a controller of the cluster. `no_way` makes the message for a failed port-forward.
fn of_cluster<T: DeserializeOwned>(
    config: &Options,
    (patience, path): (Duration, &str),
    advice: &str,
    no_way: impl FnOnce(String) -> String,
) -> Result<(AdminServer, u16, T), Exit> {
    let unavailable = |why: String| {
        complain(&format!("{why}; {advice}"));
        Exit::Unavailable
    };
    let controller = AdminServer::of_controller(config).map_err(|error| unavailable(no_way(error)))?;
    let authority = &controller.authority;
    let (status, view) = parsed_within(patience, authority, path).map_err(|error| {
        unavailable(format!("http://{authority} does not answer for all gateways: {error}"))
    })?;
    Ok((controller, status, view))
}

/// Queries a running process, by default the configured one, and reports a failure.
fn query<T: DeserializeOwned>(running: &RunningArgs, config: &Options, path: &str) -> Result<(u16, T), Exit> {
    let server = AdminServer::of_process(running, config)?;
    parsed(&server.authority, path).map_err(|error| unanswered(&server.authority, &error))
}

/// Reports that the gateway does not answer.
pub(crate) fn unanswered(authority: &str, why: &str) -> Exit {
    complain(&format!("the gateway at http://{authority} does not answer: {why}"));
    Exit::Unavailable
}

/// Gets a path within this time, and returns the status code and the parsed body.
///
/// # Errors
/// If there is no such answer, as text.
pub(crate) fn parsed_within<T: DeserializeOwned>(
    patience: Duration,
    authority: &str,
    path: &str,
) -> Result<(u16, T), String> {
    read(&admin_client::get_within(patience, authority, path)?, path)
}

/// Gets a path, and returns the status code and the parsed body.
fn parsed<T: DeserializeOwned>(authority: &str, path: &str) -> Result<(u16, T), String> {
    parsed_within(admin_client::PATIENCE, authority, path)
}

/// Like [`parsed_within`] in the usual time, without blocking the thread.
///
/// # Errors
/// If there is no such answer, as text.
pub(crate) async fn asked<T: DeserializeOwned>(authority: &str, path: &str) -> Result<(u16, T), String> {
    read(&admin_client::reply_within(admin_client::PATIENCE, authority, path).await?, path)
}

/// Parses the body. A gateway answers 404 with a body of the same type.
fn read<T: DeserializeOwned>(reply: &Reply, path: &str) -> Result<(u16, T), String> {
    match serde_json::from_str(&reply.body) {
        Ok(view) if matches!(reply.status, OK | NOT_FOUND) => Ok((reply.status, view)),
        Err(error) if reply.status == OK => Err(format!("this is not an answer to {path}: {error}")),
        _ => Err(reply.refusal()),
    }
}
