//! The whole answer: from the question to the view, in the order of the decisions.

mod endpoints;
pub(super) mod gateway_api;

use std::collections::BTreeSet;
use std::sync::Arc;

use sheave_announce::{Here, NoOwner};
use sheave_control::api::problem::reason;
use sheave_control::api::store::ServiceKey;
use sheave_control::projection::explain::{
    ClientSide, ExplainView, ExplainedEndpoint, Explanation, ServedService,
};
use sheave_control::text;
use sheave_dataplane::select::{ActiveFrontend, Origin};
use sheave_model::{EndpointAddr, Frontend, FrontendSource, Protocol, ProxyReason, Route};

use self::endpoints::{failing, left_out};
use super::place::{self, Place};
use super::question::Question;
use super::{Answer, Basis, choice, client};
use crate::views::gateways;
use crate::views::problem::ProblemView;
use crate::views::routes::{action_name, source_name};

pub(super) fn answer(question: &Question, basis: Basis<'_>) -> Answer {
    if let Some(object) = &question.gateway_api {
        return gateway_api::answer(question, object, basis);
    }
    let (key, explanation) = asked(question, basis);
    let view = ExplainView {
        service: key.to_string(),
        source: source_name(key.source).to_owned(),
        client: question.client.map(|client| client.ip.to_string()),
        client_port: question.client.and_then(|client| client.port),
        ..ExplainView::default()
    };
    let question = &Question { service: key, ..question.clone() };
    let routes = gateway_api::routes_to(&question.service, basis);
    let answer = of_service(question, explanation, basis, view);
    match answer {
        Answer::Explained(mut view) => {
            view.reasons.extend(routes);
            Answer::Explained(view)
        }
        not_found @ Answer::NotFound(_) => not_found,
    }
}

fn of_service(
    question: &Question,
    explanation: Explanation<'_>,
    basis: Basis<'_>,
    mut view: ExplainView,
) -> Answer {
    match explanation {
        Explanation::Unknown => {
            view.reasons.push(unknown(question, basis));
            // The missing Service may be in a manifest that cannot be read.
            let files = basis.problems.iter().filter(|problem| problem.object.starts_with("File "));
            view.reasons.extend(files.map(|problem| problem_reason(&problem.to_string())));
            add_problems(&mut view, question, None, basis);
            view.reasons.extend(obstacle(basis));
            Answer::NotFound(view)
        }
        Explanation::Foreign(foreign) => {
            view.reasons.push(foreign.to_string());
            Answer::Explained(view)
        }
        Explanation::Refused(_) => {
            view.reasons.push(format!("the {} asks for this gateway, but cannot be served", view.source));
            add_problems(&mut view, question, None, basis);
            Answer::Explained(view)
        }
        Explanation::Served(served) => served_answer(question, &served, basis, view),
    }
}

/// Resolves the object and explains it. If a Service and a MultiClusterService share the name, the Service is meant if it
/// is ours.
fn asked<'a>(question: &Question, basis: Basis<'a>) -> (ServiceKey, Explanation<'a>) {
    let explain = |key: &ServiceKey| basis.projector.explain(basis.objects, key);
    let ServiceKey { namespace, name, .. } = &question.service;
    let fleet = ServiceKey::multi_cluster(namespace, name);
    let exposed = explain(&fleet);
    if question.multi_cluster {
        return (fleet, exposed);
    }
    let service = explain(&question.service);
    match (&service, &exposed) {
        (_, Explanation::Unknown) => (question.service.clone(), service),
        (Explanation::Unknown | Explanation::Foreign(_), _) => (fleet, exposed),
        _ => (question.service.clone(), service),
    }
}

