//! Answers about Gateways and routes: the listener, the route that serves it, and each part of its split.
//!
//! An answer names no object of another namespace unless the object that was asked about names it, since its readers may not see it.

use std::sync::Arc;

use sheave_control::api::condition::DesiredCondition;
use sheave_control::api::gateway_api::{RouteKey, RouteKind};
use sheave_control::api::store::ServiceKey;
use sheave_control::projection::explain::{
    ExplainView, ExplainedCondition, ExplainedEndpoint, ExplainedParent, ExplainedPart, PartExplanation,
    routes_to as keys_of,
};
use sheave_control::projection::gateway_api::outcome::ListenerOutcome;
use sheave_control::text::first_few;
use sheave_dataplane::select::{ActiveFrontend, Origin, Pick};
use sheave_model::{Frontend, Protocol, ServerNames, Share, Split, SplitPart};

use super::{Answer, Basis, FrontendAnswer, add_problems, client};
use crate::views::explain::question::{GatewayApiObject, Port, Question};
use crate::views::routes::listener_name;

/// How many server names a sentence lists.
const LISTED: usize = 8;

/// Where an answer may take names from.
struct Reader<'a> {
    /// Namespace of the object that was asked about.
    namespace: &'a str,
    /// Whether the object is the route, which names its backends itself.
    is_route: bool,
}

pub(super) fn answer(question: &Question, object: &GatewayApiObject, basis: Basis<'_>) -> Answer {
    let view = ExplainView {
        service: question.service.to_string(),
        source: object.kind().to_owned(),
        client: question.client.map(|client| client.ip.to_string()),
        client_port: question.client.and_then(|client| client.port),
        ..ExplainView::default()
    };
    match object {
        GatewayApiObject::Gateway(listener) => of_gateway(question, listener.as_deref(), basis, view),
        GatewayApiObject::Route(kind) => of_route(question, *kind, basis, view),
    }
}

/// Sentences about the routes that have a Service as a backend.
pub(super) fn routes_to(service: &ServiceKey, basis: Basis<'_>) -> Vec<String> {
    let routes = keys_of(service, basis.objects);
    let (own, others): (Vec<_>, Vec<_>) =
        routes.iter().partition(|route| route.namespace == service.namespace);
    let named = own.iter().map(|route| format!("it is also a backend of {route}"));
    let hidden = match others.len() {
        0 => None,
        1 => Some("it is also a backend of a route of another namespace".to_owned()),
        count => Some(format!("it is also a backend of {count} routes of other namespaces")),
    };
    named.chain(hidden).collect()
}

fn of_gateway(
    question: &Question,
    listener: Option<&str>,
    basis: Basis<'_>,
    mut view: ExplainView,
) -> Answer {
    let ServiceKey { namespace, name, .. } = &question.service;
    let key = ServiceKey::gateway(namespace, name);
    let Some(gateway) = basis.objects.gateway_api.gateways.get(&key) else {
        view.reasons.push(format!("there is no Gateway {key}"));
        return Answer::NotFound(view);
    };
    let question = &Question { service: key.clone(), ..question.clone() };
    let Some(outcome) = basis.projector.gateway(&key) else {
        let class = &gateway.spec.gateway_class_name;
        view.reasons.push(match gateway.metadata.deletion_timestamp {
            Some(_) => "it is being deleted, so nothing serves it".to_owned(),
            None => format!("this installation does not serve its GatewayClass, {class:?}"),
        });
        return Answer::Explained(view);
    };
    view.reasons
        .extend(outcome.refused.iter().map(|refused| format!("it is not accepted: {}", refused.message)));
    let own = || outcome.listeners.iter();
    let frontends = basis.projector.listener_frontends(&key);
    let is_asked = |name: &str| match listener {
        Some(asked) => name == asked,
        None => own().any(|listener| listener.name == name),
    };
    // A listener of TLS may share the frontend of another one.
    let shared = own().find(|it| listener == Some(&*it.name) && it.protocol == "TLS").map(|it| it.port);
    let is_it = |it: &&Arc<Frontend>| {
        let by_port = it.server_names.is_some() && shared == Some(it.addr.port.into());
        by_port || is_asked(&it.service.port_name)
    };
    let frontends: Vec<Arc<Frontend>> = frontends.iter().filter(is_it).cloned().collect();
    if let Some(asked) = listener
        && frontends.is_empty()
        && !own().any(|it| it.name == asked)
    {
        let names: Vec<&str> = own().map(|it| it.name.as_str()).collect();
        view.reasons.push(format!("the Gateway has no listener {asked}; it has {}", names.join(", ")));
        return Answer::NotFound(view);
    }
    view.reasons.extend(own().filter(|it| is_asked(&it.name)).filter_map(not_accepted));
    let wanted = |target: &Frontend| is_asked(&target.service.port_name);
    found(question, frontends, (&Reader { namespace, is_route: false }, &wanted), basis, view)
}

