//! Handling of a request: user, faults, permissions, the operation, and its record.

mod delete;
mod discovery;
mod list;
mod mutate;
mod negotiate;
mod options;
mod represent;
mod review;
mod watch;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, USER_AGENT};

use super::access::Caller;
use super::faults::Fault;
use super::kind::registry::Served;
use super::record::Request;
use super::reply::{Reply, ReplyBody};
use super::route::{Query, Route, Target, has_subresource, selected_name, verb};
use super::shared::{Connection, Shared, World};
use super::status::Status;
use negotiate::Form;

/// Limit of bodies in bytes: `MaxRequestBodyBytes` of k8s.io/apiserver.
const LIMIT: usize = 3 * 1024 * 1024;

/// Request about a resource.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    connection: &'a Arc<Connection>,
    served: Arc<Served>,
    target: &'a Target,
    query: &'a Query,
    form: Form,
    user: &'a str,
    user_agent: &'a str,
    content_type: &'a str,
}

impl Call<'_> {
    /// Prefix of all keys in the request's namespace; `None` for all namespaces.
    fn prefix(&self) -> Option<String> {
        self.target.namespace.as_ref().map(|namespace| format!("{namespace}/"))
    }

    /// Key of the named object.
    fn key(&self, name: &str) -> String {
        super::store::entry::key(self.target.namespace.as_deref(), name)
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.shared.world()
    }
}

/// Answers and records one HTTP request, and applies faults.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    request: hyper::Request<Incoming>,
) -> hyper::Response<ReplyBody> {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let route = Route::parse(parts.uri.path());
    let mut record = record(shared, &parts, &route, &query);
    let body = Limited::new(body, LIMIT).collect().await;
    let body = match body {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!("Request entity too large: limit is {LIMIT}");
            Err(Status::new(413, "RequestEntityTooLarge", text))
        }
        // The client has gone, so the answer does not matter.
        Err(_) => Ok(Bytes::new()),
    };
    let delay = shared.faults().delay;
    if let Some(delay) = delay {
        tokio::time::sleep(delay).await;
    }
    let fault = shared.faults().take(&record);
    if matches!(fault, Some(Fault::Swallow)) {
        shared.requests().push(record);
        return pending().await;
    }
    let reply = match fault.clone() {
        Some(Fault::Answer(status)) => status.into(),
        _ => serve(shared, connection, &parts.headers, &mut record, (&route, &query), body),
    };
    if matches!(fault, Some(Fault::LoseAnswer)) {
        shared.requests().push(record);
        connection.cut.notify_one();
        return pending().await;
    }
    record.status = Some(reply.code);
    let pretty = negotiate::wants_pretty(&query, &record.user_agent) || reply.code == 406;
    shared.requests().push(record);
    response(if pretty { reply.pretty() } else { reply })
}

fn record(shared: &Shared, parts: &hyper::http::request::Parts, route: &Route, query: &Query) -> Request {
    let target = match route {
        Route::Resource(target) => Some(target),
        Route::Other(_) => None,
    };
    let user = match shared.access().caller(header(&parts.headers, &AUTHORIZATION)) {
        Caller::User(user) => user,
        Caller::Anonymous => ANONYMOUS.to_owned(),
        Caller::Unknown => String::new(),
    };
    Request {
        user,
        verb: verb(parts.method.as_str(), target, query),
        group: target.map(|target| target.group.clone()).unwrap_or_default(),
        resource: target.map(|target| target.resource.clone()).unwrap_or_default(),
        subresource: target.and_then(|target| target.subresource.clone()),
        namespace: target.and_then(|target| target.namespace.clone()),
        name: target.and_then(|target| target.name.clone()),
        line: parts.uri.to_string(),
        user_agent: header(&parts.headers, &USER_AGENT).unwrap_or_default().to_owned(),
        status: None,
    }
}

