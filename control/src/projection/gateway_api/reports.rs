//! Problems that follow from the decisions about a Gateway.

use super::attachment::Attachment;
use super::backend_refs::{InvalidRef, ResolvedRef};
use super::outcome::{GatewayOutcome, ListenerOutcome, NO_VALID_BACKEND, RouteParent, SUPERSEDED};
use super::resolution::Resolution;
use crate::api::gateway_api::{ListenerSet, transport};
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, ProblemPort, reason};
use crate::api::service_key::ServiceKey;

/// Reports listeners and routes that are not served.
pub(super) fn report(
    key: &ServiceKey,
    outcome: &GatewayOutcome,
    resolution: &Resolution<'_>,
    problems: &mut Vec<Problem>,
) {
    report_listeners(key, outcome, problems);
    for (route, refs) in resolution.refs() {
        let parents = outcome.routes.get(&route.key).map(Vec::as_slice).unwrap_or_default();
        report_route(route, refs, parents, problems);
    }
}

/// Problems of listeners that are not served.
fn report_listeners(key: &ServiceKey, outcome: &GatewayOutcome, problems: &mut Vec<Problem>) {
    let own = std::iter::once((key.object(), &outcome.listeners));
    let of_sets = outcome.sets.iter().map(|(set, found)| (ListenerSet::object(set), &found.listeners));
    for (object, listeners) in own.chain(of_sets) {
        let mut report = Report::about(object);
        for (index, listener) in listeners.iter().enumerate() {
            let ListenerOutcome { accepted, conflicted, resolved_refs, .. } = listener;
            let mut add = |reason, message: &str| {
                report.add(reason, format!("spec.listeners[{index}]"), problem_port(listener), message);
            };
            if !accepted.holds && accepted.reason == conflicted.reason {
                add(reason::LISTENER_CONFLICT, &accepted.message);
            } else if !accepted.holds {
                add(reason::UNSUPPORTED_LISTENER, &accepted.message);
            } else if !resolved_refs.holds {
                add(reason::UNSUPPORTED_LISTENER, &resolved_refs.message);
            }
        }
        problems.extend(report.into_problems());
    }
    if let Some(refused) = &outcome.refused {
        let mut report = Report::about(key.object());
        report.add(reason::NOT_SERVED, "", None, refused.message.clone());
        problems.extend(report.into_problems());
    }
}

fn problem_port(listener: &ListenerOutcome) -> Option<ProblemPort> {
    let protocol = transport(&listener.protocol).name();
    Some(ProblemPort { port: u16::try_from(listener.port).ok()?, protocol })
}

/// Problems of a route that does not serve as it requests.
fn report_route(
    route: &Attachment,
    refs: &[ResolvedRef],
    parents: &[RouteParent],
    problems: &mut Vec<Problem>,
) {
    let mut report = Report::about(route.key.object());
    let invalid = refs.iter().filter_map(|it| it.target.as_ref().err());
    for InvalidRef { reason, field, message } in invalid {
        report.add(reason::BACKEND_REF_INVALID, field, None, format!("{message} ({})", reason.name()));
    }
    for parent in parents {
        let at = route.route.spec().parent_refs.iter().position(|it| *it == parent.reference);
        let field = format!("spec.parentRefs[{}]", at.unwrap_or_default());
        if !parent.accepted.holds {
            let message = format!("{} ({})", parent.accepted.message, parent.accepted.reason);
            report.add(reason::ROUTE_NOT_ACCEPTED, field, None, message);
            continue;
        }
        let serving = parent.serving.as_ref();
        if let Some(serving) = serving.filter(|it| it.reason == SUPERSEDED) {
            report.add(reason::ROUTE_SUPERSEDED, field, None, serving.message.clone());
        }
        // With every reference valid, only the weights are left as the cause.
        if serving.is_some_and(|it| it.reason == NO_VALID_BACKEND) && parent.resolved_refs.holds {
            let message = "no backend has a weight, so every connection is refused";
            report.add(reason::NO_WEIGHT, "spec.rules[0].backendRefs", None, message);
        }
    }
    problems.extend(report.into_problems());
}