fn not_accepted(listener: &ListenerOutcome) -> Option<String> {
    let (name, accepted) = (&listener.name, &listener.accepted);
    (!accepted.holds)
        .then(|| format!("listener {name} is not accepted: {}: {}", accepted.reason, accepted.message))
}

fn of_route(question: &Question, kind: RouteKind, basis: Basis<'_>, mut view: ExplainView) -> Answer {
    let ServiceKey { namespace, name, .. } = &question.service;
    let key = RouteKey { namespace: Arc::clone(namespace), name: Arc::clone(name), kind };
    let Some(route) = basis.objects.gateway_api.route(&key) else {
        view.reasons.push(format!("there is no {key}"));
        return Answer::NotFound(view);
    };
    for explained in basis.projector.explain_parents(&route, basis.objects) {
        let condition = |it: &&DesiredCondition| ExplainedCondition {
            kind: it.kind.to_owned(),
            status: it.status().to_owned(),
            reason: it.reason.to_owned(),
            message: it.message.clone(),
        };
        let conditions = explained.conditions.iter().map(condition).collect();
        view.parents.push(ExplainedParent { parent: explained.parent, conditions });
    }
    view.reasons.extend(view.parents.iter().flat_map(about_parent));
    let frontends = basis.projector.route_frontends(&route, basis.objects);
    if frontends.is_empty() {
        view.reasons.push("no listener sends traffic to it".to_owned());
        return Answer::Explained(view);
    }
    let name = key.to_string();
    let wanted = |target: &Frontend| target.split.as_ref().is_some_and(|split| *split.route == *name);
    found(question, frontends, (&Reader { namespace, is_route: true }, &wanted), basis, view)
}

fn about_parent(ExplainedParent { parent, conditions }: &ExplainedParent) -> Vec<String> {
    if conditions.is_empty() {
        return vec![format!("{parent}: it does not exist, or another controller serves it")];
    }
    let told = conditions.iter().map(|ExplainedCondition { kind, status, reason, message }| {
        let reason = if reason == kind { String::new() } else { format!(" ({reason})") };
        format!("{parent}: {kind} is {status}{reason}: {message}")
    });
    told.collect()
}