fn unknown(question: &Question, basis: Basis<'_>) -> String {
    let service = question.service.to_string();
    let objects = basis.objects;
    let keys = || objects.services.keys().chain(objects.fleet.services.keys());
    let known: Vec<String> = keys().map(ToString::to_string).collect();
    let same_name = keys().find(|key| key.name == question.service.name);
    let meant = same_name.map(ToString::to_string);
    let meant = meant
        .or_else(|| text::closest(&service, known.iter().map(String::as_str)).map(str::to_owned))
        .map(|name| format!("; did you mean {name}?"));
    format!("there is no {} {service}{}", source_name(question.service.source), meant.unwrap_or_default())
}

fn served_answer(
    question: &Question,
    served: &ServedService<'_>,
    basis: Basis<'_>,
    mut view: ExplainView,
) -> Answer {
    match place::find(question, served) {
        Place::NoSuchPort(why) => {
            view.reasons.push(why);
            add_problems(&mut view, question, None, basis);
            Answer::NotFound(view)
        }
        Place::Nowhere(why) => {
            view.reasons.push(why);
            add_problems(&mut view, question, None, basis);
            Answer::Explained(view)
        }
        Place::Found(frontend, others) => {
            view.other_frontends = others.iter().map(|other| other.addr.to_string()).collect();
            let frontend_answer = FrontendAnswer { question, frontend: &frontend, basis };
            frontend_answer.fill(served, &mut view);
            let ports = [Some(frontend.addr.port), served.port_of(&frontend)];
            add_problems(&mut view, question, Some((frontend.addr.protocol, ports)), basis);
            Answer::Explained(view)
        }
    }
}

/// Adds the Problems of the Service and its slices that affect this port, as sentences.
fn add_problems(
    view: &mut ExplainView,
    question: &Question,
    port: Option<(Protocol, [Option<u16>; 2])>,
    basis: Basis<'_>,
) {
    let key = &question.service;
    let fleet = &basis.objects.fleet;
    let slices = match key.source {
        FrontendSource::Service | FrontendSource::Gateway => basis.objects.slices.get(key),
        FrontendSource::MultiClusterService => fleet.imported.get(key),
    };
    let slices = slices.into_iter().flat_map(|slices| slices.keys());
    let mut objects: BTreeSet<String> =
        slices.map(|name| format!("EndpointSlice {}/{name}", key.namespace)).collect();
    let works = fleet.works.get(key).into_iter().flat_map(|works| works.keys());
    objects.extend(works.map(|(namespace, name)| format!("Work {namespace}/{name}")));
    objects.insert(key.object().to_string());
    let touches = |problem: &ProblemView| match (&problem.port, port) {
        (Some(named), Some((protocol, ports))) => {
            ports.contains(&Some(named.port)) && named.protocol == protocol.to_string()
        }
        _ => true,
    };
    let ours = basis.problems.iter().filter(|problem| objects.contains(&problem.object) && touches(problem));
    let ours: Vec<&ProblemView> = ours.collect();
    let limit =
        |problem: &&&ProblemView| [reason::LIMIT_REACHED, reason::OVERLOADED].contains(&&*problem.reason);
    view.refusing = ours.iter().find(limit).map(|problem| problem.reason.clone());
    view.problems = ours.iter().map(ToString::to_string).collect();
    view.reasons.extend(view.problems.iter().map(|problem| problem_reason(problem)));
}

fn problem_reason(problem: &str) -> String {
    format!("Problem: {problem}")
}

/// Answer for one client at one frontend.
struct FrontendAnswer<'a> {
    question: &'a Question,
    frontend: &'a Arc<Frontend>,
    basis: Basis<'a>,
}