const ANONYMOUS: &str = "system:anonymous";

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Carries out a request.
fn serve(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    headers: &HeaderMap,
    record: &mut Request,
    (route, query): (&Route, &Query),
    body: Result<Bytes, Status>,
) -> Reply {
    if record.user.is_empty() {
        return Status::new(401, "Unauthorized", "Unauthorized").into();
    }
    let target = match route {
        Route::Other(path) => return discovery::answer(shared, path),
        Route::Resource(target) => target,
    };
    if let Err(refused) = authorize(shared, &record.user, &record.verb, target, query) {
        return refused.into();
    }
    if let Some(review) = review::Review::of(target) {
        return review.answer(shared, &record.verb, body).unwrap_or_else(Reply::from);
    }
    let served = match find(shared, target) {
        Ok(served) => served,
        Err(reply) => return reply,
    };
    if served.aggregated && shared.faults().aggregated_away {
        return Reply::service_unavailable();
    }
    let user = record.user.clone();
    let user_agent = record.user_agent.clone();
    let verb = record.verb.clone();
    let accept = header(headers, &ACCEPT).unwrap_or("*/*");
    let reply = Form::negotiate(accept, &verb).and_then(|form| {
        let call = Call {
            shared,
            connection,
            served,
            target,
            query,
            form,
            user: &user,
            user_agent: &user_agent,
            content_type: header(headers, &CONTENT_TYPE).unwrap_or_default(),
        };
        dispatch(&call, &verb, &body?, record)
    });
    reply.unwrap_or_else(Reply::from)
}

fn dispatch(call: &Call<'_>, verb: &str, body: &Bytes, record: &mut Request) -> Result<Reply, Status> {
    let target = call.target;
    match verb {
        "watch" if call.shared.faults().refuse_watches => match Fault::unavailable() {
            Fault::Answer(status) => Err(status),
            Fault::Pass | Fault::Swallow | Fault::LoseAnswer => unreachable!("made as an answer"),
        },
        "watch" => watch::watch(call),
        "list" => list::list(call),
        "get" => list::get(call),
        "create" if target.name.is_none() => mutate::create(call, body, record),
        "update" | "patch" if target.name.is_some() => mutate::change(call, verb, body),
        "delete" => delete::one(call, body),
        "deletecollection" => delete::collection(call, body),
        _ => {
            let text = "the server does not allow this method on the requested resource";
            Err(Status::new(405, "MethodNotAllowed", text).about("", "", ""))
        }
    }
}

/// The served kind, or the error if there is none, which is plain text for an unknown group.
fn find(shared: &Shared, target: &Target) -> Result<Arc<Served>, Reply> {
    let world = shared.world();
    if let Some(served) = world.registry.find(&target.group, &target.version, &target.resource)
        && has_subresource(&served.kind, target)
        && (served.kind.namespaced || target.namespace.is_none())
    {
        return Ok(served);
    }
    // Groups of custom kinds are served by another handler, which answers like the router.
    let built_in = |served: &&Arc<Served>| served.kind.group == target.group && !served.kind.custom;
    if world.registry.all().iter().any(|served| built_in(&served)) {
        let text = "the server could not find the requested resource";
        return Err(Status::new(404, "NotFound", text).about("", "", "").into());
    }
    Err(Reply::page_not_found())
}

/// Checks permissions. Without them, or without a token, a caller does not learn what exists.
fn authorize(shared: &Shared, user: &str, verb: &str, target: &Target, query: &Query) -> Result<(), Status> {
    let mut target = target.clone();
    if target.name.is_none() && ["list", "watch", "deletecollection"].contains(&verb) {
        target.name = selected_name(query);
    }
    let allowed = user != ANONYMOUS && shared.access().allows(user, verb, &target);
    if allowed { Ok(()) } else { Err(forbidden(user, verb, &target)) }
}

fn forbidden(user: &str, verb: &str, target: &Target) -> Status {
    let name = target.name.as_deref().unwrap_or_default();
    let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
    let place = match &target.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let text = format!(
        "{}{named} is forbidden: User \"{user}\" cannot {verb} resource \"{}\" in API group \"{}\" {place}",
        target.qualified(),
        target.resource_with_subresource(),
        target.group,
    );
    Status::new(403, "Forbidden", text).about(name, &target.group, &target.resource)
}

fn response(reply: Reply) -> hyper::Response<ReplyBody> {
    let mut builder = hyper::Response::builder()
        .status(reply.code)
        .header(CONTENT_TYPE, reply.content_type)
        .header("Cache-Control", "no-cache, private");
    for (name, value) in reply.headers {
        builder = builder.header(name, value);
    }
    builder.body(reply.body).expect("all parts are valid")
}

/// Counts a watch on its connection while it exists.
struct Watching(Arc<Connection>);

impl Watching {
    fn on(connection: &Arc<Connection>) -> Self {
        connection.watches.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(connection))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::SeqCst);
    }
}