/// The answer about the first frontend that fits the question. Of a TLS listener, it is about the `wanted` targets of server names.
fn found(
    question: &Question,
    mut frontends: Vec<Arc<Frontend>>,
    (reader, wanted): (&Reader<'_>, &dyn Fn(&Frontend) -> bool),
    basis: Basis<'_>,
    mut view: ExplainView,
) -> Answer {
    frontends.sort_unstable_by_key(|frontend| frontend.addr);
    let listed: Vec<String> = frontends.iter().map(|it| it.addr.to_string()).collect();
    frontends.retain(|frontend| fits(frontend, question));
    if frontends.is_empty() {
        view.reasons.push(match listed.as_slice() {
            [] => "it has no frontend on this gateway".to_owned(),
            all => format!("no frontend of it fits what is asked for; it is served on {}", all.join(", ")),
        });
        if !reader.is_route {
            add_problems(&mut view, question, None, basis);
        }
        return Answer::Explained(view);
    }
    let frontend = frontends.remove(0);
    view.other_frontends = frontends.iter().map(|other| other.addr.to_string()).collect();
    let answer = FrontendAnswer { question, frontend: &frontend, basis };
    let active = basis.active.get(frontend.addr).map(AsRef::as_ref);
    match &frontend.server_names {
        None => answer.fill_listener(active, reader, &mut view),
        Some(names) => answer.fill_names(names, active, (reader, wanted), &mut view),
    }
    view.closed = basis.closed.get(&frontend.addr).cloned();
    if view.closed.is_some() {
        view.endpoint = None;
    }
    if !reader.is_route {
        let ports = [Some(frontend.addr.port), None];
        add_problems(&mut view, question, Some((frontend.addr.protocol, ports)), basis);
    }
    Answer::Explained(view)
}

fn fits(frontend: &Frontend, question: &Question) -> bool {
    let port = match &question.port {
        None => true,
        Some(Port::Number(number)) => frontend.addr.port == *number,
        Some(Port::Name(name)) => *frontend.service.port_name == **name,
    };
    port && question.protocol.is_none_or(|protocol| protocol == frontend.addr.protocol)
        && question.address.is_none_or(|address| address == frontend.addr.ip)
        && question.client.is_none_or(|client| client.ip.is_ipv4() == frontend.addr.ip.is_ipv4())
}

impl FrontendAnswer<'_> {
    /// Answers for the server name that is asked for, or for the only target that is wanted.
    fn fill_names(
        &self,
        names: &ServerNames,
        active: Option<&ActiveFrontend>,
        (reader, wanted): (&Reader<'_>, &dyn Fn(&Frontend) -> bool),
        view: &mut ExplainView,
    ) {
        let mut targets = (0..).zip(names.targets()).filter(|(_, target)| wanted(target)).map(|(at, _)| at);
        let only = targets.next().filter(|_| targets.next().is_none());
        let target = match &self.question.sni {
            Some(name) => names.target(name),
            None => only,
        };
        let Some(at) = target else {
            let (origin, _, why_origin) = self.origin();
            self.admit(origin, why_origin, view);
            view.listener = listener_name(&self.frontend.service);
            view.reasons.push(match &self.question.sni {
                Some(name) => format!("no route has the server name {name}: its connections are reset"),
                None => "the server name of a connection chooses its route (--sni NAME)".to_owned(),
            });
            if self.question.sni.is_none() {
                view.reasons.extend(server_names(names, wanted, reader));
            }
            return;
        };
        let frontend = &names.targets()[at];
        let is_it = |target: &Frontend| std::ptr::eq(target, &**frontend);
        view.reasons.extend(server_names(names, &is_it, reader));
        let active = active.and_then(|active| active.targets().nth(at));
        FrontendAnswer { frontend, ..*self }.fill_listener(active, reader, view);
    }

    fn fill_listener(&self, active: Option<&ActiveFrontend>, reader: &Reader<'_>, view: &mut ExplainView) {
        let Self { frontend, basis, .. } = *self;
        let (origin, side, why_origin) = self.origin();
        let allowed = self.admit(origin, why_origin, view);
        view.listener = listener_name(&frontend.service);
        match &frontend.split {
            None => view.reasons.push("no route is attached to the listener".to_owned()),
            Some(split) => {
                self.add_route(split, reader, view);
                let parts = basis.projector.explain_parts(basis.objects, frontend, side);
                view.split = self.parts(&parts, (origin, active), reader);
                view.reasons.extend(view.split.iter().map(about_part));
            }
        }
        if let Some(active) = active.filter(|_| allowed && frontend.split.is_some()) {
            self.choose_part(active, origin, view);
        }
        view.reasons.extend(self.differences(active));
        view.failing = is_failing(view);
    }

    /// Adds which route serves, and why it does.
    fn add_route(&self, split: &Split, reader: &Reader<'_>, view: &mut ExplainView) {
        let basis = self.basis;
        let is_it = |key: &&RouteKey| key.to_string() == *split.route;
        let gateway = basis.projector.gateway(&ServiceKey::from(&self.frontend.service));
        let key = gateway.and_then(|outcome| outcome.routes.keys().find(is_it));
        let visible = key.filter(|key| *key.namespace == *reader.namespace);
        let route = visible.and_then(|key| basis.objects.gateway_api.route(key));
        let shown = match visible {
            Some(_) => split.route.to_string(),
            None => "a route of another namespace".to_owned(),
        };
        let created = route.and_then(|it| Some(it.metadata().creation_timestamp.as_ref()?.0.to_string()));
        let since = created.as_ref().map(|time| format!(", created at {time}")).unwrap_or_default();
        view.reasons.push(format!("{shown} serves the listener{since}"));
        match split.superseded {
            0 => {}
            1 => view.reasons.push("it is the older of two attached routes, so it serves alone".to_owned()),
            others => view.reasons.push(format!(
                "it is the oldest of {} attached routes, so it serves alone",
                u64::from(others) + 1
            )),
        }
        (view.route, view.route_created) = (Some(shown), created);
    }

    fn parts(
        &self,
        parts: &[PartExplanation],
        (origin, active): (Origin, Option<&ActiveFrontend>),
        reader: &Reader<'_>,
    ) -> Vec<ExplainedPart> {
        let split = self.frontend.split.iter().flat_map(|split| &split.parts);
        let pools = || active.into_iter().flat_map(ActiveFrontend::pools);
        let explain = |(index, (explained, part)): (usize, (&PartExplanation, &SplitPart))| {
            let mut shown = ExplainedPart {
                reference: explained.name.to_string(),
                weight: explained.weight,
                share: explained.share.to_string(),
                refused: None,
                endpoints: Vec::new(),
            };
            match (&explained.target, part.pool()) {
                (Ok(target), Some(pool)) => {
                    let in_force = pools().find(|it| it.spec().service == pool.service);
                    let answer = FrontendAnswer { frontend: pool, ..*self };
                    shown.endpoints = answer.endpoints(target, origin, in_force);
                    let serves = shown.endpoints.iter().any(|endpoint| endpoint.used);
                    shown.refused = (!serves).then(|| "no endpoint serves".to_owned());
                }
                (Err(refused), _) => shown.refused = Some(refused.name().to_owned()),
                (Ok(_), None) => {}
            }
            if explained.weight == 0 {
                close(&mut shown);
            }
            hide(&mut shown, explained, index, reader);
            shown
        };
        parts.iter().zip(split).enumerate().map(explain).collect()
    }

    /// The part and the endpoint that the client gets, as far as they are certain.
    fn choose_part(&self, active: &ActiveFrontend, origin: Origin, view: &mut ExplainView) {
        let addr = self.question.client.map(client::addr);
        // Without its port, a client may be given any part.
        let known = addr.filter(|addr| addr.0.port() != 0);
        if let Some(Pick::Refused(_)) = known.and_then(|addr| active.refusal(origin, addr)) {
            view.reasons.push("the hash of this client chooses a backend whose share is refused".to_owned());
            view.action = Some("Reject".to_owned());
            return;
        }
        let weighted = view.split.iter().filter(|part| part.weight > 0).count();
        if weighted == 1 || active.spec().addr.protocol == Protocol::Udp {
            return self.choose(active, origin, view);
        }
        view.reasons.push(
            "the backend of a new connection is chosen by weight, then one of its endpoints".to_owned(),
        );
    }
}

/// A sentence about the server names that lead to the `wanted` targets. Names of routes of other namespaces are only counted.
fn server_names(
    names: &ServerNames,
    wanted: &dyn Fn(&Frontend) -> bool,
    Reader { namespace, .. }: &Reader<'_>,
) -> Option<String> {
    let patterns = names.patterns().into_iter();
    let leading = patterns.filter_map(|(name, target)| Some((name, target.filter(|it| wanted(it))?)));
    let is_own = |target: &Frontend| {
        target.split.as_ref().is_some_and(|split| split.route.contains(&format!(" {namespace}/")))
    };
    let (own, others): (Vec<_>, Vec<_>) = leading.partition(|(_, target)| is_own(target));
    let listed = first_few(own.iter().map(|(name, _)| name.to_string()), ", ", LISTED);
    match (own.len(), others.len()) {
        (0, 0) => None,
        (_, 0) => Some(format!("server names: {listed}")),
        (0, others) => Some(format!("server names: {others} of routes of other namespaces")),
        (_, others) => Some(format!("server names: {listed}, and {others} of routes of other namespaces")),
    }
}

/// Marks a part without a weight: what is wrong with it refuses nobody.
fn close(part: &mut ExplainedPart) {
    part.refused = None;
    for endpoint in part.endpoints.iter_mut().filter(|endpoint| endpoint.used) {
        endpoint.used = false;
        "its backend has weight 0".clone_into(&mut endpoint.reason);
    }
}

/// Removes names of other namespaces that the reader's object does not name.
fn hide(part: &mut ExplainedPart, explained: &PartExplanation, index: usize, reader: &Reader<'_>) {
    let own = explained.namespace.as_deref() == Some(reader.namespace);
    if !own {
        part.endpoints.iter_mut().for_each(|endpoint| endpoint.slice.clear());
    }
    let named = own || reader.is_route || explained.name.contains(&format!(" {}/", reader.namespace));
    if !named {
        part.reference = format!("backend {}, of another namespace", index + 1);
    }
}

fn about_part(part: &ExplainedPart) -> String {
    let ExplainedPart { reference, weight, share, refused, .. } = part;
    match refused {
        Some(reason) => {
            format!("{share} of new connections (weight {weight}) are refused: {reference}: {reason}")
        }
        None if *weight == 0 => format!("{reference} has weight 0, so it gets no new connections"),
        None => format!("{share} of new connections (weight {weight}) go to {reference}"),
    }
}

/// Share of new connections that is refused.
pub(crate) fn refused_share(view: &ExplainView) -> Share {
    let sum =
        |parts: &mut dyn Iterator<Item = &ExplainedPart>| parts.map(|part| u64::from(part.weight)).sum();
    Share {
        part: sum(&mut view.split.iter().filter(|part| part.refused.is_some())),
        whole: sum(&mut view.split.iter()),
    }
}

/// Whether every endpoint that the client may get is unhealthy.
fn is_failing(view: &ExplainView) -> bool {
    let endpoints = view.split.iter().flat_map(|part| &part.endpoints);
    let is_met = |it: &&ExplainedEndpoint| view.endpoint.as_ref().is_none_or(|one| *one == it.address);
    let mut all = endpoints.filter(|it| it.used).filter(is_met).peekable();
    all.peek().is_some() && all.all(|endpoint| endpoint.unhealthy.is_some())
}