impl FrontendAnswer<'_> {
    fn fill(&self, served: &ServedService<'_>, view: &mut ExplainView) {
        let Self { question, frontend, basis } = *self;
        let (origin, side, why_origin) = self.origin();
        let Some(explained) = served.explain(frontend, side) else { return };
        let allowed = self.admit(origin, why_origin, view);
        let route = route(frontend, origin);
        view.reasons.extend(explained.reasons.iter().cloned());

        let active = basis.active.get(frontend.addr);
        view.endpoints = self.endpoints(&explained, origin, active.map(AsRef::as_ref));
        view.reasons.extend(left_out(route, &view.endpoints));
        view.reasons.extend(view.endpoints.iter().map(ExplainedEndpoint::sentence));
        view.reasons.extend(self.other_slices(&explained.other_slices));
        match active {
            Some(active) if allowed => self.choose(active, origin, view),
            _ => {}
        }
        if question.client.is_none() {
            view.reasons.push(self.inside());
        }
        view.reasons.extend(self.path());
        view.reasons.extend(self.differences(active.map(AsRef::as_ref)));
        view.failing = failing(view);
        view.closed = basis.closed.get(&frontend.addr).cloned();
        if view.closed.is_some() {
            view.endpoint = None;
        }
    }

    /// Adds the frontend, and whether it admits the client, which it returns.
    fn admit(&self, origin: Origin, why_origin: String, view: &mut ExplainView) -> bool {
        let Self { question, frontend, .. } = *self;
        view.frontend = Some(frontend.addr.to_string());
        view.kind = Some(frontend.kind.to_string());
        view.port_name = frontend.service.port_name.as_ref().to_owned();
        view.origin = Some(origin_name(origin).to_owned());
        let (allowed, why_allowed) = client::admission(frontend, question.client);
        view.allowed = allowed;
        view.action = Some(if allowed { action_name(route(frontend, origin)) } else { "Drop" }.to_owned());
        self.announced(view);
        view.reasons.push(why_origin);
        view.reasons.extend(client::proxied(frontend, question.client));
        view.reasons.push(why_allowed);
        if !allowed {
            view.reasons.push("what follows is for clients that are admitted".to_owned());
        }
        allowed
    }

    /// Where the client is, with the reason.
    fn origin(&self) -> (Origin, ClientSide, String) {
        let (origin, why) = match self.question.client {
            Some(client) => client::origin(self.frontend, client, self.basis),
            None => {
                (Origin::External, "no client is given: this is for clients outside the cluster".to_owned())
            }
        };
        let side = match origin {
            Origin::External => ClientSide::Outside,
            Origin::Internal => ClientSide::Inside,
        };
        (origin, side, why)
    }

    /// Adds which gateway gets the packets.
    fn announced(&self, view: &mut ExplainView) {
        let ip = self.frontend.addr.ip;
        let Some(status) = self.basis.announcements else { return };
        let Some(address) = status.addresses.get(&ip) else { return };
        let policy = self.basis.projector.announce_policies().of(ip);
        view.announced_by = address.owner.as_deref().ok().map(str::to_owned);
        view.announced_here = Some(matches!(address.here, Here::Announced { .. }));
        view.reasons.push(match &address.owner {
            Ok(owner) if *owner == status.node => format!("{ip} belongs to this gateway, {owner}"),
            Ok(owner) => {
                format!(
                    "{ip} belongs to gateway {owner}: what follows is for a client that comes to this one"
                )
            }
            Err(NoOwner::Shared) if matches!(address.here, Here::Announced { .. }) => {
                format!("{ip} is announced by BGP, by each gateway that can serve it; this one does")
            }
            Err(NoOwner::Shared) => {
                let why = match &address.here {
                    Here::Failed { error } => error.as_str(),
                    _ => "it is about to end, or has just begun",
                };
                format!(
                    "{ip} is announced by BGP, by each gateway that can serve it; this one does not: {why}"
                )
            }
            Err(why) if status.shared => {
                let why = gateways::nobody(*why, gateways::left_out_by(policy, status));
                format!(
                    "{ip} is announced by BGP, by each gateway that can serve it; this one does not: {why}"
                )
            }
            Err(why) => {
                let left_out_by = gateways::left_out_by(policy, status);
                format!("{ip} belongs to no gateway: {}", gateways::nobody(*why, left_out_by))
            }
        });
        let ranking: Vec<String> =
            status.ranking(ip).iter().map(|ranked| gateways::rank(ranked, policy)).collect();
        if !ranking.is_empty() {
            view.reasons
                .push(format!("gateways in the order of their rank for {ip}: {}", ranking.join(", ")));
        }
    }

    fn choose(&self, active: &ActiveFrontend, origin: Origin, view: &mut ExplainView) {
        let client = self.question.client;
        let Some(choice) = choice::choose(active, origin, client, self.basis) else { return };
        view.endpoint = choice.endpoint.map(|endpoint| endpoint.to_string());
        view.reasons.extend(choice.reasons);
        if self.frontend.addr.protocol == Protocol::Udp {
            view.reasons
                .push("a flow that is open already stays with its endpoint while that serves".to_owned());
        }
        let ip = client.map(|client| client.ip);
        view.reasons.push(client::seen(active, origin, ip, choice.endpoint, self.basis));
    }

    /// What carries new connections, if the kernel is asked for.
    fn path(&self) -> Option<String> {
        Some(match (self.frontend.kernel_path(), self.basis.no_kernel_path.of(self.frontend.addr.ip)) {
            (Ok(()), None) => "the kernel carries new connections (nftables); nobody tries another endpoint when one does not answer".to_owned(),
            (Ok(()), Some(error)) => format!("the kernel was asked for, but the proxy serves it: {error}"),
            (Err(ProxyReason::Chosen), _) => return None,
            (Err(reason), _) => format!("the kernel was asked for, but the proxy serves it: {reason}"),
        })
    }

    fn other_slices(&self, slices: &[String]) -> Option<String> {
        let family = if self.frontend.addr.ip.is_ipv4() { "IPv4" } else { "IPv6" };
        (!slices.is_empty()).then(|| {
            format!(
                "EndpointSlice {} is not looked at here: its addressType is not {family}",
                slices.join(", ")
            )
        })
    }

    /// Outcome for clients inside the cluster, for questions without a client.
    fn inside(&self) -> String {
        if self.frontend.internal == self.frontend.external {
            return "clients inside the cluster get the same".to_owned();
        }
        let addresses: Vec<String> =
            candidates(self.frontend, Origin::Internal).map(|addr| addr.to_string()).collect();
        match &self.frontend.internal {
            Route::Forward(_) => format!("clients inside the cluster may get {}", addresses.join(", ")),
            Route::Reject => "clients inside the cluster are refused".to_owned(),
            Route::Drop => "packets of clients inside the cluster are silently dropped".to_owned(),
        }
    }

    /// Differences between what the gateway forwards by and what follows from its objects.
    fn differences(&self, active: Option<&ActiveFrontend>) -> Vec<String> {
        let mut reasons = Vec::new();
        match active {
            None => reasons.push("the table in force does not have this frontend yet".to_owned()),
            Some(active) if active.spec() != self.frontend => {
                reasons.push("the table in force has an older state of this frontend".to_owned());
            }
            Some(_) => {}
        }
        reasons.extend(obstacle(self.basis));
        reasons
    }
}

fn obstacle(basis: Basis<'_>) -> Option<String> {
    basis.obstacle.map(|obstacle| format!("the gateway is not ready: {obstacle}"))
}

fn origin_name(origin: Origin) -> &'static str {
    match origin {
        Origin::External => "external",
        Origin::Internal => "internal",
    }
}

fn route(frontend: &Frontend, origin: Origin) -> &Route {
    frontend.route(|it| match origin {
        Origin::External => &it.external,
        Origin::Internal => &it.internal,
    })
}

/// Endpoints of a frontend that is not split.
fn candidates(frontend: &Frontend, origin: Origin) -> impl Iterator<Item = EndpointAddr> {
    let route = if frontend.split.is_none() { route(frontend, origin) } else { &Route::Reject };
    route.candidates().iter().map(|candidate| frontend.endpoint(*candidate).addr)
}
